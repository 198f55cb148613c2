# The config, with every key, beside what it made; and the parameters of each interface.
rule resolve:
    output:
        update(LAYOUT.config),  # other stages read it meanwhile: it is replaced, not deleted first
    log:
        LAYOUT.log("resolve"),
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=lambda wildcards: SETTINGS.model_dump_json(),  # Snakemake would fill in braces of a plain text
    message:
        "config: every key of this run, defaults included"
    shell:
        "logged {log:q} tokencodes resolve --json --config {params.config:q} --out {output:q}"


rule accounting:
    output:
        LAYOUT.params,
    log:
        LAYOUT.log("accounting"),
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=LAYOUT.config,
        settings=triggers.accounting(SETTINGS),
        code=codeversion.digest("tokencodes.model.accounting"),
    message:
        "accounting: parameters of each interface"
    shell:
        "logged {log:q} tokencodes params --config {params.config:q} --out {output:q}"
