"""What `tokencodes compare A B` prints: the paired table of two models, as text or JSON."""

import math
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokencodes.analysis import compare, pairing
from tokencodes.analysis.compare import Row
from tokencodes.analysis.paired import MCNEMAR
from tokencodes.analysis.pairing import FRACTION, Model
from tokencodes.errors import UserError
from tokencodes.files import json_text
from tokencodes.report import render
from tokencodes.report.render import GAP, Table

WIDTH = 112  # columns


def command(a: Path, b: Path, *, as_json: bool) -> None:
    """Print every comparison that the two paths ask for. Raises UserError if they hold nothing that can be paired."""
    compared = [(mine, other, compare.models(mine, other)) for mine, other in sides(a, b)]
    if as_json:
        print(json_text([_record(*each) for each in compared]), end="")
        return
    print("\n".join(text(*each) for each in compared), end="")


def sides(a: Path, b: Path) -> list[tuple[list[Model], list[Model]]]:
    """Which models are held against which: one against one or against each of several, else those of the same name."""
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


def text(a: list[Model], b: list[Model], rows: list[Row]) -> str:
    """The table of one comparison for a terminal."""
    several = len(a) > 1
    table = Table(
        name="compare",
        caption=f"A: {name(a)}, {a[0].folder}. B: {name(b)}, {b[0].folder}.",
        header=(
            *("Task, metric", "n", "A", "B", "A − B", "95 % interval"),
            *(("from seeds",) if several else ("only A : B",)),
            *("p", "Holm"),
        ),
        rows=tuple(_cells(row, several=several) for row in rows),
        records=(),
    )
    return f"{render.to_text(table, WIDTH)}\n{_notes(rows, several=several)}\n"


def _cells(row: Row, *, several: bool) -> tuple[str, ...]:
    title = f"{row.label}{f', {row.shots} shots' if row.shots else ''}{f', {row.metric}' if row.metric else ''}"
    found = row.found
    if found is None:
        return (f"{title} ({row.missing})", *(GAP for _ in range(8)))
    show = shower(row)
    more = share(found) if several else GAP if found.only_a is None else f"{found.only_a} : {found.only_b}"
    return (
        f"{title} ({row.unit})" if row.lower else title,
        render.count(found.n or None),
        show(found.a),
        show(found.b),
        render.plus(show(found.difference)),
        interval(row),
        more,
        render.probability(found.p) if found.test else GAP,
        render.probability(row.holm) if found.test else GAP,
    )


def shower(row: Row) -> Any:
    """How the scores of a row are shown: accuracies in percent, likelihoods with three decimals."""
    return render.score_format(0.0, row.found.n if row.found else 0, proportion=row.unit == FRACTION)


def interval(row: Row) -> str:
    """[low, high]; a gap where the documents show no spread; NaN where a document has no finite score."""
    if row.found is None or (math.isnan(row.found.low) and not row.found.undefined):
        return GAP
    if math.isnan(row.found.low):
        return "NaN"
    show = shower(row)
    return render.bounds(show(row.found.low), show(row.found.high))


def share(found: Any) -> str:
    """How much of a difference's variance another set of seeds would change: theirs, and that of both together."""
    theirs = found.from_seeds + found.from_both
    whole = theirs + found.from_documents
    return GAP if math.isnan(whole) or whole == 0 else f"{render.decimal(100 * theirs / whole, 0)} %"


def _notes(rows: list[Row], *, several: bool) -> str:
    said = ["Accuracies in percent, their differences in points; only A : B, documents that one alone has right."]
    if several:
        said = ["Accuracies in percent, their differences in points."]
    if any(row.lower for row in rows):
        said.append("Of nats and bits less is better.")
    if any(row.task == compare.HELD_OUT and row.found for row in rows):
        said.append(
            "Held-out loss: at the end of training, on the same windows; "
            + ("interval and p are Student's over seeds." if several else "one run of each has no interval.")
        )
    if several:
        said.append(
            "Interval and p count seeds and documents; from seeds: the share of the difference's variance that another "
            "set of seeds would change."
        )
    else:
        tests = {row.found.test for row in rows if row.found and row.found.test}
        named = [f"p: {MCNEMAR} (accuracies)"] if MCNEMAR in tests else []
        named += ["sign flips (others)"] if tests - {MCNEMAR} else []
        said.append(
            f"Interval: bootstrap over documents. {', '.join(named)}. One run of each: another seed is not counted."
        )
    said.append("Holm: over all rows of this table that have a test.")
    return "\n".join(textwrap.wrap(" ".join(said), WIDTH))


def _record(a: list[Model], b: list[Model], rows: list[Row]) -> dict[str, Any]:
    """Null is what could not be computed; a row without a result has `missing`."""
    return {
        "a": [str(model.folder) for model in a],
        "b": [str(model.folder) for model in b],
        "rows": [
            {
                key: _plain(value)
                for key, value in (asdict(row) | (asdict(row.found) if row.found else {})).items()
                if key != "found"
            }
            for row in rows
        ],
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value
