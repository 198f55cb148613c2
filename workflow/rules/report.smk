# Tables, figures and the page are drawn from stored results alone: no model, no GPU, no network.
rule tables:
    input:
        accounting=rules.accounting.output[0],
        results=RESULTS,
    output:
        report(
            expand(f"{OUT}/tables/accounting.{{kind}}", kind=["csv", "md", "tex"]),
            caption="../report/accounting.rst",
            category="Tables",
        ),
        report(
            expand(f"{OUT}/tables/results.{{kind}}", kind=["csv", "md", "tex"]),
            caption="../report/results.rst",
            category="Tables",
        ),
        report(
            expand(f"{OUT}/tables/{{name}}.{{kind}}", name=["data", "lengths"], kind=["csv", "md", "tex"]),
            caption="../report/data.rst",
            category="Tables",
        ),
        report(
            expand(f"{OUT}/tables/differences.{{kind}}", kind=["csv", "md", "tex"]),
            caption="../report/differences.rst",
            category="Tables",
        ),
        report(
            expand(f"{OUT}/tables/{{name}}.{{kind}}", name=["paper", "power"], kind=["csv", "md", "tex"]),
            caption="../report/paper.rst",
            category="Tables",
        ),
        report(
            expand(f"{OUT}/tables/{{name}}.{{kind}}", name=["losses", "training"], kind=["csv", "md", "tex"]),
            caption="../report/losses.rst",
            category="Tables",
        ),
        f"{OUT}/tables/results_by_seed.csv",
        summary=f"{OUT}/tables/summary.txt",
    log:
        f"{OUT}/logs/tables.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=CONFIG,
        results=subpath(input.accounting, parent=True),
        settings=SHOWN,
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
        report(
            expand(f"{OUT}/figures/loss.{{kind}}", kind=["png", "svg", "pdf"]),
            caption="../report/loss.rst",
            category="Figures",
        ),
        report(
            expand(f"{OUT}/figures/benchmarks.{{kind}}", kind=["png", "svg", "pdf"]),
            caption="../report/benchmarks.rst",
            category="Figures",
        ),
        report(
            expand(f"{OUT}/figures/differences.{{kind}}", kind=["png", "svg", "pdf"]),
            caption="../report/differences.rst",
            category="Figures",
        ),
        report(
            expand(f"{OUT}/figures/accounting.{{kind}}", kind=["png", "svg", "pdf"]),
            caption="../report/accounting.rst",
            category="Figures",
        ),
        report(
            expand(f"{OUT}/figures/data.{{kind}}", kind=["png", "svg", "pdf"]),
            caption="../report/data.rst",
            category="Figures",
        ),
    log:
        f"{OUT}/logs/figures.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=CONFIG,
        results=subpath(input.accounting, parent=True),
        settings=SHOWN,
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
        report(f"{OUT}/report.html", caption="../report/report.rst", category="Report"),
    log:
        f"{OUT}/logs/report.log",
    localrule: True
    conda:
        ENVIRONMENT
    params:
        config=CONFIG,
        results=subpath(input.accounting, parent=True),
        settings=SHOWN,
        code=codeversion.digest("tokencodes.report.page"),
    message:
        "report"
    shell:
        "logged {log:q} tokencodes report --config {params.config:q} --results {params.results:q} --out {output:q}"
