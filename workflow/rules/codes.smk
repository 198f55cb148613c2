# The code book of each fixed interface: made once, hashed and checked before any training.
FIXED = [name for name, interface in SETTINGS.interfaces.items() if is_fixed(interface)]
CODES = [LAYOUT.codes(name) for name in FIXED]


def codes_of(wildcards):
    """The code book of a model's interface; none if its input is trained."""
    return LAYOUT.codes(wildcards.interface) if wildcards.interface in FIXED else []


def codes_option(wildcards):
    """It as an option of a stage."""
    return ["--codes", codes_of(wildcards)] if codes_of(wildcards) else []


def spelling(wildcards):
    """The tokenizer, for codes that are made from the tokens' bytes."""
    return rules.tokenizer.output if SETTINGS.interfaces[wildcards.interface].codebook.spelled else []


rule codes:
    input:
        spelling,
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
