"""Two models, or two sets of models with the same seeds, on every task that either was scored on: one row per score."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokencodes.analysis import pairing
from tokencodes.analysis.paired import Difference, holm
from tokencodes.analysis.pairing import Evaluation, Model
from tokencodes.analysis.seeds import means_over_seeds, over_seeds
from tokencodes.errors import UserError

HELD_OUT = "held_out_loss"  # the task of the row that compares losses


@dataclass(frozen=True)
class Row:
    """One score of one task. found: A - B in `unit` (None: a gap, `missing` says whose); holm: p corrected."""

    task: str
    shots: int
    label: str
    metric: str
    unit: str
    lower: bool
    found: Difference | None
    missing: str = ""
    holm: float = float("nan")


def models(a: Sequence[Model], b: Sequence[Model]) -> list[Row]:
    """Every task of A and B, seed by seed. p-values are corrected over the rows that have a test.

    Raises UserError, one line per task, if results cannot be paired, and if A and B have no task in common.
    """
    pairs = pairing.by_seed(a, b)
    found = [(pairing.files(one), pairing.files(other)) for one, other in pairs]
    tasks = list(dict.fromkeys(key for both in found for files in both for key in files))
    rows, problems = [], []
    for task, shots in tasks:
        lacking = [
            model.folder.name
            for models_, files_ in zip(pairs, found, strict=True)
            for model, files in zip(models_, files_, strict=True)
            if (task, shots) not in files
        ]
        if lacking:
            said = f"no result of {', '.join(dict.fromkeys(lacking))}"
            rows.append(Row(task, shots, task, "", "", False, None, said))
            continue
        try:
            read = [(pairing.read(one[task, shots]), pairing.read(other[task, shots])) for one, other in found]
            rows += evaluations(read)
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("\n".join(problems))
    rows += losses(pairs)
    if all(row.found is None for row in rows):
        raise UserError(
            f"{a[0].folder} and {b[0].folder} have no score in common; score both on the same tasks, or train both"
        )
    return corrected(rows)


def losses(pairs: Sequence[tuple[Model, Model]]) -> list[Row]:
    """The held-out loss at the end of training, nats per token, as one row; none if no model has a record of it.

    Several seeds give Student's interval and test over seeds. One seed has neither.
    """
    finals = [(pairing.training(one), pairing.training(other)) for one, other in pairs]
    if not any(final for both in finals for final in both):
        return []
    gap = Row(HELD_OUT, 0, "Held-out loss", "", "nats per token", True, None)
    lacking = [
        model.folder.name
        for models_, both in zip(pairs, finals, strict=True)
        for model, final in zip(models_, both, strict=True)
        if final is None
    ]
    if lacking:
        return [replace(gap, missing=f"no finished run of {', '.join(dict.fromkeys(lacking))}")]
    if len({final.store_sha256 for both in finals for final in both}) > 1:
        return [replace(gap, missing="not on the same held-out windows")]
    a, b = np.array([[final.val_loss for final in both] for both in finals]).T
    return [replace(gap, found=means_over_seeds(a, b))]


def evaluations(read: Sequence[tuple[Evaluation, Evaluation]], metrics: Sequence[str] | None = None) -> list[Row]:
    """The rows of one task from its pairs of results, a pair a seed: of these metrics, else of those that they have."""
    first = read[0][0]
    for one, _ in read[1:]:
        pairing.refuse_unlike(first, one)  # seeds among themselves; each pair is held against each other below
    rows = []
    for metric in metrics or dict.fromkeys(name for both in read for each in both for name in pairing.measures(each)):
        sides = [pairing.pair(one, other, metric) for one, other in read]
        if any(side is None for side in sides):
            rows.append(Row(first.task, first.shots, first.label, metric, "", False, None, "not in all of the results"))
            continue
        a, b = (np.stack([getattr(side, name) for side in sides]) for name in ("a", "b"))
        rows.append(
            Row(
                task=first.task,
                shots=first.shots,
                label=first.label,
                metric=metric,
                unit=sides[0].unit,
                lower=sides[0].lower,
                found=over_seeds(a, b, sides[0].counts),
            )
        )
    return rows


def corrected(rows: Sequence[Row]) -> list[Row]:
    """The same rows with Holm's correction over all that have a test, one whose p is NaN included."""
    tested = [row for row in rows if row.found is not None and row.found.test]
    values = dict(zip(map(id, tested), holm(np.array([row.found.p for row in tested])), strict=True))
    return [replace(row, holm=float(values[id(row)])) if id(row) in values else row for row in rows]
