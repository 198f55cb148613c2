"""Paired differences between each interface and the baseline (`display.baseline`), and tables of them and of losses.

Models are paired on the same documents, seed by seed. Rules. Shown: a corrected p of at most SIGNIFICANCE. On par: two
one-sided tests find the difference within MARGIN, which is below the least difference to Learned that the paper reports
for Binary16 (PIQA, 2.18 points); a large p of the paired test is no such evidence.
"""

import functools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pandas as pd

from tokencodes.analysis import curves, seeds
from tokencodes.analysis.paired import SIGNIFICANCE, Difference
from tokencodes.analysis.pairing import FRACTION, Evaluation
from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import benchmark
from tokencodes.evaluate.spec import Task
from tokencodes.layout import model_name, task_name
from tokencodes.report import compare, render
from tokencodes.report.render import GAP, Record, Table
from tokencodes.report.results import Results

ON_PAR = ("openbookqa",)  # the paper calls its models on par there
MARGIN = 0.02  # of an accuracy, on either side
COLUMNS = (
    *("task", "shots", "label", "metric", "interface", "against", "seeds", "unit", "n", "a", "b", "difference"),
    *("low", "high", "p", "test", "only_a", "only_b", "undefined", "p_holm", "discordant_share"),
    *("from_seeds", "from_documents", "from_both", "equivalence_margin", "equivalence_p", "missing"),
)  # of differences.csv
LOSS_COLUMNS = ("interface", "seeds", "val_loss", "seed_sd", "against", "gap", "low", "high", "tokens_ratio")


@functools.lru_cache(maxsize=1)
def frame(results: Results) -> pd.DataFrame:
    """One row per task and interface, tasks first: the columns of compare.row, and COLUMNS.

    Holm's correction (`p_holm`) is over all rows.
    """
    baseline = results.baseline()
    rows = [
        _row(results, task, interface, baseline)
        for task in results.settings.evaluate.tasks
        for interface in results.settings.interfaces
        if interface != baseline
    ]
    return compare.corrected(rows).rename(columns={"holm": "p_holm"})


def paired_rows(results: Results) -> list[Record]:
    """The rows of `frame` as dicts."""
    return frame(results).to_dict("records")


def _row(results: Results, task: Task, interface: str, baseline: str) -> Record:
    metric = benchmark(task.name).metric
    both = {
        seed: (results.evaluation(interface, seed, task), results.evaluation(baseline, seed, task))
        for seed in results.settings.seeds
    }
    pairs = [pair for pair in both.values() if None not in pair]
    record = compare.row(task.name, task.shots, "", metric)
    lacking = _lacking(both, interface, baseline)
    if pairs:
        try:
            (record,) = compare.of_task(pairs, [metric])
        except UserError as error:
            lacking, pairs = str(error), []
    record |= {"label": results.label(task), "interface": interface, "against": baseline, "seeds": len(pairs)}
    record |= {"missing": record["missing"] or lacking}
    record |= dict.fromkeys(("discordant_share", "equivalence_margin", "equivalence_p"))
    record["equivalence_margin"] = MARGIN if task.name in ON_PAR else None
    if record["difference"] is None:
        return record
    fraction = record["unit"] == FRACTION
    record["discordant_share"] = math.nan
    if fraction and not record["undefined"]:
        shares = [np.mean(a.documents[metric] != b.documents[metric]) for a, b in pairs]
        record["discordant_share"] = float(np.mean(shares))
    if fraction and task.name in ON_PAR:
        record["equivalence_p"] = seeds.equivalence(statistics(record), MARGIN)
    return record


def statistics(record: Record) -> Difference:
    """The statistics of a row that has a result."""
    return Difference(**{name: record[name] for name in compare.STATISTICS})


def _lacking(both: dict[int, tuple[Evaluation | None, ...]], interface: str, baseline: str) -> str:
    """The models that have no scores by document; nothing if all have them, or none."""
    lacking = [
        model_name(name, seed)
        for seed, pair in both.items()
        for name, evaluation in zip((interface, baseline), pair, strict=True)
        if evaluation is None
    ]
    return f"no scores by document of {', '.join(lacking)}" if 0 < len(lacking) < 2 * len(both) else ""


def documents(record: Record) -> str:
    """The files of both models' scores by document."""
    return f"eval/*/{task_name(record['task'], record['shots'])}.parquet" if record["seeds"] else ""


# --------------------------------------------------------------- differences


def differences(results: Results) -> Table:
    """Each interface minus the baseline, by task: the difference, its interval, and whether it is shown."""
    n_seeds = len(results.settings.seeds)
    several = n_seeds > 1

    def numbers(show: Callable[[Record], str]) -> Callable[[Record], str]:
        return lambda record: GAP if record["difference"] is None else show(record)

    def n(record: Record) -> str:
        return render.count(record["n"]) + ("" if record["seeds"] == n_seeds else f" [{record['seeds']} of {n_seeds}]")

    columns = {
        "Benchmark, metric": _title,
        "Interface": lambda record: record["interface"],
        "n": numbers(n),
        "Difference": numbers(lambda record: render.plus(compare.scorer(record)(record["difference"]))),
        "95 % interval": compare.interval,
        "Seeds' share" if several else "Discordant": (
            numbers(compare.seeds_share) if several else lambda record: render.count(record["discordant"])
        ),
        "p": lambda record: render.probability(record["p"]),
        "p, Holm": lambda record: render.probability(record["p_holm"]),
        "Shown": numbers(worth),
    }
    over = (
        "seed by seed, over seeds and documents" if several else "over documents; one run of each, no spread of seeds"
    )
    rows = paired_rows(results)
    return Table.of(
        rows,
        columns,
        COLUMNS,
        source=documents,
        gaps=True,
        name="differences",
        caption=(
            f"Paired differences to {results.baseline()} on the same documents: accuracies in points, others "
            f"in their unit (less is better); 95 % intervals {over}."
        ),
        notes=(
            _note(several=several),
            *(_equivalence(row) for row in rows if row["task"] in ON_PAR),
            *(f"{_title(row)}, {row['interface']}: {row['missing']}." for row in rows if row["missing"]),
        ),
    )


def _title(record: Record) -> str:
    title = f"{record['label']}, {record['metric']}"
    named = record["unit"] in ("", FRACTION, record["metric"].replace("_", " "))
    return title if named else f"{title} ({record['unit']})"


def worth(record: Record) -> str:
    """Whether a difference is shown, and in which direction."""
    if math.isnan(record["p_holm"]):
        return "NaN"
    if record["p_holm"] > SIGNIFICANCE:
        return "no"
    return "worse" if (record["difference"] > 0) == record["lower"] else "better"


def _note(*, several: bool) -> str:
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
    return f"{how} Holm: corrected over all rows of this table that have a test; shown if at most {SIGNIFICANCE:.2f}."


def _equivalence(record: Record) -> str:
    """Whether an interface is on par with the baseline on a task, by two one-sided tests."""
    p, who = record["equivalence_p"], f"{record['label']}, {record['interface']} on par with {record['against']}"
    outcome = GAP
    if p is not None and not math.isnan(p):
        outcome = f"{'shown' if p <= SIGNIFICANCE else 'not shown'} (two one-sided tests, p {render.probability(p)})"
    return f"{who} within {100 * MARGIN:g} points: {outcome}."


def count_shown(results: Results) -> tuple[int, int]:
    """How many paired differences have a test with a result, and how many of them are shown."""
    p = frame(results).p_holm.dropna()
    return len(p), int((p <= SIGNIFICANCE).sum())


def sentence(results: Results) -> str:
    """All paired differences in one sentence; nothing if there is none."""
    tested, shown = count_shown(results)
    if not tested:
        return ""
    directions = Counter(
        (row["interface"], worth(row)) for row in paired_rows(results) if row["difference"] is not None
    )
    parts = [
        f"{interface} {direction} on {n}"
        for (interface, direction), n in directions.items()
        if direction in ("better", "worse")
    ]
    which = f" ({', '.join(parts)})" if parts else ""
    return (
        f"Paired with {results.baseline()} on the same documents, {shown} of {tested} differences are beyond chance "
        f"after Holm's correction{which}."
    )


# -------------------------------------------------------------------- losses


@functools.lru_cache(maxsize=1)
def loss_frame(results: Results) -> pd.DataFrame:
    """One row per interface, by its mean held-out loss, the lowest first; those without one last.

    `val_loss` is the mean over seeds, `against` the baseline; from `gap` on as in curves.Behind. None is a gap.
    """
    rows = []
    for interface in results.settings.interfaces:
        values, behind = results.losses(interface), _behind(results, interface)
        row = {"interface": interface, "val_loss": render.mean(values)}
        row |= {"seed_sd": float(np.std(values, ddof=1)) if len(values) > 1 else None}
        row |= {"against": results.baseline() if behind else None}
        row |= asdict(behind) if behind else dict.fromkeys(LOSS_COLUMNS[5:])
        rows.append(row | {"seeds": len(values)})
    rows.sort(key=lambda row: math.inf if row["val_loss"] is None else row["val_loss"])
    return pd.DataFrame(rows, dtype=object)


def losses(results: Results) -> Table:
    """How far each interface ends behind the baseline: in nats, and in tokens to the same loss."""
    baseline = results.baseline()

    def interval(row: Record) -> str:
        if row["gap"] is None or (math.isnan(row["low"]) and not math.isnan(row["gap"])):
            return GAP
        ends = (render.plus(render.decimal(row[end], 3)) for end in ("low", "high"))
        return "NaN" if math.isnan(row["gap"]) else f"[{', '.join(ends)}]"

    def ratio(row: Record) -> str:
        known = row["tokens_ratio"] is not None and not math.isnan(row["tokens_ratio"])
        return render.decimal(row["tokens_ratio"], 2) if known else GAP

    return Table.of(
        loss_frame(results).to_dict("records"),
        {
            "Interface": lambda row: row["interface"],
            "Seeds": lambda row: render.count(row["seeds"]),
            "Held-out loss": lambda row: render.decimal(row["val_loss"], 3),
            "SD over seeds": lambda row: render.decimal(row["seed_sd"], 3),
            "Behind, nats": lambda row: render.plus(render.decimal(row["gap"], 3)),
            "95 % interval": interval,
            "Tokens, ratio": ratio,
        },
        LOSS_COLUMNS,
        source=lambda row: "runs/*/final.json, runs/*/metrics.jsonl" if row["seeds"] else "",
        name="losses",
        caption=f"Held-out loss at the end, nats per token, lowest first, and how far behind {baseline} it is.",
        notes=(
            "Behind: loss minus that of the baseline, mean over the seeds that both have; interval: Student's, "
            "over seeds. Tokens, ratio: tokens that the interface took to its last loss, by those that "
            f"{baseline} took to the same loss (linear between measurements of the mean "
            f"curve); {GAP} if there is none.",
        ),
    )


def _behind(results: Results, interface: str) -> curves.Behind | None:
    """An interface's held-out curve against the baseline's, over the seeds that ended for both; None if none has."""
    baseline = results.baseline()
    if interface == baseline or not len(results.curves):
        return None
    chosen = [seed for seed in results.settings.seeds if {(interface, seed), (baseline, seed)} <= set(results.finals)]
    held_out = results.curves[results.curves.val_loss.notna()]
    grids = []
    for name in (interface, baseline):
        rows = held_out[(held_out.interface == name) & held_out.seed.isin(chosen)]
        grids.append(rows.pivot(index="step", columns="seed", values="val_loss").dropna())
    steps = grids[0].index.intersection(grids[1].index)
    if not chosen or not len(steps):
        return None
    a, b = (grid.loc[steps, chosen].to_numpy().T for grid in grids)
    return curves.behind(steps.to_numpy() * float(results.settings.train.tokens_per_step), a, b)
