# The data of each benchmark, then one job a model, task and number of shots.
rule benchmarks:
    output:
        f"{OUT}/data/benchmarks/{{task}}/manifest.json",
    log:
        f"{OUT}/logs/benchmarks/{{task}}.log",
    benchmark:
        f"{OUT}/logs/benchmarks/{{task}}.tsv"
    localrule: True  # as listing
    conda:
        ENVIRONMENT
    resources:
        **ask("download"),
    params:
        config=CONFIG,
        out=subpath(output[0], parent=True),
        settings=section_digest(SETTINGS.evaluate.data, SETTINGS.evaluate.wheel),
        code=codeversion.digest("tokencodes.evaluate.benchmarks"),
    message:
        "benchmarks: {wildcards.task}"
    shell:
        "logged {log:q} tokencodes benchmarks --config {params.config:q} --task {wildcards.task} --out {params.out:q}"


rule evaluate:
    input:
        weights=rules.export.output.weights,
        model=rules.export.output,
        benchmarks=rules.benchmarks.output[0],
        store=f"{OUT}/data/store/manifest.json",
    output:
        scores=f"{OUT}/eval/{{interface}}-s{{seed}}/{{task}}-{{shots}}shot.json",
        documents=f"{OUT}/eval/{{interface}}-s{{seed}}/{{task}}-{{shots}}shot.parquet",
    log:
        f"{OUT}/logs/evaluate/{{interface}}-s{{seed}}/{{task}}-{{shots}}shot.log",
    benchmark:
        f"{OUT}/logs/evaluate/{{interface}}-s{{seed}}/{{task}}-{{shots}}shot.tsv"
    conda:
        ENVIRONMENT
    threads: cpus("evaluate")
    resources:
        **ask("evaluate"),
    params:
        config=CONFIG,
        model=subpath(input.weights, parent=True),
        benchmarks=subpath(input.benchmarks, parent=True),
        store=subpath(input.store, parent=True),
        settings=task_settings,
        code=codeversion.digest("tokencodes.evaluate.run"),
    message:
        "evaluate: {wildcards.interface}, seed {wildcards.seed} on {wildcards.task}, {wildcards.shots} shots"
    shell:
        "logged {log:q} tokencodes evaluate --config {params.config:q} --model {params.model:q} --task {wildcards.task}"
        " --shots {wildcards.shots} --benchmarks {params.benchmarks:q} --store {params.store:q} --out {output.scores:q}"
