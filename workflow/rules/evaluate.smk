# The data of each benchmark, and models that others trained; then one job per model, task and number of shots.
REFERENCES = list(SETTINGS.references)
IMPORTED = [name for name in REFERENCES if SETTINGS.references[name].kind == "import"]
IMPORTS = [LAYOUT.validation(name) for name in IMPORTED]
REFERENCE_EVALUATIONS = [
    path(name, task.name, task.shots)
    for name in REFERENCES
    for task in SETTINGS.evaluate.tasks
    if name in IMPORTED or task.name != CORPUS_TASK  # the store has tokens of our tokenizer
    for path in (LAYOUT.scores, LAYOUT.documents)
]
REFERENCE_TABLES = [f"{LAYOUT.tables}/references.{ending}" for ending in ("csv", "md", "tex", "txt")]
OTHERS = REFERENCE_TABLES if REFERENCES else []


wildcard_constraints:
    model=one_of([*MODELS, *REFERENCES]),
    reference=one_of(REFERENCES),


rule reference:
    input:
        tokenizer=rules.tokenizer.output.tokenizer,
    output:
        **{key: f"{LAYOUT.model('{reference}')}/{name}" for key, name in MODEL_FILES.items()},
    log:
        LAYOUT.log("reference", "{reference}"),
    localrule: True  # it needs the network
    conda:
        ENVIRONMENT
    resources:
        **ASK["download"],
    params:
        config=LAYOUT.config,
        tokenizer=subpath(input.tokenizer, parent=True),
        out=subpath(output.weights, parent=True),
        settings=lambda wildcards: triggers.reference(SETTINGS, wildcards.reference),
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
        store=LAYOUT.store_manifest,
    output:
        LAYOUT.validation("{reference}"),
    log:
        LAYOUT.log("validate", "{reference}"),
    conda:
        ENVIRONMENT
    threads: ASK["export"]["cpus_per_task"]
    resources:
        **ASK["export"],
    params:
        config=LAYOUT.config,
        model=subpath(input.weights, parent=True),
        store=subpath(input.store, parent=True),
        settings=lambda wildcards: triggers.reference(SETTINGS, wildcards.reference),
        code=lambda wildcards: triggers.validation_code(SETTINGS, SETTINGS.references[wildcards.reference].interface),
    message:
        "validate: {wildcards.reference}"
    shell:
        "logged {log:q} tokencodes validate --model {params.model:q} --config {params.config:q} --store {params.store:q}"
        " --out {output:q}"


rule benchmarks:
    output:
        f"{LAYOUT.benchmarks('{task}')}/manifest.json",
    log:
        LAYOUT.log("benchmarks", "{task}"),
    benchmark:
        LAYOUT.benchmark("benchmarks", "{task}")
    localrule: True  # it needs the network
    conda:
        ENVIRONMENT
    resources:
        **ASK["download"],
    params:
        config=LAYOUT.config,
        out=subpath(output[0], parent=True),
        settings=triggers.benchmarks(SETTINGS),
        code=codeversion.digest("tokencodes.evaluate.benchmarks"),
    message:
        "benchmarks: {wildcards.task}"
    shell:
        "logged {log:q} tokencodes benchmarks --config {params.config:q} --task {wildcards.task} --out {params.out:q}"


rule evaluate:
    input:
        weights=f"{LAYOUT.model('{model}')}/model.safetensors",
        model=[f"{LAYOUT.model('{model}')}/{name}" for key, name in MODEL_FILES.items() if key != "weights"],
        benchmarks=rules.benchmarks.output[0],
        store=LAYOUT.store_manifest,
    output:
        scores=LAYOUT.scores("{model}", "{task}", "{shots}"),
        documents=LAYOUT.documents("{model}", "{task}", "{shots}"),
    log:
        LAYOUT.log("evaluate", "{model}", task_name("{task}", "{shots}")),
    benchmark:
        LAYOUT.benchmark("evaluate", "{model}", task_name("{task}", "{shots}"))
    conda:
        ENVIRONMENT
    threads: ASK["evaluate"]["cpus_per_task"]
    resources:
        **ASK["evaluate"],
    params:
        config=LAYOUT.config,
        model=subpath(input.weights, parent=True),
        benchmarks=subpath(input.benchmarks, parent=True),
        store=subpath(input.store, parent=True),
        settings=lambda wildcards: triggers.scores(SETTINGS, wildcards.task, int(wildcards.shots)),
        code=codeversion.digest("tokencodes.evaluate.run"),
    message:
        "evaluate: {wildcards.model} on {wildcards.task}, {wildcards.shots} shots"
    shell:
        "logged {log:q} tokencodes evaluate --config {params.config:q} --model {params.model:q} --task {wildcards.task}"
        " --shots {wildcards.shots} --benchmarks {params.benchmarks:q} --store {params.store:q} --out {output.scores:q}"


# From stored results alone, like the other tables.
rule others:
    input:
        EVALUATIONS,
        REFERENCE_EVALUATIONS,
    output:
        REFERENCE_TABLES,
    log:
        LAYOUT.log("others"),
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=LAYOUT.config,
        results=subpath(output[0], ancestor=2),
        out=subpath(output[0], parent=True),
        settings=triggers.report(SETTINGS),
        code=codeversion.digest("tokencodes.report.others"),
    message:
        "others: our models beside those of others"
    shell:
        "logged {log:q} tokencodes others --config {params.config:q} --results {params.results:q} --out {params.out:q}"
