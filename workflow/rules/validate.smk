# Each exported model is held against its run, bit for bit.
rule validate:
    input:
        weights=rules.export.output.weights,
        model=rules.export.output,
        final=rules.train.output.final,
        store=f"{OUT}/data/store/manifest.json",
    output:
        f"{OUT}/validation/{{interface}}-s{{seed}}.json",
    log:
        f"{OUT}/logs/validate/{{interface}}-s{{seed}}.log",
    benchmark:
        f"{OUT}/logs/validate/{{interface}}-s{{seed}}.tsv"
    conda:
        ENVIRONMENT
    threads: cpus("export")
    resources:
        **ask("export"),
    params:
        model=subpath(input.weights, parent=True),
        run_dir=subpath(input.final, parent=True),
        store=subpath(input.store, parent=True),
        code=codeversion.digest("tokencodes.validate.checks"),
    message:
        "validate: {wildcards.interface}, seed {wildcards.seed}"
    shell:
        "logged {log:q} tokencodes validate --model {params.model:q} --run-dir {params.run_dir:q} --store {params.store:q}"
        " --out {output:q}"
