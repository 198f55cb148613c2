# The config, with every key, beside what it made; and what each interface counts.
rule resolve:
    output:
        update(CONFIG),  # the stages that run meanwhile read it: replaced in one go, not deleted first
    log:
        f"{OUT}/logs/resolve.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=SETTINGS.model_dump_json(),
    message:
        "config: every key of this run, defaults included"
    shell:
        "logged {log:q} tokencodes resolve --json --config {params.config:q} --out {output:q}"


rule accounting:
    output:
        f"{OUT}/params.json",
    log:
        f"{OUT}/logs/accounting.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=CONFIG,
        settings=section_digest(SETTINGS.model, list(SETTINGS.interfaces), *SETTINGS.interfaces.values()),
        code=codeversion.digest("tokencodes.model.accounting"),
    message:
        "accounting: parameters of each interface"
    shell:
        "logged {log:q} tokencodes params --config {params.config:q} --out {output:q}"
