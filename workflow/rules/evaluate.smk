# The data of each benchmark and the models of others; then one job a model, task and number of shots.
REFERENCES = list(SETTINGS.references)
IMPORTED = [name for name in REFERENCES if SETTINGS.references[name].kind == "import"]
IMPORTS = expand(f"{OUT}/validation/{{name}}.json", name=IMPORTED)
OF_OTHERS = [
    f"{OUT}/eval/{name}/{task.name}-{task.shots}shot.{kind}"
    for name in REFERENCES
    for task in SETTINGS.evaluate.tasks
    for kind in ("json", "parquet")
    if name in IMPORTED or task.name != benchmarks.CORPUS_TASK  # the store holds tokens of our tokenizer
]
MODEL_FILES = ["config.json", "tokenizer.json", "tokenizer_config.json", "tokencodes.json"]  # that decide a score
OTHERS = expand(f"{OUT}/tables/references.{{kind}}", kind=["csv", "md", "tex", "txt"]) if REFERENCES else []


wildcard_constraints:
    model="|".join(map(re.escape, [*expand("{interface}-s{seed}", **PLACES), *REFERENCES])),
    reference="|".join(map(re.escape, REFERENCES)) or "none",


rule reference:
    input:
        tokenizer=rules.tokenizer.output.tokenizer,
    output:
        weights=f"{OUT}/models/{{reference}}/model.safetensors",
        config=f"{OUT}/models/{{reference}}/config.json",
        tokenizer=f"{OUT}/models/{{reference}}/tokenizer.json",
        special=f"{OUT}/models/{{reference}}/tokenizer_config.json",
        origin=f"{OUT}/models/{{reference}}/tokencodes.json",
    log:
        f"{OUT}/logs/reference/{{reference}}.log",
    localrule: True  # as listing
    conda:
        ENVIRONMENT
    resources:
        **ask("download"),
    params:
        config=CONFIG,
        tokenizer=subpath(input.tokenizer, parent=True),
        out=subpath(output.weights, parent=True),
        settings=reference_settings,
        code=codeversion.digest("tokencodes.evaluate.references"),
    message:
        "reference: {wildcards.reference}"
    shell:
        "logged {log:q} tokencodes reference --config {params.config:q} --name {wildcards.reference}"
        " --tokenizer {params.tokenizer:q} --out {params.out:q}"


rule validate_imported:
    input:
        weights=rules.reference.output.weights,
        model=rules.reference.output,
        store=f"{OUT}/data/store/manifest.json",
    output:
        f"{OUT}/validation/{{reference}}.json",
    log:
        f"{OUT}/logs/validate/{{reference}}.log",
    conda:
        ENVIRONMENT
    threads: cpus("export")
    resources:
        **ask("export"),
    params:
        config=CONFIG,
        model=subpath(input.weights, parent=True),
        store=subpath(input.store, parent=True),
        settings=reference_settings,
        code=codeversion.digest("tokencodes.validate.checks"),
    message:
        "validate: {wildcards.reference}"
    shell:
        "logged {log:q} tokencodes validate --model {params.model:q} --config {params.config:q} --store {params.store:q}"
        " --out {output:q}"


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
        weights=f"{OUT}/models/{{model}}/model.safetensors",
        model=expand(f"{OUT}/models/{{{{model}}}}/{{file}}", file=MODEL_FILES),
        benchmarks=rules.benchmarks.output[0],
        store=f"{OUT}/data/store/manifest.json",
    output:
        scores=f"{OUT}/eval/{{model}}/{{task}}-{{shots}}shot.json",
        documents=f"{OUT}/eval/{{model}}/{{task}}-{{shots}}shot.parquet",
    log:
        f"{OUT}/logs/evaluate/{{model}}/{{task}}-{{shots}}shot.log",
    benchmark:
        f"{OUT}/logs/evaluate/{{model}}/{{task}}-{{shots}}shot.tsv"
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
        "evaluate: {wildcards.model} on {wildcards.task}, {wildcards.shots} shots"
    shell:
        "logged {log:q} tokencodes evaluate --config {params.config:q} --model {params.model:q} --task {wildcards.task}"
        " --shots {wildcards.shots} --benchmarks {params.benchmarks:q} --store {params.store:q} --out {output.scores:q}"


# From stored results alone, as the other tables.
rule others:
    input:
        EVALUATIONS,
        OF_OTHERS,
    output:
        OTHERS or f"{OUT}/tables/references.txt",
    log:
        f"{OUT}/logs/others.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=CONFIG,
        results=subpath(output[0], ancestor=2),
        out=subpath(output[0], parent=True),
        settings=SHOWN,
        code=codeversion.digest("tokencodes.report.others"),
    message:
        "others: our models beside those of others"
    shell:
        "logged {log:q} tokencodes others --config {params.config:q} --results {params.results:q} --out {params.out:q}"
