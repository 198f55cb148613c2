# One model an interface and seed. Checkpoints are no outputs: Snakemake deletes those of a job that failed.
rule train:
    input:
        store=f"{OUT}/data/store/manifest.json",
    output:
        final=f"{OUT}/runs/{{interface}}-s{{seed}}/final.json",
    log:
        f"{OUT}/logs/train/{{interface}}-s{{seed}}.log",
    benchmark:
        f"{OUT}/logs/train/{{interface}}-s{{seed}}.tsv"
    conda:
        ENVIRONMENT
    threads: cpus("train")
    resources:
        **ask("train"),
    params:
        config=CONFIG,
        launcher=lambda wildcards, resources: LAUNCHER,  # of resources: on how many ranks it ran is no reason to rerun
        store=subpath(input.store, parent=True),
        out=subpath(output.final, parent=True),
        settings=lambda wildcards: section_digest(SETTINGS.run(wildcards.interface, int(wildcards.seed)).identity()),
        code=training_code,
    message:
        "train: {wildcards.interface}, seed {wildcards.seed}"
    shell:
        "logged {log:q} tokencodes resolve --config {params.config:q} --interface {wildcards.interface}"
        " --seed {wildcards.seed} --out {params.out:q}/run.yaml\n"
        "logged {log:q} {params.launcher} train --run {params.out:q}/run.yaml --store {params.store:q} --out {params.out:q}"


rule export:
    input:
        final=rules.train.output.final,
        tokenizer=rules.tokenizer.output.tokenizer,
    output:
        weights=f"{OUT}/models/{{interface}}-s{{seed}}/model.safetensors",
        config=f"{OUT}/models/{{interface}}-s{{seed}}/config.json",
        tokenizer=f"{OUT}/models/{{interface}}-s{{seed}}/tokenizer.json",
        special=f"{OUT}/models/{{interface}}-s{{seed}}/tokenizer_config.json",
        origin=f"{OUT}/models/{{interface}}-s{{seed}}/tokencodes.json",
    log:
        f"{OUT}/logs/export/{{interface}}-s{{seed}}.log",
    benchmark:
        f"{OUT}/logs/export/{{interface}}-s{{seed}}.tsv"
    conda:
        ENVIRONMENT
    threads: cpus("export")
    resources:
        **ask("export"),
    params:
        run_dir=subpath(input.final, parent=True),
        tokenizer=subpath(input.tokenizer, parent=True),
        out=subpath(output.weights, parent=True),
        code=codeversion.digest("tokencodes.train.export"),
    message:
        "export: {wildcards.interface}, seed {wildcards.seed}"
    shell:
        "logged {log:q} tokencodes export --run-dir {params.run_dir:q} --tokenizer {params.tokenizer:q} --out {params.out:q}"
