# Documents in, token store out: one job per shard, then an index over all shards.
rule listing:
    output:
        update(LISTING or f"{LAYOUT.data}/listing.json"),  # a pin: it is kept if the hub does not answer a second time
    log:
        LAYOUT.log("listing"),
    localrule: True  # it needs the network
    conda:
        ENVIRONMENT
    resources:
        **ASK["download"],
    params:
        config=LAYOUT.config,  # no `settings`: they are in the name; no `code`: what the hub states depends on none
    message:
        "listing: commit, files and hashes of the corpus"
    shell:
        "logged {log:q} tokencodes list --config {params.config:q} --out {output:q}"


rule download:
    input:
        ORIGINAL_SHARD,
        listing=LISTING,
    output:
        temp(RAW) if LISTING and not SOURCE.keep_raw else RAW,
    log:
        LAYOUT.log("download", "{shard}"),
    benchmark:
        LAYOUT.benchmark("download", "{shard}")
    localrule: DOWNLOADS_HERE
    conda:
        ENVIRONMENT
    resources:
        **ASK["download"],
    params:
        config=LAYOUT.config,
        listing=["--listing", *LISTING] if LISTING else [],
        settings=lambda wildcards: triggers.raw_shard(SETTINGS, original_shard(wildcards.shard)),
        # A shard of the hub is checked against the hub's hash: whatever code fetched it, it is the same.
        code=None if LISTING else codeversion.digest("tokencodes.data.source"),
    message:
        "download: {wildcards.shard}"
    shell:
        "logged {log:q} tokencodes download --config {params.config:q} --shard {wildcards.shard} --out {output:q}"
        " {params.listing:q}"


rule tokenizer:
    input:
        ORIGINAL_TOKENIZER,
    output:
        tokenizer=f"{LAYOUT.tokenizer}/tokenizer.json",
        special=f"{LAYOUT.tokenizer}/tokenizer_config.json",  # for export
        manifest=f"{LAYOUT.tokenizer}/manifest.json",
    log:
        LAYOUT.log("tokenizer"),
    benchmark:
        LAYOUT.benchmark("tokenizer")
    priority: 2  # before any download: without it no shard is prepared, and no raw shard deleted
    localrule: True  # it needs the network
    conda:
        ENVIRONMENT
    resources:
        **ASK["download"],
    params:
        config=LAYOUT.config,
        out=subpath(output.tokenizer, parent=True),
        settings=triggers.tokenizer(SETTINGS),
        code=codeversion.digest("tokencodes.data.tokenizer"),
    message:
        "tokenizer"
    shell:
        "logged {log:q} tokencodes tokenizer --config {params.config:q} --out {params.out:q}"


rule prepare:
    input:
        raw=RAW,
        tokenizer=rules.tokenizer.output.tokenizer,
        about=rules.tokenizer.output.manifest,
    output:
        train=f"{LAYOUT.shard('{shard}')}/train.arrow",
        validation=f"{LAYOUT.shard('{shard}')}/validation.arrow",
        unigram=f"{LAYOUT.shard('{shard}')}/unigram.npy",
        manifest=f"{LAYOUT.shard('{shard}')}/manifest.json",
    log:
        LAYOUT.log("prepare", "{shard}"),
    benchmark:
        LAYOUT.benchmark("prepare", "{shard}")
    priority: 1  # before the next download: raw shards of the hub are deleted here
    conda:
        ENVIRONMENT
    threads: ASK["prepare"]["cpus_per_task"]
    resources:
        **ASK["prepare"],
    params:
        config=LAYOUT.config,
        tokenizer=subpath(input.tokenizer, parent=True),
        out=subpath(output.manifest, parent=True),
        settings=lambda wildcards: triggers.prepared_shard(SETTINGS, original_shard(wildcards.shard)),
        code=codeversion.digest("tokencodes.data.prepare"),
    message:
        "prepare: {wildcards.shard}"
    shell:
        "logged {log:q} tokencodes prepare --config {params.config:q} --shard {wildcards.shard} --raw {input.raw:q}"
        " --tokenizer {params.tokenizer:q} --out {params.out:q}"


rule index:
    input:
        shards=SHARD_FILES,
    output:
        LAYOUT.store_manifest,
    log:
        LAYOUT.log("index"),
    benchmark:
        LAYOUT.benchmark("index")
    conda:
        ENVIRONMENT
    resources:
        **ASK["prepare"],
    params:
        config=LAYOUT.config,
        shards=[LAYOUT.shard(shard) for shard in SHARDS],
        settings=triggers.store(SETTINGS),
        code=codeversion.digest("tokencodes.data.indexing"),
    message:
        "index: one store of all shards"
    shell:
        "logged {log:q} tokencodes index --config {params.config:q} --shards {params.shards:q} --out {output:q}"
