"""Figures of a run from its stored results: what `tokencodes figures` writes to results/<name>/figures/: PNG, SVG, PDF.

They are drawn at print size, for a text width of 5.5 to 7 in: no type is below 7 pt unless they are made smaller. An
interface keeps its colour and its marker in all figures, by its place in the config; labels stand beside what they
name. The paper's figures enter a plot only where a run has its size, budget and data, as hollow diamonds: beside a toy
run they would invite a comparison that means nothing. The same results give the same bytes.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tokencodes.analysis.paired import SIGNIFICANCE
from tokencodes.analysis.pairing import FRACTION
from tokencodes.config import Config
from tokencodes.evaluate.spec import Task
from tokencodes.files import atomic_path
from tokencodes.report import differences as compared
from tokencodes.report import findings, render
from tokencodes.report.results import Results, published, read

NAMES = ("loss", "benchmarks", "differences", "accounting", "data")
FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 200, "metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}

# Okabe and Ito's colours, told apart by colour-blind readers; their yellow is too pale on white and is left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
INK, FAINT, GRID = "#222222", "#6B6B6B", "#E4E4E4"
PARTS = (("backbone", "#C9C9C9"), ("head", "#8C8C8C"), ("input", "#303030"))

KEPT, DROPPED = "#5B5B5B", "#C9C9C9"  # documents; colours are the interfaces'

TEXT_PT = 8.0
SMALL_PT = 7.2
LINE_PT = 9.5  # from one line of labels to the next
CONFIDENCE = 1.96  # standard errors on each side of a mark: 95 % if errors are normal
SMOOTHING_BINS = 50  # the training loss is shown as its mean in so many equal stretches of steps
LONG_RUN = 10_000  # steps; from here on steps are on a logarithmic axis
MARKS = 13  # of a held-out curve; it may have hundreds of points
NAMED_SHARDS = 12  # a bar each, with its name; more are drawn as one outline
ZOOM = 1 / 3  # the last part of a run that is drawn again, larger

STYLE = {
    "font.family": ["DejaVu Sans"],
    "font.size": TEXT_PT,
    "axes.titlesize": TEXT_PT,
    "axes.labelsize": TEXT_PT,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.6,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "tokencodes",  # element ids follow from the content alone
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # TrueType: text that can be searched, as publishers ask
}


def write(settings: Config, results_dir: Path | str) -> None:
    """Write every figure below `results_dir`/figures/. Raises UserError naming a damaged result file."""
    results = read(settings, results_dir)
    with mpl.rc_context({**mpl.rcParamsDefault, **STYLE}):
        for name, draw in DRAWINGS.items():
            figure = draw(results)
            for suffix, options in FORMATS.items():
                with atomic_path(Path(results_dir) / "figures" / f"{name}.{suffix}") as temporary:
                    figure.savefig(temporary, format=suffix, **options)


# ------------------------------------------------------------------- drawing


class _Canvas:
    """A figure whose size in inches follows from what it has to hold."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height))
        FigureCanvasAgg(self.figure)
        self.width, self.height = width, height

    def axes(self, left: float, bottom: float, width: float, height: float) -> Axes:
        """Axes at a place in inches."""
        return self.figure.add_axes((left / self.width, bottom / self.height, width / self.width, height / self.height))


def text_width(texts: list[str], size: float) -> float:
    """Inches that the widest of `texts` takes at `size` points."""
    figure = Figure()
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = (figure.text(0, 0, text, fontsize=size).get_window_extent(renderer) for text in texts)
    return max((box.width for box in boxes), default=0.0) / figure.dpi


def spread(wanted: list[float], gap: float, low: float, high: float) -> list[float]:
    """Positions near `wanted`, in the same order, at least `gap` apart and within [low, high] if they fit there.

    Neighbours that are too close are pooled and laid out around their mean: the least-squares solution (isotonic
    regression by pooling adjacent violators).
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    pools: list[list[float]] = []  # [sum of (wanted - rank * gap), count]
    for rank, i in enumerate(order):
        pools.append([wanted[i] - rank * gap, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, size = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += size
    starts = [total / size for total, size in pools for _ in range(int(size))]
    top = max(low, high - (len(wanted) - 1) * gap)
    placed = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        placed[i] = min(max(starts[rank], low), top) + rank * gap
    return placed


def _look(results: Results) -> dict[str, tuple[str, str]]:
    """Colour and marker of each interface, by its place in the config."""
    return {
        name: (COLOURS[i % len(COLOURS)], MARKERS[(i + i // len(COLOURS)) % len(MARKERS)])
        for i, name in enumerate(results.settings.interfaces)
    }


def _empty(axes: Axes, text: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=FAINT)


# ---------------------------------------------------------------------- loss


def loss(results: Results) -> Figure:
    """Training loss (thin, mean over stretches of steps) and held-out loss (marked); the end of the run again, larger.

    With several seeds: the mean, and a band from the least to the greatest held-out loss.
    """
    interfaces = list(results.settings.interfaces)
    ends = [name for name in interfaces if (results.curves.interface == name).any()]
    labels = text_width(ends, TEXT_PT) + 0.3
    left, wide, narrow, between, height = 0.56, 2.55, 1.75, 0.5, 2.25
    height = max(height, len(ends) * LINE_PT / 72 + 0.4)
    canvas = _Canvas(left + wide + between + narrow + labels + 0.08, height + 0.75)
    whole = canvas.axes(left, 0.45, wide, height)
    end = canvas.axes(left + wide + between, 0.45, narrow, height)
    whole.set_title("Whole run", loc="left")
    if not ends:
        _empty(whole, "no run has started yet")
        _empty(end, "")
        return canvas.figure
    last = int(results.curves.step.max())
    first_zoomed = max(1, math.floor(last * (1 - ZOOM)))
    measured = results.curves.step[results.curves.val_loss.notna()]
    first_zoomed = int(measured[measured <= first_zoomed].max()) if (measured <= first_zoomed).any() else first_zoomed
    end.set_title(f"From step {first_zoomed:,}", loc="left")
    looks = _look(results)
    closing = results.curves[results.curves.step >= first_zoomed]
    for axes, rows, logarithmic, bins in (
        (whole, results.curves, last >= LONG_RUN, SMOOTHING_BINS),
        (end, closing, False, round(SMOOTHING_BINS * ZOOM)),
    ):
        train, held_out = _training_curves(rows, logarithmic, bins), _held_out_curves(rows)
        for name in ends:
            _curve(axes, train.get(name), held_out.get(name), looks[name], logarithmic=logarithmic)
        axes.set_xlabel("Step")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    if last >= LONG_RUN:
        whole.set_xscale("log")
    else:
        whole.set_xlim(0, last * 1.02)
        whole.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    whole.set_ylabel("Loss (nats a token)")
    _unigram_line(results, whole)
    _zoom(end, train, held_out, first_zoomed, last)
    _end_labels(end, {name: _last(train.get(name), held_out.get(name)) for name in ends}, looks, canvas)
    whole.text(
        0.98, 0.97, "thin: training\nmarked: held out", transform=whole.transAxes, ha="right", va="top",
        fontsize=SMALL_PT, color=FAINT, linespacing=1.3,
    )  # fmt: skip
    return canvas.figure


def _place(steps: pd.Series, logarithmic: bool) -> pd.Series:
    """Where steps lie between the first and the last, from 0 to 1, on the axis they are drawn on."""
    scaled = pd.Series(np.log(steps.clip(lower=1)) if logarithmic else steps, index=steps.index, dtype=float)
    return (scaled - scaled.min()) / max(scaled.max() - scaled.min(), 1e-9)


def _training_curves(curves: pd.DataFrame, logarithmic: bool, bins: int) -> dict[str, pd.Series]:
    """Mean training loss over seeds in `bins` stretches of the axis, indexed by the stretch's mean step."""
    found = {}
    for name, rows in curves.groupby("interface"):
        stretch = np.minimum((_place(rows.step, logarithmic) * bins).astype(int), bins - 1)
        means = rows.groupby(stretch)[["step", "loss"]].mean()
        found[name] = pd.Series(means.loss.to_numpy(), index=means.step.to_numpy())
    return found


def _held_out_curves(curves: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Mean, least and greatest held-out loss over seeds by step."""
    return {
        name: rows.dropna(subset=["val_loss"]).groupby("step").val_loss.agg(["mean", "min", "max"])
        for name, rows in curves.groupby("interface")
    }


def _curve(
    axes: Axes, line: pd.Series | None, points: pd.DataFrame | None, look: tuple[str, str], *, logarithmic: bool
) -> None:
    """One interface: training loss thin, held-out loss marked at most MARKS times, the last one always."""
    colour, marker = look
    if line is not None:
        axes.plot(line.index, line, color=colour, linewidth=0.7, alpha=0.5)
    if points is None or not len(points):
        return
    axes.fill_between(points.index, points["min"], points["max"], color=colour, alpha=0.15, linewidth=0)
    axes.plot(points.index, points["mean"], color=colour, linewidth=1.1)
    stretch = np.ceil(_place(pd.Series(points.index), logarithmic) * (MARKS - 1))
    marked = points.iloc[pd.Series(range(len(points))).groupby(stretch).last()]
    axes.plot(
        marked.index, marked["mean"], color=colour, linewidth=0, marker=marker, markersize=3.6, clip_on=False,
        markeredgecolor="white", markeredgewidth=0.3,
    )  # fmt: skip


def _last(train: pd.Series | None, held_out: pd.DataFrame | None) -> float:
    if held_out is not None and len(held_out):
        return float(held_out["mean"].iloc[-1])
    return math.nan if train is None else float(train.iloc[-1])


def _unigram_line(results: Results, axes: Axes) -> None:
    """The entropy of the training split's token frequencies: what a model without context is at best."""
    entropy = results.unigram().get("unigram_entropy", math.nan)
    if math.isnan(entropy):
        return
    axes.axhline(entropy, color=INK, linewidth=0.8, linestyle=(0, (4, 2)), zorder=1.5)
    axes.annotate(
        f"unigram entropy {entropy:.2f}", (0.98, entropy), xycoords=("axes fraction", "data"),
        xytext=(0, 2.5), textcoords="offset points", ha="right", va="bottom", fontsize=SMALL_PT,
    )  # fmt: skip


def _zoom(axes: Axes, train: dict, held_out: dict, first: int, last: int) -> None:
    axes.set_xlim(first, max(last, first + 1))
    axes.xaxis.set_major_locator(MaxNLocator(3, integer=True, steps=[1, 2, 2.5, 5, 10]))
    shown = [*train.values(), *(points[edge] for points in held_out.values() for edge in ("min", "max"))]
    values = pd.concat(shown).dropna()
    if len(values):
        margin = 0.08 * max(values.max() - values.min(), 0.05)
        axes.set_ylim(values.min() - margin, values.max() + margin)


def _end_labels(axes: Axes, ends: dict[str, float], looks: dict[str, tuple[str, str]], canvas: _Canvas) -> None:
    """The name of each curve at its end, moved apart where they would touch, with a thin line to where it belongs."""
    low, high = axes.get_ylim()
    inches = axes.get_position().height * canvas.height
    gap = LINE_PT / 72 / inches
    names = [name for name, value in ends.items() if math.isfinite(value)]
    wanted = [(ends[name] - low) / (high - low) for name in names]
    width = axes.get_position().width * canvas.width
    for name, true, place in zip(names, wanted, spread(wanted, gap, 0.0, 1.0), strict=True):
        axes.plot(
            [1 + 0.05 / width, 1 + 0.16 / width], [true, place], transform=axes.transAxes, color=looks[name][0],
            linewidth=1.1, clip_on=False,
        )  # fmt: skip
        axes.text(1 + 0.2 / width, place, name, transform=axes.transAxes, va="center_baseline", fontsize=TEXT_PT)


# ---------------------------------------------------------------- benchmarks


def benchmarks(results: Results) -> Figure:
    """A panel a benchmark, in the metric that the paper reports: mark, 95 % interval over documents, chance as a line.

    With several seeds: the mean as the mark, each seed as a tick, and the mean standard error.
    """
    settings = results.settings
    interfaces, tasks = list(settings.interfaces), list(settings.evaluate.tasks)
    per_row = {1: 1, 2: 2, 4: 2}.get(len(tasks), 3 if len(tasks) <= 6 or len(tasks) == 9 else 4)
    labels = text_width(interfaces, TEXT_PT) + 0.24
    panel_width = 1.55 if per_row <= 3 else 1.3
    panel_height = max(0.55, (len(interfaces) + 0.4) * 11.5 / 72)
    across = 0.2
    titles = [_wrapped(results.label(task), panel_width) for task in tasks]
    depths = [max(title.count("\n") + 1 for title in titles[i : i + per_row]) for i in range(0, len(tasks), per_row)]
    above = [0.15 + LINE_PT * 1.2 / 72 * depth for depth in depths]
    below = 0.53
    with_paper = compared.comparable(results)[0] > 0
    note = 0.2 if with_paper else 0.0
    width = labels + per_row * panel_width + (per_row - 1) * across + 0.15
    canvas = _Canvas(width, sum(above) + max(len(above), 1) * (panel_height + below) + note)
    if not tasks:
        _empty(canvas.axes(0.1, 0.1, width - 0.2, panel_height), "the config names no benchmark")
        return canvas.figure
    for number, (task, title) in enumerate(zip(tasks, titles, strict=True)):
        row, column = divmod(number, per_row)
        bottom = canvas.height - sum(above[: row + 1]) - (row + 1) * (panel_height + below) + below
        axes = canvas.axes(labels + column * (panel_width + across), bottom, panel_width, panel_height)
        _panel(results, task, axes, with_names=column == 0)
        axes.annotate(title, (0, 1), xycoords="axes fraction", xytext=(0, 0.17 * 72), textcoords="offset points",
                      va="baseline", linespacing=1.1, annotation_clip=False)  # fmt: skip
    if with_paper:
        canvas.figure.text(
            0.08 / width, 0.06 / canvas.height, "Hollow diamonds: published results of the paper.", fontsize=SMALL_PT,
            color=FAINT,
        )  # fmt: skip
    return canvas.figure


def _panel(results: Results, task: Task, axes: Axes, *, with_names: bool) -> None:
    interfaces = list(results.settings.interfaces)
    metric = results.metrics(task)[0]
    factor = 100.0 if render.is_proportion(metric) else 1.0
    axes.set_ylim(len(interfaces) - 0.4, -0.6)
    axes.set_yticks(range(len(interfaces)), interfaces if with_names else [""] * len(interfaces))
    axes.tick_params(axis="y", length=0, labelsize=TEXT_PT)
    axes.spines["left"].set_visible(False)
    chances, extremes = [], []
    for place, (name, (colour, marker)) in enumerate(_look(results).items()):
        rows = results.score(task, metric, name)
        values = [factor * float(value) for value in rows.value if math.isfinite(value)]
        chances += [factor * float(chance) for chance in rows.chance if math.isfinite(chance)]
        figure = published().get((task.name, metric, task.shots, results.paper_model(name) or ""))
        if figure is not None and not compared.obstacles(results, task):
            axes.plot([figure.value], [place], "D", markersize=4.6, markerfacecolor="white", color=INK, zorder=2)
            extremes.append(figure.value)
        if not values:
            said = "NaN" if len(rows) else "no result"
            axes.text(0.5, place, said, transform=axes.get_yaxis_transform(), ha="center", va="center_baseline",
                      fontsize=SMALL_PT, color=FAINT)  # fmt: skip
            continue
        mean = math.fsum(values) / len(values)
        errors = [factor * float(e) for e in rows.stderr if math.isfinite(e)]
        reach = CONFIDENCE * math.fsum(errors) / len(errors) if errors else 0.0
        low, high = mean - reach, mean + reach
        if render.is_proportion(metric):
            low, high = max(low, 0.0), min(high, 100.0)
        axes.plot([low, high], [place, place], color=colour, linewidth=1.3, solid_capstyle="butt")
        if len(values) > 1:
            axes.plot(values, [place] * len(values), "|", markersize=5.5, color=colour, markeredgewidth=0.9)
        axes.plot([mean], [place], marker, color=colour, markersize=4.6, markeredgecolor="white", markeredgewidth=0.5)
        extremes += [low, high, *values]
    extremes += chances[:1]
    _range(axes, extremes, metric)
    higher = results.scores.loc[results.scores.metric == metric, "higher_is_better"] if len(results.scores) else []
    unit = " (%)" if factor == 100.0 else "\nlower is better" if len(higher) and not all(higher) else ""
    axes.set_xlabel(metric + unit, fontsize=SMALL_PT, labelpad=1.5)
    if chances:
        axes.axvline(chances[0], color=INK, linewidth=0.8, linestyle=(0, (2, 1.6)), zorder=1.5)
        axes.text(
            chances[0], 1.0, "chance", transform=axes.get_xaxis_transform(), ha="center", va="bottom",
            fontsize=SMALL_PT, color=FAINT,
        )  # fmt: skip


def _range(axes: Axes, extremes: list[float], metric: str) -> None:
    if not extremes:
        axes.set_xticks([])
        return
    low, high = min(extremes), max(extremes)
    least = 4.0 if render.is_proportion(metric) else 0.04 * abs(high) or 1.0
    high = max(high, low + least)
    margin = 0.08 * (high - low)
    axes.set_xlim(low - margin, high + margin)
    axes.xaxis.set_major_locator(MaxNLocator(4, min_n_ticks=2))


def _wrapped(text: str, width: float) -> str:
    """`text` in lines of at most `width` inches, broken at spaces."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width([f"{lines[-1]} {word}"], TEXT_PT) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


# --------------------------------------------------------------- differences


def differences(results: Results) -> Figure:
    """Accuracy of each interface minus the learned one's, in points, with 95 % intervals: a line a benchmark.

    Filled marks are beyond chance after Holm's correction, hollow ones are not.
    """
    learned = results.baseline()
    found = [each for each in compared.against_baseline(results) if each.row.unit == FRACTION]
    names = [name for name in results.settings.interfaces if any(each.interface == name for each in found)]
    tasks = list(dict.fromkeys((each.task.name, each.task.shots, results.label(each.task)) for each in found))
    if not found:
        canvas = _Canvas(5.5, 1.0)
        _empty(canvas.axes(0.1, 0.1, 5.3, 0.8), "no paired accuracies")
        return canvas.figure
    titles = [_wrapped(label, 1.7) for _, _, label in tasks]
    labels = text_width(titles, TEXT_PT) + 0.15
    key = text_width(names, TEXT_PT) + 0.35
    line = max(0.13 * len(names) + 0.1, 0.3)
    wide, height = 3.4, line * len(tasks)
    canvas = _Canvas(labels + wide + key + 0.1, height + 0.6)
    axes = canvas.axes(labels, 0.45, wide, height)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.set_yticks(range(len(tasks)), titles)
    axes.tick_params(axis="y", length=0, labelsize=TEXT_PT)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
    axes.axvline(0, color=INK, linewidth=0.8)
    looks = _look(results)
    for each in found:
        place = tasks.index((each.task.name, each.task.shots, results.label(each.task)))
        offset = (names.index(each.interface) - (len(names) - 1) / 2) * 0.13 / line
        colour, marker = looks[each.interface]
        middle, low, high = (100 * end for end in (each.row.found.difference, each.row.found.low, each.row.found.high))
        if math.isnan(middle):
            continue
        if not math.isnan(low):
            axes.plot([low, high], [place + offset] * 2, color=colour, linewidth=1.1, solid_capstyle="butt")
        face = colour if each.row.holm <= SIGNIFICANCE else "white"
        axes.plot([middle], [place + offset], marker, color=colour, markerfacecolor=face, markersize=4)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_xlabel(f"Accuracy minus that of {learned} (points)")
    for number, name in enumerate(names):
        height_of = 1 - (0.1 + number * LINE_PT * 1.25 / 72) / height
        colour, marker = looks[name]
        axes.plot(
            [1 + 0.12 / wide], [height_of], marker, color=colour, markersize=4, transform=axes.transAxes, clip_on=False
        )
        axes.text(1 + 0.22 / wide, height_of, name, transform=axes.transAxes, va="center_baseline", fontsize=TEXT_PT)
    return canvas.figure


# ---------------------------------------------------------------- accounting


def accounting(results: Results) -> Figure:
    """Trainable parameters of each interface as one bar: backbone, head, input; the total and the saving beside it."""
    interfaces = list(results.settings.interfaces)
    counts = {row["interface"]: row for row in results.params.to_dict("records")}
    learned = results.baseline()
    labels = text_width(interfaces, TEXT_PT) + 0.12
    wide, line = 3.6, 0.3 if len(interfaces) <= 8 else 0.2
    ends = {name: _end_text(counts, name, learned) for name in interfaces}
    most = max((row["trainable"] for row in counts.values()), default=1)
    reach = [
        counts.get(name, {}).get("trainable", 0) / most * wide + text_width([text], SMALL_PT)
        for name, text in ends.items()
    ]
    height = len(interfaces) * line
    canvas = _Canvas(labels + max(wide, *reach) + 0.2, height + 0.72)
    axes = canvas.axes(labels, 0.45, wide, height)
    axes.grid(visible=False)
    axes.set_ylim(len(interfaces) - 0.5, -0.5)
    axes.set_yticks(range(len(interfaces)), interfaces)
    axes.tick_params(axis="y", length=0, labelsize=TEXT_PT)
    axes.spines["left"].set_visible(False)
    if not counts:
        _empty(axes, "no accounting yet")
        return canvas.figure
    axes.set_xlim(0, most)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(_scale(most)))
    axes.set_xlabel("Trainable parameters")
    for place, name in enumerate(interfaces):
        row, start = counts.get(name), 0
        for part, colour in PARTS if row else ():
            axes.barh(place, row[part], left=start, height=0.66, color=colour, edgecolor="white", linewidth=0.6)
            start += row[part]
        axes.annotate(
            ends[name], (start, place), xytext=(3, 0), textcoords="offset points", va="center_baseline",
            fontsize=SMALL_PT, annotation_clip=False,
        )  # fmt: skip
    _part_labels(axes, counts, interfaces, most, wide)
    return canvas.figure


def _end_text(counts: dict[str, dict[str, Any]], name: str, learned: str | None) -> str:
    if name not in counts:
        return "no result"
    total = counts[name]["trainable"]
    text = findings.words(total)
    if learned in counts and name != learned:
        text += f", {render.decimal(100 * (total / counts[learned]['trainable'] - 1), 2)} %"
    return text


def _scale(most: float) -> Callable[[float, int | None], str]:
    for size, name in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if most >= size:
            return lambda x, _=None: f"{x / size:g}{name}" if x else "0"
    return lambda x, _=None: f"{x:g}"


def _part_labels(
    axes: Axes, counts: dict[str, dict[str, Any]], interfaces: list[str], most: float, wide: float
) -> None:
    """Names of the parts above the longest bar's segments, moved apart where these are narrow."""
    longest = next(counts[name] for name in interfaces if name in counts and counts[name]["trainable"] == most)
    edges, start = [], 0
    for part, _ in PARTS:
        if longest[part]:
            edges.append((part, start + longest[part] / 2))
        start += longest[part]
    top = interfaces.index(longest["interface"])
    gap = (text_width([part for part, _ in PARTS], TEXT_PT) + 0.08) / wide * most
    places = spread([middle for _, middle in edges], gap, 0.0, most)
    for (part, middle), place in zip(edges, places, strict=True):
        axes.annotate(
            part, (middle, top - 0.33), xytext=(place, -0.5), textcoords=axes.transData, ha="center", va="bottom",
            fontsize=TEXT_PT, annotation_clip=False,
            arrowprops={"arrowstyle": "-", "linewidth": 0.6, "color": FAINT, "shrinkA": 0, "shrinkB": 0},
        )  # fmt: skip


# ---------------------------------------------------------------------- data


def data(results: Results) -> Figure:
    """Documents by length, kept or too short; documents by fate; tokens kept by shard, in the corpus' order."""
    store = results.store
    if store is None:
        canvas = _Canvas(5.5, 1.2)
        _empty(canvas.axes(0.1, 0.1, 5.3, 1.0), "no data yet")
        return canvas.figure
    fates = [("kept", store["kept"])]
    fates += [(reason.replace("_", " "), n) for reason, n in store["dropped"].items() if n]
    ends = [f"{n:,} ({_share(n, store['rows_in'])})" for _, n in fates]
    shards = [(shard["name"], shard["tokens"]) for shard in store["shards"]]
    few = len(shards) <= NAMED_SHARDS
    labels = text_width([name for name, _ in fates], TEXT_PT) + 0.1
    left, wide, between, bars = 0.6, 2.7, 0.3, 0.9
    row = 0.19
    tall, low = max(1.45, len(fates) * row), max(len(shards), 1) * row if few else 0.85
    title = "Documents kept, and dropped by reason"
    beside = max(labels + bars + text_width(ends, SMALL_PT), text_width([title], TEXT_PT))
    width = left + wide + between + beside + 0.15
    bottom, gap = 0.1 if few else 0.45, 0.85
    canvas = _Canvas(width, bottom + low + gap + tall + 0.3)
    _lengths(results, canvas.axes(left, bottom + low + gap, wide, tall), wide)
    height = len(fates) * row
    axes = canvas.axes(left + wide + between + labels, bottom + low + gap + tall - height, bars, height)
    axes.set_title(title, loc="left", x=-labels / bars)
    _named_bars(axes, fates, [KEPT] + [DROPPED] * (len(fates) - 1), ends)
    if few:
        names = text_width([name for name, _ in shards], TEXT_PT) + 0.12
        counts = [f"{n:,}" for _, n in shards]
        axes = canvas.axes(names, bottom, width - names - text_width(counts, SMALL_PT) - 0.15, low)
        axes.set_title("Tokens kept by shard", loc="left", x=(0.1 - names) / (axes.get_position().width * width))
        _named_bars(axes, shards, [KEPT] * len(shards), counts)
        return canvas.figure
    axes = canvas.axes(left, bottom, width - left - 0.15, low)
    axes.set_title("Tokens kept by shard", loc="left")
    axes.stairs([n for _, n in shards], np.arange(len(shards) + 1) + 0.5, fill=True, color=KEPT)
    axes.set_xlim(0.5, len(shards) + 0.5)
    axes.set_ylim(0, None)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.yaxis.set_major_formatter(FuncFormatter(_scale(max(n for _, n in shards))))
    axes.set_xlabel("Shard, in the corpus' order")
    return canvas.figure


def _share(n: int, of: int) -> str:
    percent = 100 * n / max(of, 1)
    return "<0.01 %" if 0 < percent < 0.01 else f"{percent:.2f} %"


def _named_bars(axes: Axes, bars: list[tuple[str, int]], colours: list[str], ends: list[str]) -> None:
    """Horizontal bars with names before and counts behind them."""
    axes.grid(visible=False)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_yticks(range(len(bars)), [name for name, _ in bars])
    axes.tick_params(axis="y", length=0, labelsize=TEXT_PT)
    axes.set_xticks([])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_xlim(0, max((n for _, n in bars), default=0) or 1)
    for place, ((_, n), colour, end) in enumerate(zip(bars, colours, ends, strict=True)):
        axes.barh(place, n, height=0.7, color=colour)
        axes.annotate(
            end, (n, place), xytext=(3, 0), textcoords="offset points", va="center_baseline", fontsize=SMALL_PT,
            annotation_clip=False,
        )  # fmt: skip


def _lengths(results: Results, axes: Axes, wide: float) -> None:
    """Documents that were encoded by number of tokens, on a logarithmic axis; the least that is kept as a line.

    The axis is `wide` inches long.
    """
    least = results.settings.data.min_tokens
    found = results.bins()
    axes.set_title("Documents by length", loc="left")
    if not found:
        _empty(axes, "lengths were not counted")
        return
    low, high, kept, short = (np.array(column, dtype=float) for column in zip(*found, strict=True))
    axes.set_xscale("log")
    axes.bar(low, short, width=high - low, align="edge", color=DROPPED, edgecolor="white", linewidth=0.3)
    axes.bar(low, kept, width=high - low, bottom=short, align="edge", color=KEPT, edgecolor="white", linewidth=0.3)
    most = max(kept + short)
    room = (text_width(["too short"], SMALL_PT) + 0.12) / wide  # for the words before the line
    right = math.log(max(high[-1], least * 2))
    left = (math.log(least) - room * right) / (1 - room)
    axes.set_xlim(min(low[0], math.exp(left)), math.exp(right))
    axes.set_ylim(0, 1.35 * most)
    spans_decades = axes.get_xlim()[1] / axes.get_xlim()[0] > 30
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0,) if spans_decades else (1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(_scale(most)))
    axes.set_xlabel("Tokens")
    axes.set_ylabel("Documents")
    axes.axvline(least, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    for text, side, colour in ((f"kept: from {least:,}", 3, INK), ("too short", -3, FAINT)):
        axes.annotate(
            text, (least, 1.0), xycoords=axes.get_xaxis_transform(), xytext=(side, -2), textcoords="offset points",
            ha="left" if side > 0 else "right", va="top", fontsize=SMALL_PT, color=colour, annotation_clip=False,
        )  # fmt: skip


DRAWINGS: dict[str, Callable[[Results], Figure]] = {
    "loss": loss,
    "benchmarks": benchmarks,
    "differences": differences,
    "accounting": accounting,
    "data": data,
}
assert tuple(DRAWINGS) == NAMES
