# The config, with every key, beside what it made; and what each interface counts.
rule resolve:
    output:
        CONFIG,
    params:
        config=SETTINGS.model_dump_json(),
    log:
        f"{OUT}/logs/resolve.log",
    conda:
        ENVIRONMENT
    message:
        "config: every key of this run, defaults included"
    localrule: True
    shell:
        "logged {log} tokencodes resolve --json --config {params.config:q} --out {output}"


rule run_file:
    input:
        config=ancient(CONFIG),
    output:
        f"{OUT}/runs/{{interface}}-s{{seed}}/run.yaml",
    params:
        settings=lambda wildcards: section_digest(SETTINGS.run(wildcards.interface, int(wildcards.seed))),
    log:
        f"{OUT}/logs/run_file/{{interface}}-s{{seed}}.log",
    conda:
        ENVIRONMENT
    message:
        "run file: {wildcards.interface}, seed {wildcards.seed}"
    localrule: True
    shell:
        "logged {log} tokencodes resolve --config {input.config} --interface {wildcards.interface}"
        " --seed {wildcards.seed} --out {output}"


rule accounting:
    input:
        config=ancient(CONFIG),
    output:
        f"{OUT}/params.json",
    params:
        settings=section_digest(SETTINGS.model, list(SETTINGS.interfaces), *SETTINGS.interfaces.values()),
        code=codeversion.digest("tokencodes.model.accounting"),
    log:
        f"{OUT}/logs/accounting.log",
    conda:
        ENVIRONMENT
    message:
        "accounting: parameters of each interface"
    localrule: True
    shell:
        "logged {log} tokencodes params --config {input.config} --out {output}"
