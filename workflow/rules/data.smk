# Documents in, token store out: one job a shard, then an index over them.
rule listing:
    output:
        update(PINNED or f"{OUT}/data/listing.json"),  # a pin: kept when the hub is asked again and does not answer
    log:
        f"{OUT}/logs/listing.log",
    localrule: True  # it needs the network
    conda:
        ENVIRONMENT
    resources:
        **ask("download"),
    params:
        config=CONFIG,  # neither `settings`, for the name has them, nor `code`: what a hub states does not depend on it
    message:
        "listing: which commit of the corpus, which files, which hashes"
    shell:
        "logged {log:q} tokencodes list --config {params.config:q} --out {output:q}"


rule download:
    input:
        ORIGINAL_SHARD,
        listing=PINNED,
    output:
        RAW,
    log:
        f"{OUT}/logs/download/{{shard}}.log",
    benchmark:
        f"{OUT}/logs/download/{{shard}}.tsv"
    localrule: DOWNLOADS_HERE
    conda:
        ENVIRONMENT
    resources:
        **ask("download"),
    params:
        config=CONFIG,
        listing=["--listing", *PINNED] if PINNED else [],
        settings=section_digest(SOURCE),
        # What comes from the hub is held against the hub's hashes: by whatever code, it is the same.
        code=None if PINNED else codeversion.digest("tokencodes.data.source"),
    message:
        "download: {wildcards.shard}"
    shell:
        "logged {log:q} tokencodes download --config {params.config:q} --shard {wildcards.shard} --out {output:q}"
        " {params.listing:q}"


rule tokenizer:
    input:
        ORIGINAL_TOKENIZER,
    output:
        tokenizer=f"{OUT}/data/tokenizer/tokenizer.json",
        manifest=f"{OUT}/data/tokenizer/manifest.json",
    log:
        f"{OUT}/logs/tokenizer.log",
    benchmark:
        f"{OUT}/logs/tokenizer.tsv"
    priority: 2  # before any download: no shard is prepared, and none dropped, without it
    localrule: True  # as listing
    conda:
        ENVIRONMENT
    resources:
        **ask("download"),
    params:
        config=CONFIG,
        out=subpath(output.tokenizer, parent=True),
        settings=section_digest(SETTINGS.data.tokenizer, SETTINGS.model.vocab_size),
        code=codeversion.digest("tokencodes.data.tokenizer"),
    message:
        "tokenizer"
    shell:
        "logged {log:q} tokencodes tokenizer --config {params.config:q} --out {params.out:q}"


rule prepare:
    input:
        raw=f"{OUT}/data/raw/{{shard}}.parquet",
        tokenizer=rules.tokenizer.output.tokenizer,
        about=rules.tokenizer.output.manifest,
    output:
        train=f"{OUT}/data/store/{{shard}}/train.arrow",
        validation=f"{OUT}/data/store/{{shard}}/validation.arrow",
        unigram=f"{OUT}/data/store/{{shard}}/unigram.npy",
        manifest=f"{OUT}/data/store/{{shard}}/manifest.json",
    log:
        f"{OUT}/logs/prepare/{{shard}}.log",
    benchmark:
        f"{OUT}/logs/prepare/{{shard}}.tsv"
    priority: 1  # before the next download, for raw shards of the hub are dropped here
    conda:
        ENVIRONMENT
    threads: cpus("prepare")
    resources:
        **ask("prepare"),
    params:
        config=CONFIG,
        tokenizer=subpath(input.tokenizer, parent=True),
        out=subpath(output.manifest, parent=True),
        settings=data_digest(SETTINGS.data, SETTINGS.model.vocab_size),
        code=codeversion.digest("tokencodes.data.prepare"),
    message:
        "prepare: {wildcards.shard}"
    shell:
        "logged {log:q} tokencodes prepare --config {params.config:q} --shard {wildcards.shard} --raw {input.raw:q}"
        " --tokenizer {params.tokenizer:q} --out {params.out:q}"


rule index:
    input:
        shards=STORE[1:],
    output:
        f"{OUT}/data/store/manifest.json",
    log:
        f"{OUT}/logs/index.log",
    benchmark:
        f"{OUT}/logs/index.tsv"
    conda:
        ENVIRONMENT
    resources:
        **ask("prepare"),
    params:
        config=CONFIG,
        shards=expand(f"{OUT}/data/store/{{shard}}", shard=SHARDS),
        settings=data_digest(SETTINGS.data, SETTINGS.model.vocab_size),
        code=codeversion.digest("tokencodes.data.store"),
    message:
        "index: one store of all shards"
    shell:
        "logged {log:q} tokencodes index --config {params.config:q} --shards {params.shards:q} --out {output:q}"
