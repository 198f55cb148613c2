# Each exported model is compared with its run, bit for bit.
rule validate:
    input:
        weights=rules.export.output.weights,
        model=rules.export.output,
        final=rules.train.output.final,
        codes=codes_of,
        store=LAYOUT.store_manifest,
    output:
        LAYOUT.validation(TRAINING),
    log:
        LAYOUT.log("validate", TRAINING),
    benchmark:
        LAYOUT.benchmark("validate", TRAINING)
    conda:
        ENVIRONMENT
    threads: ASK["export"]["cpus_per_task"]
    resources:
        **ASK["export"],
    params:
        model=subpath(input.weights, parent=True),
        run_dir=subpath(input.final, parent=True),
        codes=codes_option,
        store=subpath(input.store, parent=True),
        code=lambda wildcards: triggers.validation_code(SETTINGS, wildcards.interface),
    message:
        "validate: {wildcards.interface}, seed {wildcards.seed}"
    shell:
        "logged {log:q} tokencodes validate --model {params.model:q} --run-dir {params.run_dir:q} --store {params.store:q}"
        " {params.codes:q} --out {output:q}"
