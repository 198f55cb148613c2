# The whole experiment: config -> corpus -> store -> models -> validation -> benchmarks -> tables, figures, report.
#   snakemake --profile workflow/profiles/local                                     config/quickstart.yaml
#   snakemake --profile workflow/profiles/local --configfile config/paper.yaml      the paper's experiment
#   snakemake --profile slurm --configfile config/paper.yaml                        on a cluster
from snakemake.utils import min_version

min_version("9.27")


include: "workflow/rules/hooks.smk"


if not config_files():  # Snakemake would merge a second file into this one, key by key

    configfile: "config/quickstart.yaml"


report: "workflow/report/workflow.rst"


# For `--sdm apptainer`.
container: "envs/tokencodes.sif"


include: "workflow/rules/common.smk"
include: "workflow/rules/config.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/codes.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/validate.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/report.smk"


# Every output is a target, so that a deleted file is made again. `snakemake report` makes the page alone.
rule all:
    default_target: True
    input:
        rules.tables.output,
        rules.figures.output,
        rules.report.output,
        LAYOUT.config,
        rules.accounting.output,
        rules.tokenizer.output,
        expand(rules.codes.output, interface=FIXED),
        RESULTS,
        IMPORTS,
        OTHERS,
        expand(rules.export.output, **TRAININGS),
        STORE,
        expand(rules.benchmarks.output, task=[task.name for task in SETTINGS.evaluate.tasks]),
    localrule: True
    message:
        "{SETTINGS.name} is complete"
