"""What the interfaces differ by: tables of paired differences, of losses, of the paper's figures, and of power.

Each interface is compared with the baseline (`display.baseline`), on the same documents, seed by seed. Rules. Shown:
a corrected p of at most SIGNIFICANCE. On par: two one-sided tests find the difference within MARGIN, which is below the
least difference to Learned that the paper reports for Binary16 (PIQA, 2.18 points); a large p of the paired test is no
such evidence. Against the paper: z is the difference by the root of the summed squares of both standard errors and,
with several seeds, of the seeds' spread, since the paper's is one run. It agrees up to AGREES, where Student's t takes
the place of that factor for the seeds' part; one run shows no spread of seeds, and its verdict says so. It is not
comparable if size, budget or data are others, and not tested where the paper has a figure only about, or no standard
error can be had. Where the paper gives none, an accuracy's is that of its share of our documents.
"""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from tokencodes.analysis import compare, curves, seeds
from tokencodes.analysis.compare import Row
from tokencodes.analysis.curves import Behind
from tokencodes.analysis.paired import SIGNIFICANCE, documents_needed
from tokencodes.analysis.pairing import FRACTION, Evaluation
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import benchmark
from tokencodes.evaluate.spec import Task
from tokencodes.layout import model_name
from tokencodes.report import compare as shown
from tokencodes.report import render
from tokencodes.report.render import GAP, Table
from tokencodes.report.results import REFERENCE, Published, Results, published

ON_PAR = ("openbookqa",)  # of which the paper says so
MARGIN = 0.02  # of an accuracy, on either side
AGREES = 1.96  # standard errors; beyond, chance alone leads in 5 %
APPROXIMATE = "≈"  # before a figure that the paper gives only about
PAPER_CORPUS, PAPER_SUBSET = "HuggingFaceTB/smollm-corpus", "fineweb-edu-dedup/"


@dataclass(frozen=True)
class Compared:
    """One interface against the baseline on one task: seeds that both have; the share of discordant documents."""

    task: Task
    interface: str
    metric: str
    seeds: tuple[int, ...]
    row: Row
    discordant: float


@functools.lru_cache(maxsize=1)
def against_baseline(results: Results) -> list[Compared]:
    """Every interface on every task, tasks first; Holm's correction is over all of them, the rows of one table."""
    baseline = results.baseline()
    every = [
        _compared(results, task, interface, baseline)
        for task in results.settings.evaluate.tasks
        for interface in results.settings.interfaces
        if interface != baseline
    ]
    rows = compare.corrected([each.row for each in every])
    return [replace(each, row=row) for each, row in zip(every, rows, strict=True)]


def frame(results: Results) -> pd.DataFrame:
    """The paired differences to the baseline: one row per task and interface, with the columns of differences.csv."""
    return pd.DataFrame([_record(each, results.baseline()) for each in against_baseline(results)])


def _compared(results: Results, task: Task, interface: str, baseline: str) -> Compared:
    metric = benchmark(task.name).metric
    both = {
        seed: (results.evaluation(interface, seed, task), results.evaluation(baseline, seed, task))
        for seed in results.settings.seeds
    }
    pairs = {seed: pair for seed, pair in both.items() if None not in pair}
    gap = Row(task.name, task.shots, results.label(task), metric, "", False, None, _lacking(both, interface, baseline))
    if not pairs:
        return Compared(task, interface, metric, (), gap, math.nan)
    try:
        (row,) = compare.evaluations(list(pairs.values()), [metric])
    except UserError as error:
        return Compared(task, interface, metric, (), replace(gap, missing=str(error)), math.nan)
    row = replace(row, missing=row.missing or gap.missing)
    discordant = math.nan
    if row.found is not None and row.unit == FRACTION and not row.found.undefined:
        discordant = float(np.mean([np.mean(a.documents[metric] != b.documents[metric]) for a, b in pairs.values()]))
    return Compared(task, interface, metric, tuple(pairs), row, discordant)


def _lacking(both: dict[int, tuple[Evaluation | None, ...]], interface: str, baseline: str) -> str:
    """Whose scores by document are not there; nothing if all are, or none."""
    lacking = [
        model_name(name, seed)
        for seed, pair in both.items()
        for name, found in zip((interface, baseline), pair, strict=True)
        if found is None
    ]
    return f"no scores by document of {', '.join(lacking)}" if 0 < len(lacking) < 2 * len(both) else ""


# --------------------------------------------------------------- differences


def differences(results: Results) -> Table:
    """Each interface minus the baseline, by task: the difference, its interval, and what it is worth."""
    baseline, several = results.baseline(), len(results.settings.seeds) > 1
    rows, records, sources, refused = [], [], [], []
    for each in against_baseline(results):
        found, row = each.row.found, each.row
        named = row.unit in ("", FRACTION, each.metric.replace("_per_", " a "))
        title = f"{results.label(each.task)}, {each.metric}{'' if named else f' ({row.unit})'}"
        if row.missing:
            refused.append(f"{title}, {each.interface}: {row.missing}.")
        cells = (GAP,) * 7
        if found is not None:
            show = shown.shower(row)
            part = shown.share(found) if several else render.count(found.discordant)
            whole = len(each.seeds) == len(results.settings.seeds)
            cells = (
                render.count(found.n) + ("" if whole else f" [{len(each.seeds)} of {len(results.settings.seeds)}]"),
                render.plus(show(found.difference)),
                shown.interval(row),
                part,
                render.probability(found.p),
                render.probability(row.holm),
                _worth(row),
            )
        rows.append((title, each.interface, *cells))
        records.append(_record(each, baseline))
        sources.append(_documents(each))
    beside = "Seeds' share" if several else "Discordant"
    over = (
        "seed by seed, over seeds and documents" if several else "over documents; one run of each, no spread of seeds"
    )
    return Table(
        name="differences",
        caption=(
            f"Paired differences to {baseline} on the same documents: accuracies in points, others "
            f"in their unit (less is better); 95 % intervals {over}."
        ),
        header=("Benchmark, metric", "Interface", "n", "Difference", "95 % interval", beside, "p", "p, Holm", "Shown"),
        rows=tuple(rows) or ((GAP,) * 9,),
        records=tuple(records),
        notes=tuple(_difference_notes(results, several=several)) + tuple(refused),
        sources=tuple(sources) or ("",),
    )


def _documents(each: Compared) -> str:
    """The files of both models' scores by document."""
    return f"eval/*/{each.task.name}-{each.task.shots}shot.parquet" if each.seeds else ""


def _worth(row: Row) -> str:
    if row.found is None or math.isnan(row.holm):
        return "NaN"
    if row.holm > SIGNIFICANCE:
        return "no"
    return "worse" if (row.found.difference > 0) == row.lower else "better"


def _difference_notes(results: Results, *, several: bool) -> list[str]:
    if several:
        how = (
            "p: where the interval touches zero. Seeds' share: of the difference's variance, the part that another set "
            "of seeds would change; other documents alone would change the rest. Of one pair of models alone, interval "
            "and p are over documents, and seeds have no share."
        )
    else:
        how = (
            "p: McNemar's exact test for accuracies, sign flips of documents for others. Discordant: documents that "
            "one of the two alone has right."
        )
    notes = [
        f"{how} Holm: corrected over all rows of this table that have a test; shown if at most {SIGNIFICANCE:.2f}."
    ]
    notes += [equivalence_sentence(results, each) for each in against_baseline(results) if each.task.name in ON_PAR]
    return notes


def equivalence_sentence(results: Results, each: Compared) -> str:
    """Whether an interface is on par with the baseline on a task, by two one-sided tests."""
    p = _equivalence(each)
    start = (
        f"{results.label(each.task)}, {each.interface} on par with {results.baseline()} within {100 * MARGIN:g} points:"
    )
    if p is None or math.isnan(p):
        return f"{start} {GAP}."
    return f"{start} {'shown' if p <= SIGNIFICANCE else 'not shown'} (two one-sided tests, p {render.probability(p)})."


def _equivalence(each: Compared) -> float | None:
    found = each.row.found
    return None if found is None or each.row.unit != FRACTION else seeds.equivalence(found, MARGIN)


def _record(each: Compared, baseline: str) -> dict[str, Any]:
    found, row = each.row.found, each.row
    record = {"task": each.task.name, "shots": each.task.shots, "label": row.label, "metric": each.metric}
    record |= {"interface": each.interface, "against": baseline, "seeds": len(each.seeds), "unit": row.unit or None}
    names = ("n", "a", "b", "difference", "low", "high", "p", "test", "only_a", "only_b", "undefined")
    record |= {name: getattr(found, name) if found else None for name in names}
    record |= {"p_holm": row.holm if found else None, "discordant_share": each.discordant if found else None}
    record |= {name: getattr(found, name) if found else None for name in ("from_seeds", "from_documents", "from_both")}
    on_par = each.task.name in ON_PAR
    record |= {
        "equivalence_margin": MARGIN if on_par else None,
        "equivalence_p": _equivalence(each) if on_par else None,
    }
    return record | {"missing": row.missing or None}


def count_shown(results: Results) -> tuple[int, int]:
    """How many paired differences have a test, and how many of them are shown."""
    tested = [each.row for each in against_baseline(results) if each.row.found and not math.isnan(each.row.holm)]
    return len(tested), sum(row.holm <= SIGNIFICANCE for row in tested)


# -------------------------------------------------------------------- losses


def losses(results: Results) -> Table:
    """How far each interface ends behind the baseline: in nats, and in tokens to the same loss."""
    rows, records, sources = [], [], []
    baseline = results.baseline()
    for interface in ranked(results):
        found = behind(results, interface)
        ends = results.runs[results.runs.interface == interface]
        values = [float(loss) for loss in ends.val_loss]
        mean = math.fsum(values) / len(values) if values else None
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
        interval = GAP
        if found and math.isnan(found.gap):
            interval = "NaN"
        elif found and not math.isnan(found.low):
            interval = f"[{', '.join(render.plus(render.decimal(end, 3)) for end in (found.low, found.high))}]"
        rows.append(
            (
                interface,
                render.count(len(values)),
                render.decimal(mean, 3),
                render.decimal(spread, 3),
                GAP if found is None else render.plus(render.decimal(found.gap, 3)),
                interval,
                GAP if found is None or math.isnan(found.tokens_ratio) else render.decimal(found.tokens_ratio, 2),
            )
        )
        records.append(
            {"interface": interface, "seeds": len(values), "val_loss": mean, "seed_sd": spread}
            | {"against": baseline if found else None, "gap": found.gap if found else None}
            | {name: getattr(found, name) if found else None for name in ("low", "high", "tokens_ratio")}
        )
        sources.append("runs/*/final.json, runs/*/metrics.jsonl" if values else "")
    return Table(
        name="losses",
        caption=f"Held-out loss at the end, nats per token, lowest first, and how far behind {baseline} it is.",
        header=(
            "Interface",
            "Seeds",
            "Held-out loss",
            "SD over seeds",
            "Behind, nats",
            "95 % interval",
            "Tokens, ratio",
        ),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            "Behind: loss minus that of the baseline, mean over the seeds that both have; interval: Student's, "
            "over seeds. Tokens, ratio: tokens that the interface took to its last loss, by those that "
            f"{baseline} took to the same loss (linear between measurements of the mean "
            f"curve); {GAP} if there is none.",
        ),
        sources=tuple(sources),
    )


def ranked(results: Results) -> list[str]:
    """The interfaces by their mean held-out loss, lowest first; those without one last, in the config's order."""
    mean = results.runs.groupby("interface").val_loss.agg(lambda values: values.mean(skipna=False))
    losses = {name: float(mean.get(name, math.nan)) for name in results.settings.interfaces}
    return sorted(losses, key=lambda name: math.inf if math.isnan(losses[name]) else losses[name])


def behind(results: Results, interface: str) -> Behind | None:
    """An interface's held-out curve against the baseline's, over the seeds that ended for both; None if none has."""
    baseline = results.baseline()
    if interface == baseline or not len(results.curves):
        return None
    ended = set(results.finals)
    chosen = [seed for seed in results.settings.seeds if {(interface, seed), (baseline, seed)} <= ended]
    held_out = results.curves[results.curves.val_loss.notna()]
    grids = {}
    for name in (interface, baseline):
        rows = held_out[(held_out.interface == name) & held_out.seed.isin(chosen)]
        grids[name] = rows.pivot(index="step", columns="seed", values="val_loss").dropna()
    steps = grids[interface].index.intersection(grids[baseline].index)
    if not chosen or not len(steps):
        return None
    a, b = (grids[name].loc[steps, chosen].to_numpy().T for name in (interface, baseline))
    return curves.behind(steps.to_numpy() * float(results.settings.train.tokens_per_step), a, b)


# ----------------------------------------------------------------- the paper


def against_paper(results: Results) -> Table:
    """Ours beside the paper's: difference, z, and a word by the stated rule."""
    rows, records, sources = [], [], []
    for task in results.settings.evaluate.tasks:
        for metric in results.metrics(task):
            for interface in results.settings.interfaces:
                model = results.paper_model(interface)
                if model is None or not any(key[:3] == (task.name, metric, task.shots) for key in published()):
                    continue
                figure = published().get((task.name, metric, task.shots, model))
                record = _held_against(results, task, metric, interface, figure)
                digits = 1 if record["n"] is None or record["n"] < render.MANY_DOCUMENTS else 2
                value, off, z = (
                    "" if record[key] is None else render.decimal(record[key], places)
                    for key, places in (("value", digits), ("difference", digits), ("z", 1))
                )
                printed = "" if figure is None else figure.text
                if figure is not None and figure.stderr is not None:
                    printed += f" ± {figure.stderr:.2f}"
                title = f"{results.label(task)}, {metric}"
                rows.append(
                    (title, interface, value or GAP, printed, off and render.plus(off), z, record["verdict"] or "")
                )
                records.append(record)
                sources.append(f"eval/*/{task.name}-{task.shots}shot.json" if record["n"] else "")
    return Table(
        name="paper",
        caption="Against the paper: ours, published, difference, z and verdict; accuracies in percent.",
        header=("Benchmark, metric", "Interface", "Ours", "Published", "Difference", "z", "Verdict"),
        rows=tuple(rows) or ((GAP,) * 7,),
        records=tuple(records),
        notes=(
            f"Agrees: |z| is at most {AGREES}, more with few seeds (Student's t for their part). One run: the spread "
            "of seeds is not known, and the difference may be theirs. Not comparable: another size, budget or data "
            "than the paper's, named. Not tested: the paper's figure is approximate, or has no standard error. z "
            "counts both standard errors and, with several seeds, their spread, since the paper has one run; where it "
            "gives no standard error, that of its share of our documents. What it does not give is empty. "
            f"The paper's figures: {REFERENCE}.",
        ),
        sources=tuple(sources) or ("",),
    )


def _held_against(
    results: Results, task: Task, metric: str, interface: str, figure: Published | None
) -> dict[str, Any]:
    scores = results.score(task, metric, interface)
    percent = 100.0 if render.is_proportion(metric) else 1.0
    values = [percent * float(value) for value in scores.value]
    record: dict[str, Any] = {"task": task.name, "shots": task.shots, "metric": metric, "interface": interface}
    record |= {"paper: model": results.paper_model(interface), "seeds": len(values)}
    record |= dict.fromkeys(("value", "stderr", "seed_sd", "n"))
    record |= {"paper: value": figure and figure.value, "paper: stderr": figure and figure.stderr}
    record |= {"difference": None, "z": None}
    record |= {"verdict": None, "files": ", ".join(scores.path) or None}
    if not values:
        return record
    n = int(scores.n.iloc[0])
    mean = math.fsum(values) / len(values)
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    stderr = percent * float(scores.stderr.iloc[0])
    record |= {"value": mean, "stderr": stderr, "seed_sd": sd, "n": n}
    if figure is None:
        return record
    others = obstacles(results, task)
    approximate = figure.text.startswith(APPROXIMATE)
    record |= {"difference": None if approximate else mean - figure.value}
    if others:
        return record | {"verdict": f"not comparable: {', '.join(others)}"}
    if approximate:
        return record | {"verdict": "not tested: approximate"}
    theirs = figure.stderr
    if theirs is None and figure.unit == "percent" and n > 1:
        theirs = math.sqrt(figure.value * (100 - figure.value) / (n - 1))
    if theirs is None or math.isnan(stderr) or math.isnan(mean):
        return record | {"verdict": "not tested: no standard error"}
    seeds_part = 0.0 if sd is None else sd * math.sqrt(1 + 1 / len(values))
    difference = mean - figure.value
    limit = AGREES * math.hypot(stderr, theirs)
    if sd is not None:
        limit = math.hypot(limit, seeds.student(len(values) - 1) * seeds_part)
    verdict = "agrees" if abs(difference) <= limit else "differs"
    z = difference / math.hypot(stderr, theirs, seeds_part)
    return record | {"z": z, "verdict": verdict if sd is not None else f"{verdict} (one run)"}


def obstacles(results: Results, task: Task) -> list[str]:
    """Why a score may not be set against the paper's figure: `size`, `budget`, `data`; [] if it may."""
    why = results.unlike_paper()
    settings = results.settings
    source = settings.data.source
    same_corpus = source.kind == "hub" and source.repo == PAPER_CORPUS and source.pattern.startswith(PAPER_SUBSET)
    whole = task.limit is None and results.label(task) == benchmark(task.name).name
    return why + ([] if same_corpus and whole else ["data"])


def comparable(results: Results) -> tuple[int, int]:
    """How many of the benchmarks that the paper has may be set against its figures, and how many it has."""
    known = {(task, shots) for task, _, shots, _ in published()}
    tasks = [task for task in results.settings.evaluate.tasks if (task.name, task.shots) in known]
    return sum(not obstacles(results, task) for task in tasks), len(tasks)


# --------------------------------------------------------------------- power


def power(results: Results) -> Table:
    """What finds a difference of the paper's size: documents with one seed, seeds with these documents."""
    rows, records, sources = [], [], []
    for each in against_baseline(results):
        gap = _papers_gap(results, each)
        if gap is None or each.row.unit not in (FRACTION, ""):
            continue
        found = each.row.found
        n = found.n if found else None
        documents = None
        if not math.isnan(each.discordant):
            documents = documents_needed(each.discordant, gap / 100) if gap else None
        needed = seeds.seeds_needed(found, gap / 100) if found else None
        measured = found is not None and sum((found.from_seeds, found.from_documents, found.from_both)) > 0
        least = each.discordant < abs(gap) / 100
        rows.append(
            (
                f"{results.label(each.task)}, {each.metric}",
                each.interface,
                render.plus(render.decimal(gap, 2)),
                render.count(n),
                GAP if math.isnan(each.discordant) else f"{render.decimal(100 * each.discordant, 1)} %",
                f"≥ {render.count(documents)}" if documents and least else render.count(documents),
                render.count(needed) if needed or not measured else "none",
            )
        )
        records.append(
            {"task": each.task.name, "shots": each.task.shots, "metric": each.metric, "interface": each.interface}
            | {"paper: difference": gap, "n": n, "discordant_share": each.discordant}
            | {"documents_needed": documents, "documents_needed_is_least": least, "seeds_needed": needed}
        )
        sources.append(_documents(each))
    return Table(
        name="power",
        caption="Power: what it takes to find a difference of the paper's size, at 5 % with 80 % power.",
        header=(
            *("Benchmark, metric", "Interface", "Paper's difference", "Documents here", "Discordant"),
            *("Documents needed", "Seeds needed"),
        ),
        rows=tuple(rows) or ((GAP,) * 7,),
        records=tuple(records),
        notes=(
            "Documents needed: by McNemar's test of one pair of runs, with the share of discordant documents seen "
            "here; at least so many (≥) where fewer were seen than the difference itself needs. It says nothing of "
            "other seeds. Seeds needed: with the documents scored and the variances seen "
            f"here; none: the documents alone hide it. {GAP}: not known from this run.",
        ),
        sources=tuple(sources) or ("",),
    )


def _papers_gap(results: Results, each: Compared) -> float | None:
    """The paper's difference between two of its models, in points; None if it does not give both, or only about."""
    baseline = results.baseline()
    models = [results.paper_model(name) if name else None for name in (each.interface, baseline)]
    figures = [published().get((each.task.name, each.metric, each.task.shots, model or "")) for model in models]
    if any(figure is None or figure.unit != "percent" or figure.text.startswith(APPROXIMATE) for figure in figures):
        return None
    return figures[0].value - figures[1].value


def sentence(results: Results) -> str:
    """What the paired differences of all interfaces come to, in one clause; nothing if there is none."""
    tested, beyond = count_shown(results)
    if not tested:
        return ""
    ways: dict[tuple[str, str], int] = {}
    for each in against_baseline(results):
        if (way := _worth(each.row)) in ("better", "worse"):
            ways[each.interface, way] = ways.get((each.interface, way), 0) + 1
    told = ", ".join(f"{interface} {way} on {n}" for (interface, way), n in ways.items())
    return (
        f"Paired with {results.baseline()} on the same documents, {beyond} of {tested} differences are beyond chance "
        f"after Holm's correction{f' ({told})' if told else ''}."
    )
