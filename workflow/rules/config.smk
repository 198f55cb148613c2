# The config, with every key, beside what it made; and what each interface counts.
rule resolve:
    output:
        update(CONFIG),  # the stages that run meanwhile read it: replaced in one go, not deleted first
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


rule accounting:
    output:
        f"{OUT}/params.json",
    params:
        config=CONFIG,
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
        "logged {log} tokencodes params --config {params.config} --out {output}"
