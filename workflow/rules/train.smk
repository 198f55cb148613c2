# One model per interface and seed. Checkpoints are no outputs: Snakemake deletes those of a job that failed.
MODEL_FILES = dict(
    weights="model.safetensors",
    config="config.json",
    tokenizer="tokenizer.json",
    special="tokenizer_config.json",
    origin="tokencodes.json",
)


rule train:
    input:
        codes=codes_of,
        store=LAYOUT.store_manifest,
    output:
        final=LAYOUT.final(TRAINING),
    log:
        LAYOUT.log("train", TRAINING),
    benchmark:
        LAYOUT.benchmark("train", TRAINING)
    conda:
        ENVIRONMENT
    threads: ASK["train"]["cpus_per_task"]
    resources:
        **ASK["train"],
    params:
        config=LAYOUT.config,
        launcher=lambda wildcards, resources: LAUNCHER,  # of resources: another number of ranks is no reason to rerun
        codes=codes_option,
        store=subpath(input.store, parent=True),
        out=subpath(output.final, parent=True),
        settings=lambda wildcards: triggers.training(SETTINGS, wildcards.interface, int(wildcards.seed)),
        code=lambda wildcards: triggers.training_code(
            Path(LAYOUT.run(TRAINING.format(**wildcards))), SETTINGS.train.on_code_change
        ),
    message:
        "train: {wildcards.interface}, seed {wildcards.seed}"
    shell:
        "logged {log:q} tokencodes resolve --config {params.config:q} --interface {wildcards.interface}"
        " --seed {wildcards.seed} --out {params.out:q}/run.yaml\n"
        "logged {log:q} {params.launcher} train --run {params.out:q}/run.yaml --store {params.store:q} {params.codes:q}"
        " --out {params.out:q}"


rule export:
    input:
        final=rules.train.output.final,
        codes=codes_of,
        tokenizer=rules.tokenizer.output.tokenizer,
        special=rules.tokenizer.output.special,
    output:
        **{key: f"{LAYOUT.model(TRAINING)}/{name}" for key, name in MODEL_FILES.items()},
    log:
        LAYOUT.log("export", TRAINING),
    benchmark:
        LAYOUT.benchmark("export", TRAINING)
    conda:
        ENVIRONMENT
    threads: ASK["export"]["cpus_per_task"]
    resources:
        **ASK["export"],
    params:
        run_dir=subpath(input.final, parent=True),
        codes=codes_option,
        tokenizer=subpath(input.tokenizer, parent=True),
        out=subpath(output.weights, parent=True),
        code=codeversion.digest("tokencodes.train.export"),
    message:
        "export: {wildcards.interface}, seed {wildcards.seed}"
    shell:
        "logged {log:q} tokencodes export --run-dir {params.run_dir:q} --tokenizer {params.tokenizer:q} {params.codes:q}"
        " --out {params.out:q}"


if IS_MAIN and triggers.looks_at_params(sys.argv[1:]):
    guards.warn_of_other_code(guards.runs(SETTINGS, LAYOUT), SETTINGS.train.on_code_change)
