# One job a model, task and number of shots.
rule benchmarks:
    input:
        config=ancient(CONFIG),
    output:
        f"{OUT}/data/benchmarks/manifest.json",
    params:
        out=subpath(output[0], parent=True),
        settings=section_digest(
            SETTINGS.evaluate.data, SETTINGS.evaluate.wheel, sorted({task.name for task in SETTINGS.evaluate.tasks})
        ),
        code=codeversion.digest("tokencodes.evaluate.benchmarks"),
    log:
        f"{OUT}/logs/benchmarks.log",
    benchmark:
        f"{OUT}/logs/benchmarks.tsv"
    conda:
        ENVIRONMENT
    resources:
        **ask("download"),
    message:
        "benchmarks: their data"
    localrule: True  # as download
    shell:
        "logged {log} tokencodes benchmarks --config {input.config} --out {params.out}"


rule evaluate:
    input:
        config=ancient(CONFIG),
        weights=rules.export.output.weights,
        model=rules.export.output,
        benchmarks=ancient(rules.benchmarks.output[0]),  # another task in it is no reason to score this one again
        store=ancient(f"{OUT}/data/store/manifest.json"),
    output:
        scores=f"{OUT}/eval/{{interface}}-s{{seed}}/{{task}}-{{shots}}shot.json",
        documents=f"{OUT}/eval/{{interface}}-s{{seed}}/{{task}}-{{shots}}shot.parquet",
    params:
        model=subpath(input.weights, parent=True),
        benchmarks=subpath(input.benchmarks, parent=True),
        store=subpath(input.store, parent=True),
        settings=task_settings,
        code=codeversion.digest("tokencodes.evaluate.run"),
    log:
        f"{OUT}/logs/evaluate/{{interface}}-s{{seed}}/{{task}}-{{shots}}shot.log",
    benchmark:
        f"{OUT}/logs/evaluate/{{interface}}-s{{seed}}/{{task}}-{{shots}}shot.tsv"
    conda:
        ENVIRONMENT
    threads: cpus("evaluate")
    resources:
        **ask("evaluate"),
    message:
        "evaluate: {wildcards.interface}, seed {wildcards.seed} on {wildcards.task}, {wildcards.shots} shots"
    shell:
        "logged {log} tokencodes evaluate --config {input.config} --model {params.model} --task {wildcards.task}"
        " --shots {wildcards.shots} --benchmarks {params.benchmarks} --store {params.store} --out {output.scores}"
