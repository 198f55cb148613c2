"""This run beside the paper: whether the two are comparable, how far scores differ, and what a test of that needs.

Against the paper: z is the difference by the root of the summed squares of both standard errors and, with several
seeds, of the seeds' spread, since the paper's is one run. It agrees up to AGREES, where Student's t takes the place of
that factor for the seeds' part; one run shows no spread of seeds, and its verdict says so. It is not comparable if
size, budget or data differ, and not tested where the paper's figure is approximate, or no standard error is known.
Where the paper gives none, an accuracy's is that of its share of our documents.
"""

import math
from collections.abc import Callable

import numpy as np

from tokencodes.analysis import seeds
from tokencodes.analysis.paired import documents_needed
from tokencodes.analysis.pairing import FRACTION
from tokencodes.evaluate.catalogue import benchmark
from tokencodes.evaluate.spec import Task
from tokencodes.layout import task_name
from tokencodes.report import differences, render
from tokencodes.report.published import PAPER_MODEL, REFERENCE, Published, paper_count, published
from tokencodes.report.render import GAP, Record, Table
from tokencodes.report.results import Results

BUDGET = 0.9  # of the paper's training tokens, or as much above them, counts as its budget
TOY = 0.1  # a run below this share of the paper's parameters or tokens is a toy
AGREES = 1.96  # standard errors; beyond, chance alone leads in 5 %
CORPUS, SUBSET = "HuggingFaceTB/smollm-corpus", "fineweb-edu-dedup/"


# -------------------------------------------------------------- comparability


def unlike(results: Results) -> list[str]:
    """What keeps this run from being compared with the paper's figures: its `size`, its `budget`; [] if nothing."""
    counts = dict(zip(results.params.interface, results.params.trainable, strict=True))
    pairs = [
        (counts.get(interface), paper_count(model, "trainable"))
        for interface in results.settings.interfaces
        if (model := results.paper_model(interface))
    ]
    same_size = bool(pairs) and all(ours is not None and ours == theirs for ours, theirs in pairs)
    share = tokens(results) / size()[1]
    return [*([] if same_size else ["size"]), *([] if BUDGET <= share <= 1 / BUDGET else ["budget"])]


def tokens(results: Results) -> int:
    """Training tokens of this run."""
    return results.settings.train.max_steps * results.settings.train.tokens_per_step


def size() -> tuple[int, int]:
    """Trainable parameters and training tokens of the paper."""
    counts = paper_count(PAPER_MODEL, "trainable"), paper_count(PAPER_MODEL, "target_tokens", task="training")
    assert None not in counts, f"{REFERENCE} has the paper's size"
    return counts


def is_toy(results: Results) -> bool:
    """Whether the run has less than TOY of the paper's parameters or of its training tokens."""
    parameters, budget = size()
    small = len(results.params) and max(results.params.trainable) < TOY * parameters
    return bool(small or tokens(results) < TOY * budget)


def obstacles(results: Results, task: Task) -> list[str]:
    """Why a score is not comparable with the paper's figure: `size`, `budget`, `data`; [] if it is."""
    source = results.settings.data.source
    same_corpus = source.kind == "hub" and source.repo == CORPUS and source.pattern.startswith(SUBSET)
    whole = task.limit is None and results.label(task) == benchmark(task.name).name
    return unlike(results) + ([] if same_corpus and whole else ["data"])


def comparable(results: Results) -> tuple[int, int]:
    """How many of the benchmarks that the paper has are comparable with its figures, and how many it has."""
    known = {(task, shots) for task, _, shots, _ in published()}
    tasks = [task for task in results.settings.evaluate.tasks if (task.name, task.shots) in known]
    return sum(not obstacles(results, task) for task in tasks), len(tasks)


def figure(results: Results, task: Task, metric: str, interface: str) -> Published | None:
    """The paper's figure for an interface; None if it gives none."""
    return published().get((task.name, metric, task.shots, results.paper_model(interface) or ""))


# ---------------------------------------------------------- against the paper

FIELDS = (
    *("task", "shots", "metric", "interface", "paper: model", "seeds", "value", "stderr", "seed_sd", "n"),
    *("paper: value", "paper: stderr", "difference", "z", "verdict", "files"),
)


def against(results: Results) -> Table:
    """Ours beside the paper's: difference, z, and a verdict by the stated rule."""
    rows = [
        _compared(results, task, metric, interface)
        for task in results.settings.evaluate.tasks
        for metric in results.metrics(task)
        if any(key[:3] == (task.name, metric, task.shots) for key in published())
        for interface in results.settings.interfaces
        if results.paper_model(interface) is not None
    ]

    def number(key: str, digits: int | None = None) -> Callable[[Record], str]:
        def show(row: Record) -> str:
            few = row["n"] is None or row["n"] < render.MANY_DOCUMENTS
            return "" if row[key] is None else render.decimal(row[key], digits or (1 if few else 2))

        return show

    return Table.of(
        rows,
        {
            "Benchmark, metric": lambda row: f"{row['label']}, {row['metric']}",
            "Interface": lambda row: row["interface"],
            "Ours": lambda row: number("value")(row) or GAP,
            "Published": lambda row: row["published"],
            "Difference": lambda row: render.plus(number("difference")(row)),
            "z": number("z", 1),
            "Verdict": lambda row: row["verdict"] or "",
        },
        FIELDS,
        source=lambda row: f"eval/*/{task_name(row['task'], row['shots'])}.json" if row["n"] else "",
        gaps=True,
        name="paper",
        caption="Against the paper: ours, published, difference, z and verdict; accuracies in percent.",
        notes=(
            f"Agrees: |z| is at most {AGREES}, more with few seeds (Student's t for their part). One run: the spread "
            "of seeds is not known, and the difference may be theirs. Not comparable: another size, budget or data "
            "than the paper's, named. Not tested: the paper's figure is approximate, or has no standard error. z "
            "counts both standard errors and, with several seeds, their spread, since the paper has one run; where it "
            "gives no standard error, that of its share of our documents. What it does not give is empty. "
            f"The paper's figures: {REFERENCE}.",
        ),
    )


def _compared(results: Results, task: Task, metric: str, interface: str) -> Record:
    theirs, scores = figure(results, task, metric, interface), results.score(task, metric, interface)
    percent = render.percent(metric)
    values = [percent * float(value) for value in scores.value]
    row = dict.fromkeys(FIELDS) | {"task": task.name, "shots": task.shots, "metric": metric, "interface": interface}
    row |= {"label": results.label(task), "published": theirs.shown if theirs else ""}
    row |= {"paper: model": results.paper_model(interface), "seeds": len(values)}
    row |= {"paper: value": theirs and theirs.value, "paper: stderr": theirs and theirs.stderr}
    row["files"] = ", ".join(scores.path) or None
    if not values:
        return row
    row |= {"value": render.mean(values), "stderr": percent * float(scores.stderr.iloc[0]), "n": int(scores.n.iloc[0])}
    row["seed_sd"] = float(np.std(values, ddof=1)) if len(values) > 1 else None
    if theirs is None:
        return row
    if not theirs.approximate:
        row["difference"] = row["value"] - theirs.value
    if why := obstacles(results, task):
        return row | {"verdict": f"not comparable: {', '.join(why)}"}
    return row | _verdict(row, theirs)


def _verdict(row: Record, theirs: Published) -> Record:
    """z and verdict, for a run that is comparable."""
    if theirs.approximate:
        return {"verdict": "not tested: approximate"}
    n, stderr = row["n"], theirs.stderr
    if stderr is None and theirs.unit == "percent" and n > 1:
        stderr = math.sqrt(theirs.value * (100 - theirs.value) / (n - 1))
    if stderr is None or not (stderr > 0 and row["stderr"] > 0) or math.isnan(row["value"]):  # 0 measures no distance
        return {"verdict": "not tested: no standard error"}
    several = row["seed_sd"] is not None
    of_seeds = row["seed_sd"] * math.sqrt(1 + 1 / row["seeds"]) if several else 0.0
    limit = AGREES * math.hypot(row["stderr"], stderr)
    if several:
        limit = math.hypot(limit, seeds.student(row["seeds"] - 1) * of_seeds)
    verdict = "agrees" if abs(row["difference"]) <= limit else "differs"
    z = row["difference"] / math.hypot(row["stderr"], stderr, of_seeds)
    return {"z": z, "verdict": verdict if several else f"{verdict} (one run)"}


# --------------------------------------------------------------------- power


def power(results: Results) -> Table:
    """What finds a difference of the paper's size: documents with one seed, seeds with these documents."""
    rows = [_needed(row, gap) for row in differences.paired_rows(results) if (gap := _gap(results, row)) is not None]

    def documents(row: Record) -> str:
        needed = render.count(row["documents_needed"])
        return f"≥ {needed}" if row["documents_needed"] and row["documents_needed_is_least"] else needed

    def share(row: Record) -> str:
        known = row["discordant_share"] is not None and not math.isnan(row["discordant_share"])
        return f"{render.decimal(100 * row['discordant_share'], 1)} %" if known else GAP

    return Table.of(
        rows,
        {
            "Benchmark, metric": lambda row: f"{row['label']}, {row['metric']}",
            "Interface": lambda row: row["interface"],
            "Paper's difference": lambda row: render.plus(render.decimal(row["paper: difference"], 2)),
            "Documents here": lambda row: render.count(row["n"]),
            "Discordant": share,
            "Documents needed": documents,
            "Seeds needed": lambda row: "none" if row["hidden"] else render.count(row["seeds_needed"]),
        },
        (
            *("task", "shots", "metric", "interface", "paper: difference", "n", "discordant_share"),
            *("documents_needed", "documents_needed_is_least", "seeds_needed"),
        ),
        source=differences.documents,
        gaps=True,
        name="power",
        caption="Power: what it takes to find a difference of the paper's size, at 5 % with 80 % power.",
        notes=(
            "Documents needed: by McNemar's test of one pair of runs, with the share of discordant documents seen "
            "here; at least so many (≥) where fewer were seen than the difference itself needs. It says nothing of "
            "other seeds. Seeds needed: with the documents scored and the variances seen "
            f"here; none: the documents alone hide it. {GAP}: not known from this run.",
        ),
    )


def _needed(row: Record, gap: float) -> Record:
    """A row of differences.frame with the documents and seeds that find the paper's difference, `gap` in points."""
    row = row | {"paper: difference": gap, "documents_needed": None, "seeds_needed": None, "hidden": False}
    row["documents_needed_is_least"] = False
    share = row["discordant_share"]
    if share is not None and not math.isnan(share):
        row["documents_needed"] = documents_needed(share, gap / 100) if gap else None
        row["documents_needed_is_least"] = share < abs(gap) / 100
    if row["difference"] is not None:
        row["seeds_needed"] = seeds.seeds_needed(differences.statistics(row), gap / 100)
        measured = sum(row[part] for part in ("from_seeds", "from_documents", "from_both")) > 0
        row["hidden"] = measured and not row["seeds_needed"]
    return row


def _gap(results: Results, row: Record) -> float | None:
    """The paper's difference between two of its models, in points; None if it does not give both exactly."""
    models = [results.paper_model(row[side]) or "" for side in ("interface", "against")]
    figures = [published().get((row["task"], row["metric"], row["shots"], model)) for model in models]
    if row["unit"] not in (FRACTION, "") or any(f is None or f.unit != "percent" or f.approximate for f in figures):
        return None
    return figures[0].value - figures[1].value
