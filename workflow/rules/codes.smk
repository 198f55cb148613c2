# The code book of each fixed interface: made once, hashed and checked before any training.
rule codes:
    input:
        spelling,
        code_files,
    output:
        codes=LAYOUT.codes("{interface}"),
        record=LAYOUT.codes_record("{interface}"),
    log:
        LAYOUT.log("codes", "{interface}"),
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=LAYOUT.config,
        tokenizer=lambda wildcards: ["--tokenizer", LAYOUT.tokenizer] if spelling(wildcards) else [],
        settings=lambda wildcards: triggers.codes(SETTINGS, wildcards.interface),
        code=lambda wildcards: triggers.codes_code(SETTINGS, wildcards.interface),
    message:
        "codes: {wildcards.interface}"
    shell:
        "logged {log:q} tokencodes codes --config {params.config:q} --interface {wildcards.interface}"
        " {params.tokenizer:q} --out {output.codes:q}"
