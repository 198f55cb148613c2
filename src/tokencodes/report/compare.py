"""Paired comparisons: their rows, which the tables of a run show too, and what `tokencodes compare A B` prints."""

import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tokencodes.analysis import pairing
from tokencodes.analysis.paired import MCNEMAR, Difference, holm
from tokencodes.analysis.pairing import Evaluation, Model
from tokencodes.analysis.seeds import means_over_seeds, over_seeds
from tokencodes.errors import UserError
from tokencodes.files import json_text
from tokencodes.report import render
from tokencodes.report.render import GAP, Record, Table

WIDTH = 112  # columns
HELD_OUT = "held_out_loss"  # the task of the row that compares losses
HELD_OUT_UNIT = "nats per token"
STATISTICS = tuple(field.name for field in fields(Difference))
COLUMNS = ("task", "shots", "label", "metric", "unit", "lower", "missing", *STATISTICS)


# ---------------------------------------------------------------------- rows


def row(
    task: str, shots: int, label: str, metric: str, statistics: Difference | None = None, *,
    unit: str = "", lower: bool = False, missing: str = "",
) -> Record:  # fmt: skip
    """One score of one task: A - B in `unit`, the fields of Difference; None in a gap, and `missing` says whose."""
    numbers = asdict(statistics) if statistics else dict.fromkeys(STATISTICS)
    return dict(zip(COLUMNS, (task, shots, label, metric, unit, lower, missing), strict=False)) | numbers


def of_task(pairs: Sequence[tuple[Evaluation, Evaluation]], metrics: Sequence[str] | None = None) -> list[Record]:
    """The rows of one task from its pairs of results, one pair per seed: of these metrics, else of all they share.

    Raises UserError if results cannot be paired.
    """
    first = pairs[0][0]
    for one, _ in pairs[1:]:
        pairing.refuse_unlike(first, one)  # the seeds among themselves; pair() compares the two of each pair
    names = metrics or dict.fromkeys(name for both in pairs for each in both for name in pairing.measures(each))
    rows = []
    for metric in names:
        key = (first.scores.task, first.scores.shots, first.scores.label, metric)
        sides = [pairing.pair(one, other, metric) for one, other in pairs]
        if None in sides:
            rows.append(row(*key, missing="not in all of the results"))
            continue
        a, b = (np.stack([getattr(side, name) for side in sides]) for name in ("a", "b"))
        rows.append(row(*key, over_seeds(a, b, sides[0].counts), unit=sides[0].unit, lower=sides[0].lower))
    return rows


def of_losses(pairs: Sequence[tuple[Model, Model]]) -> list[Record]:
    """The held-out loss at the end of training as one row; none if no model has a record of it.

    Several seeds give Student's interval and test over seeds. One seed has neither.
    """
    finals = [(pairing.training(one), pairing.training(other)) for one, other in pairs]
    every = [final for both in finals for final in both]
    if not any(every):
        return []
    missing, statistics = "", None
    if None in every:
        names = _lacking(pairs, [[final is not None for final in both] for both in finals])
        missing = f"no finished run of {names}"
    elif len({final.store_sha256 for final in every}) > 1:
        missing = "not on the same held-out windows"
    else:
        statistics = means_over_seeds(*np.array([[final.val_loss for final in both] for both in finals]).T)
    return [row(HELD_OUT, 0, "Held-out loss", "", statistics, unit=HELD_OUT_UNIT, lower=True, missing=missing)]


def of_models(a: Sequence[Model], b: Sequence[Model]) -> pd.DataFrame:
    """Every task of A and B and their losses, seed by seed.

    Raises UserError, one line per task, if results cannot be paired, and if A and B have nothing in common.
    """
    pairs = pairing.by_seed(a, b)
    files = [(pairing.files(one), pairing.files(other)) for one, other in pairs]
    rows, problems = [], []
    for task in dict.fromkeys(task for both in files for each in both for task in each):
        present = [[task in each for each in both] for both in files]
        if not np.all(present):
            rows.append(row(*task, task[0], "", missing=f"no result of {_lacking(pairs, present)}"))
            continue
        try:
            rows += of_task([(pairing.read(one[task]), pairing.read(other[task])) for one, other in files])
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("\n".join(problems))
    rows += of_losses(pairs)
    if all(each["difference"] is None for each in rows):
        raise UserError(
            f"{a[0].folder} and {b[0].folder} have no score in common; score both on the same tasks, or train both"
        )
    return corrected(rows)


def _lacking(pairs: Sequence[tuple[Model, Model]], present: Sequence[Sequence[bool]]) -> str:
    """The names of the models that lack something."""
    names = [
        model.folder.name
        for both, having in zip(pairs, present, strict=True)
        for model, has in zip(both, having, strict=True)
        if not has
    ]
    return ", ".join(dict.fromkeys(names))


def corrected(rows: Sequence[Record]) -> pd.DataFrame:
    """The rows as one family: `holm` is p corrected over all that have a test, one whose p is NaN included."""
    frame = pd.DataFrame(list(rows), columns=None if rows else COLUMNS, dtype=object)  # None, a gap, is not NaN
    tested = frame.test.map(bool).astype(bool)
    frame["holm"] = None
    frame.loc[tested, "holm"] = holm(frame.p[tested].to_numpy(float)).tolist()
    return frame


# ------------------------------------------------------------------- showing


def scorer(record: Record) -> Callable[[float | None], str]:
    """How the scores of a row are shown."""
    return render.score_format(record["unit"], record["n"] or 0)


def interval(record: Record) -> str:
    """[low, high]; a gap where the documents show no spread; NaN where a document has no finite score."""
    if record["low"] is None or (math.isnan(record["low"]) and not record["undefined"]):
        return GAP
    show = scorer(record)
    return "NaN" if math.isnan(record["low"]) else render.bounds(show(record["low"]), show(record["high"]))


def seeds_share(record: Record) -> str:
    """How much of a difference's variance another set of seeds would change: theirs, and that of both together."""
    seeds = record["from_seeds"] + record["from_both"]
    whole = seeds + record["from_documents"]
    return GAP if math.isnan(whole) or whole == 0 else f"{render.decimal(100 * seeds / whole, 0)} %"


def command(a: Path, b: Path, *, as_json: bool) -> None:
    """Print every comparison that the two paths ask for. Raises UserError if they hold nothing that can be paired."""
    compared = [(mine, other, of_models(mine, other)) for mine, other in sides(a, b)]
    if as_json:
        print(json_text([_plain(*each) for each in compared]), end="")
        return
    print("\n".join(text(*each) for each in compared), end="")


def sides(a: Path, b: Path) -> list[tuple[list[Model], list[Model]]]:
    """Which models are compared: one with one or with each of several, else those of the same name."""
    ours, others = pairing.find(a), pairing.find(b)
    if len(ours) == 1:
        (one,) = ours.values()
        return [(one, other) for other in others.values() if other != one] or [(one, one)]
    if len(others) == 1:
        (one,) = others.values()
        return [(each, one) for each in ours.values() if each != one]
    common = [name for name in ours if name in others]
    if not common:
        raise UserError(
            f"{a} holds {', '.join(ours)}, {b} {', '.join(others)}: no model has the same name in both; name one model "
            f"of each, as {ours[next(iter(ours))][0].folder}"
        )
    return [(ours[name], others[name]) for name in common]


def name(models: list[Model]) -> str:
    """gf2-s0, or gf2 (3 seeds)."""
    return models[0].folder.resolve().name if len(models) == 1 else f"{models[0].name} ({len(models)} seeds)"


def text(a: list[Model], b: list[Model], frame: pd.DataFrame) -> str:
    """The table of one comparison for a terminal."""
    several = len(a) > 1

    def numbers(show: Callable[[Record], str]) -> Callable[[Record], str]:
        return lambda record: GAP if record["difference"] is None else show(record)

    def discordant(record: Record) -> str:
        return GAP if record["only_a"] is None else f"{record['only_a']} : {record['only_b']}"

    table = Table.of(
        frame.to_dict("records"),
        {
            "Task, metric": _title,
            "n": numbers(lambda record: render.count(record["n"] or None)),
            "A": numbers(lambda record: scorer(record)(record["a"])),
            "B": numbers(lambda record: scorer(record)(record["b"])),
            "A − B": numbers(lambda record: render.plus(scorer(record)(record["difference"]))),
            "95 % interval": interval,
            "from seeds" if several else "only A : B": numbers(seeds_share if several else discordant),
            "p": lambda record: render.probability(record["p"]) if record["test"] else GAP,
            "Holm": lambda record: render.probability(record["holm"]) if record["test"] else GAP,
        },
        name="compare",
        caption=f"A: {name(a)}, {a[0].folder}. B: {name(b)}, {b[0].folder}.",
    )
    notes = "\n".join(textwrap.wrap(" ".join(_notes(frame, several=several)), WIDTH))
    return f"{render.to_text(table, WIDTH)}\n{notes}\n"


def _title(record: Record) -> str:
    shots = f"{record['shots']} shots" if record["shots"] else ""
    title = ", ".join(part for part in (record["label"], shots, record["metric"]) if part)
    if record["difference"] is None:
        return f"{title} ({record['missing']})"
    return f"{title} ({record['unit']})" if record["lower"] else title


def _notes(frame: pd.DataFrame, *, several: bool) -> list[str]:
    compared = frame[frame.difference.map(lambda value: value is not None)]
    tests = {test for test in compared.test if test}
    notes = ["Accuracies in percent, their differences in points."]
    if not several:
        notes = ["Accuracies in percent, their differences in points; only A : B, documents that only one has right."]
    if compared.lower.any():
        notes.append("For nats and bits, less is better.")
    if (compared.task == HELD_OUT).any():
        how = "interval and p are Student's over seeds." if several else "one run of each has no interval."
        notes.append(f"Held-out loss: at the end of training, on the same windows; {how}")
    if several:
        notes.append(
            "Interval and p count seeds and documents; from seeds: the share of the difference's variance that another "
            "set of seeds would change."
        )
    else:
        named = [f"p: {MCNEMAR} (accuracies)"] if MCNEMAR in tests else []
        named += ["sign flips (others)"] if tests - {MCNEMAR} else []
        notes.append(
            f"Interval: bootstrap over documents. {', '.join(named)}. One run of each: another seed is not counted."
        )
    return [*notes, f"Holm: over the {len(frame[frame.test.map(bool)])} rows of this table that have a test."]


def _plain(a: list[Model], b: list[Model], frame: pd.DataFrame) -> dict[str, Any]:
    """For JSON: null is what could not be computed; a row without a result has `missing`, and no statistics."""
    records = [
        {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in record.items()
            if record["difference"] is not None or key not in STATISTICS
        }
        for record in frame.to_dict("records")
    ]
    return {"a": [str(model.folder) for model in a], "b": [str(model.folder) for model in b], "rows": records}
