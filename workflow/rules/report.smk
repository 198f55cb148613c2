# Tables, figures and the page are drawn from stored results alone: no model, no GPU, no network.
# By caption: the tables that share it.
TABLES = dict(
    accounting=["accounting"],
    results=["results"],
    data=["data", "lengths"],
    differences=["differences"],
    paper=["paper", "power"],
    losses=["losses", "training"],
)
FIGURES = ["loss", "benchmarks", "differences", "accounting", "data"]


rule tables:
    input:
        accounting=rules.accounting.output[0],
        results=RESULTS,
    output:
        *[
            report(
                [f"{LAYOUT.tables}/{name}.{ending}" for name in names for ending in ("csv", "md", "tex")],
                caption=f"../report/{caption}.rst",
                category="Tables",
            )
            for caption, names in TABLES.items()
        ],
        f"{LAYOUT.tables}/results_by_seed.csv",
        summary=f"{LAYOUT.tables}/summary.txt",
    log:
        LAYOUT.log("tables"),
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=LAYOUT.config,
        results=subpath(input.accounting, parent=True),
        settings=triggers.report(SETTINGS),
        code=codeversion.digest("tokencodes.report.tables"),
    message:
        "tables"
    shell:
        "logged {log:q} tokencodes tables --config {params.config:q} --results {params.results:q}"


rule figures:
    input:
        accounting=rules.accounting.output[0],
        results=RESULTS,
    output:
        *[
            report(
                [f"{LAYOUT.figures}/{name}.{ending}" for ending in ("png", "svg", "pdf")],
                caption=f"../report/{name}.rst",
                category="Figures",
            )
            for name in FIGURES
        ],
    log:
        LAYOUT.log("figures"),
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=LAYOUT.config,
        results=subpath(input.accounting, parent=True),
        settings=triggers.report(SETTINGS),
        code=codeversion.digest("tokencodes.report.figures"),
    message:
        "figures"
    shell:
        "logged {log:q} tokencodes figures --config {params.config:q} --results {params.results:q}"


rule report:
    input:
        accounting=rules.accounting.output[0],
        results=RESULTS,
        tables=rules.tables.output,
        figures=rules.figures.output,
    output:
        report(LAYOUT.report, caption="../report/report.rst", category="Report"),
    log:
        LAYOUT.log("report"),
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=LAYOUT.config,
        results=subpath(input.accounting, parent=True),
        settings=triggers.report(SETTINGS),
        code=codeversion.digest("tokencodes.report.page"),
    message:
        "report"
    shell:
        "logged {log:q} tokencodes report --config {params.config:q} --results {params.results:q} --out {output:q}"
