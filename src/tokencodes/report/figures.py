"""Figures of a run from its stored results: what `tokencodes figures` writes to results/<name>/figures/: PNG, SVG, PDF.

They are drawn for a text width of 7 inches: no type is below 7 points unless they are made smaller. An interface keeps
its colour, line and marker in all figures. The paper's figures enter a plot only where a run has its size, budget and
data, as hollow diamonds: beside a toy run they would invite a comparison that means nothing. The same results give the
same bytes.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from tokencodes.analysis.paired import SIGNIFICANCE
from tokencodes.analysis.pairing import FRACTION
from tokencodes.config import Config
from tokencodes.evaluate.spec import Task
from tokencodes.files import atomic_path
from tokencodes.report import findings, paper, render
from tokencodes.report.differences import paired_rows
from tokencodes.report.render import Record
from tokencodes.report.results import Results, read
from tokencodes.report.style import (
    FAINT,
    INK,
    RC,
    REFERENCE_LINE,
    SMALL_PT,
    Look,
    empty,
    looks,
    names_on_y,
    settle,
    sheet,
)

FORMATS: dict[str, dict[str, Any]] = {
    "png": {"dpi": 200, "metadata": {"Software": None}},
    "svg": {"metadata": {"Date": None, "Creator": None}},
    "pdf": {"metadata": {"CreationDate": None, "Creator": None, "Producer": None}},
}
WIDTH = 7.0  # inches
ROW = 0.165  # inches per interface
PARTS = (("backbone", "#C9C9C9"), ("head", "#8C8C8C"), ("input", "#303030"))
KEPT, DROPPED = "#5B5B5B", "#C9C9C9"  # documents; colours are the interfaces'
CONFIDENCE = 1.96  # standard errors on each side of a mark: 95 % if errors are normal
SMOOTHING_BINS = 50  # the training loss is shown as its mean in so many equal stretches of steps
RAW_CURVES = 6  # interfaces up to which the training loss is drawn behind the held-out loss
LONG_RUN = 10_000  # steps; from here on steps are on a logarithmic axis
MARKS = 13  # of a held-out curve; it may have hundreds of points
NAMED_SHARDS = 12  # a bar each, with its name; more are drawn as one outline
ZOOM = 1 / 3  # the last part of a run that is drawn again, larger
WIDE = 3.0  # an interval that reaches so many times further than the usual one is cut


def write(settings: Config, results_dir: Path | str) -> None:
    """Write every figure below `results_dir`/figures/. Raises UserError naming a damaged result file."""
    results = read(settings, results_dir)
    with mpl.rc_context({**mpl.rcParamsDefault, **RC}):
        for name, draw in DRAWINGS.items():
            figure = draw(results)
            settle(figure)
            for suffix, options in FORMATS.items():
                with atomic_path(Path(results_dir) / "figures" / f"{name}.{suffix}") as temporary:
                    figure.savefig(temporary, format=suffix, **options)


def _looks(results: Results) -> dict[str, Look]:
    return looks(results.settings.display, list(results.settings.interfaces))


# ---------------------------------------------------------------------- loss


def loss(results: Results) -> Figure:
    """The held-out loss over the run; the end of the run again, larger; the final losses, ranked.

    With several seeds: the mean, and a band from the least to the greatest held-out loss. The training loss is drawn
    thin behind it, as means over stretches of steps, if there are few interfaces.
    """
    curves, look = results.curves, _looks(results)
    names = [name for name in look if (curves.interface == name).any()]
    figure = sheet(WIDTH, max(2.6, ROW * len(names) + 0.9))
    whole, end, ranked = figure.subplots(1, 3, width_ratios=(2.0, 1.5, 1.2))
    whole.set_title("Whole run")
    if not names:
        for axes, text in ((whole, "no run has started yet"), (end, ""), (ranked, "")):
            empty(axes, text)
        return figure
    last, first = int(curves.step.max()), _start_of_zoom(curves)
    end.set_title(f"From step {first:,}")
    logarithmic = last >= LONG_RUN
    for axes, rows, scaled, bins in (
        (whole, curves, logarithmic, SMOOTHING_BINS),
        (end, curves[curves.step >= first], False, round(SMOOTHING_BINS * ZOOM)),
    ):
        for name in names:
            _curve(axes, rows[rows.interface == name], look[name], bins, scaled, raw=len(names) <= RAW_CURVES)
        axes.set_xlabel("Step")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    if logarithmic:
        whole.set_xscale("log")
    else:
        whole.set_xlim(0, last * 1.02)
        whole.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    whole.set_ylabel("Loss (nats per token)")
    end.set_xlim(first, max(last, first + 1))
    end.xaxis.set_major_locator(MaxNLocator(3, integer=True, steps=[1, 2, 2.5, 5, 10]))
    end.set_ylim(_limits([value for line in end.lines for value in line.get_ydata()], margin=0.08, least=0.05))
    _unigram(results, whole)
    _ranked(ranked, curves, names, look)
    marks = [Line2D([], [], color=FAINT, linewidth=1.1, marker="o", markersize=3, label="held out")]
    if len(names) <= RAW_CURVES:
        marks.insert(0, Line2D([], [], color=FAINT, linewidth=0.7, alpha=0.6, label="training"))
    figure.legend(handles=marks, loc="outside lower left", ncols=2, handlelength=1.6)
    return figure


def _start_of_zoom(curves: pd.DataFrame) -> int:
    """The step from which the end of the run is drawn again: one with a held-out loss, if there is one before."""
    first = max(1, math.floor(int(curves.step.max()) * (1 - ZOOM)))
    measured = curves.step[curves.val_loss.notna()]
    return int(measured[measured <= first].max()) if (measured <= first).any() else first


def _place(steps: pd.Series, logarithmic: bool) -> pd.Series:
    """Where steps lie between the first and the last, from 0 to 1, on the axis they are drawn on."""
    scaled = pd.Series(np.log(steps.clip(lower=1)) if logarithmic else steps, index=steps.index, dtype=float)
    return (scaled - scaled.min()) / max(scaled.max() - scaled.min(), 1e-9)


def _curve(axes: Axes, rows: pd.DataFrame, look: Look, bins: int, logarithmic: bool, *, raw: bool) -> None:
    """One interface: its training loss thin, its held-out loss marked at most MARKS times, the last one always."""
    points = rows.dropna(subset=["val_loss"]).groupby("step").val_loss.agg(["mean", "min", "max"])
    if (raw or points.empty) and len(rows):
        stretch = np.minimum((_place(rows.step, logarithmic) * bins).astype(int), bins - 1)
        means = rows.groupby(stretch)[["step", "loss"]].mean()
        axes.plot(means.step, means.loss, color=look.colour, linewidth=0.7, alpha=0.5)
    if points.empty:
        return
    axes.fill_between(points.index, points["min"], points["max"], color=look.colour, alpha=0.15, linewidth=0)
    axes.plot(points.index, points["mean"], color=look.colour, linestyle=look.line, linewidth=1.1)
    stretch = np.ceil(_place(pd.Series(points.index), logarithmic) * (MARKS - 1))
    marked = points.iloc[pd.Series(range(len(points))).groupby(stretch).last()]
    axes.plot(
        marked.index, marked["mean"], color=look.colour, linewidth=0, marker=look.marker, markersize=3.6,
        clip_on=False, markeredgecolor="white", markeredgewidth=0.3,
    )  # fmt: skip


def _unigram(results: Results, axes: Axes) -> None:
    """The entropy of the training split's token frequencies: what a model without context is at best."""
    entropy = results.unigram().get("unigram_entropy", math.nan)
    if math.isnan(entropy):
        return
    axes.axhline(entropy, color=INK, linewidth=0.8, linestyle=REFERENCE_LINE, zorder=1.5)
    axes.annotate(
        f"unigram entropy {entropy:.2f}", (0.98, entropy), xycoords=("axes fraction", "data"),
        xytext=(0, 2.5), textcoords="offset points", ha="right", va="bottom", fontsize=SMALL_PT,
    )  # fmt: skip


def _ranked(axes: Axes, curves: pd.DataFrame, names: list[str], look: dict[str, Look]) -> None:
    """The last held-out loss of each interface, the least on top: each seed as a tick, the mean as the mark."""
    axes.set_title("Final held-out loss")
    measured = curves.dropna(subset=["val_loss"]).sort_values("step")
    ends = {name: measured[measured.interface == name].groupby("seed").val_loss.last() for name in names}
    names = sorted(names, key=lambda name: ends[name].mean() if len(ends[name]) else math.inf)
    names_on_y(axes, [look[name].label for name in names])
    for place, name in enumerate(names):
        values, (colour, marker) = ends[name], (look[name].colour, look[name].marker)
        if values.empty:
            axes.text(0.5, place, "no result", transform=axes.get_yaxis_transform(), ha="center", va="center_baseline",
                      fontsize=SMALL_PT, color=FAINT)  # fmt: skip
            continue
        if len(values) > 1:
            axes.plot(values, [place] * len(values), "|", color=colour, markersize=5.5, markeredgewidth=0.9)
        axes.plot([values.mean()], [place], marker, color=colour, markersize=4.6, markeredgecolor="white",
                  markeredgewidth=0.5)  # fmt: skip
    axes.set_xlabel("nats per token")
    axes.xaxis.set_major_locator(MaxNLocator(3))


def _limits(values: list[float], *, margin: float, least: float) -> tuple[float, float]:
    """An axis around the values that are finite, of at least the length `least`."""
    finite = [float(value) for value in values if math.isfinite(value)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    length = max(high - low, least)
    return low - margin * length, low + (1 + margin) * length


# ---------------------------------------------------------------- benchmarks


def _panels(results: Results, tasks: list[Task], n_rows: int, **kwargs: Any) -> tuple[Figure, list[Axes]]:
    """A panel for each task, at most three beside each other."""
    per_row = {1: 1, 2: 2, 4: 2}.get(len(tasks), 3)
    rows = math.ceil(len(tasks) / per_row)
    figure = sheet(WIDTH, rows * (max(ROW * n_rows, 0.5) + 0.75) + 0.3)
    panels = figure.subplots(rows, per_row, sharey=True, squeeze=False, **kwargs).flatten().tolist()
    for unused in panels[len(tasks) :]:
        unused.remove()
    for axes, task in zip(panels, tasks, strict=False):
        axes.set_title(_broken(results.label(task)))
    for axes in panels[max(0, len(tasks) - per_row) : len(tasks)]:  # nothing stands below them
        axes.tick_params(axis="x", labelbottom=True)
    return figure, panels[: len(tasks)]


def _broken(text: str, length: int = 30) -> str:
    """A long title in lines of about `length` letters."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + len(word) < length:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return "\n".join(lines)


def benchmarks(results: Results) -> Figure:
    """A panel for each benchmark, in the metric that the paper reports: mark, 95 % interval over documents, chance.

    With several seeds: the mean as the mark, each seed as a tick, and the mean standard error.
    """
    tasks, look = list(results.settings.evaluate.tasks), _looks(results)
    if not tasks:
        figure = sheet(WIDTH, 1.0)
        empty(figure.subplots(), "the config names no benchmark")
        return figure
    figure, panels = _panels(results, tasks, len(look))
    for task, axes in zip(tasks, panels, strict=True):
        names_on_y(axes, [each.label for each in look.values()])
        _scores(results, task, axes, look)
    marks = [Line2D([], [], color=INK, linewidth=0.8, linestyle=REFERENCE_LINE, label="chance")]
    if paper.comparable(results)[0]:
        label = "published results of the paper"
        marks.append(Line2D([], [], color=INK, linewidth=0, marker="D", markerfacecolor="white", label=label))
    figure.legend(handles=marks, loc="outside lower left", ncols=len(marks))
    return figure


def _scores(results: Results, task: Task, axes: Axes, look: dict[str, Look]) -> None:
    metric = results.metrics(task)[0]
    factor = render.percent(metric)
    chances, extremes = [], []
    for place, (name, each) in enumerate(look.items()):
        rows = results.score(task, metric, name)
        values = [factor * float(value) for value in rows.value if math.isfinite(value)]
        chances += [factor * float(chance) for chance in rows.chance if math.isfinite(chance)]
        figure = paper.figure(results, task, metric, name)
        if figure is not None and not paper.obstacles(results, task):
            axes.plot([figure.value], [place], "D", markersize=4.6, markerfacecolor="white", color=INK, zorder=2)
            extremes.append(figure.value)
        if not values:
            text = "NaN" if len(rows) else "no result"
            axes.text(0.5, place, text, transform=axes.get_yaxis_transform(), ha="center", va="center_baseline",
                      fontsize=SMALL_PT, color=FAINT)  # fmt: skip
            continue
        mean = math.fsum(values) / len(values)
        errors = [factor * float(e) for e in rows.stderr if math.isfinite(e)]
        reach = CONFIDENCE * math.fsum(errors) / len(errors) if errors else 0.0
        low, high = mean - reach, mean + reach
        if render.is_proportion(metric):
            low, high = max(low, 0.0), min(high, 100.0)
        axes.plot([low, high], [place, place], color=each.colour, linewidth=1.3, solid_capstyle="butt")
        if len(values) > 1:
            axes.plot(values, [place] * len(values), "|", markersize=5.5, color=each.colour, markeredgewidth=0.9)
        axes.plot([mean], [place], each.marker, color=each.colour, markersize=4.6, markeredgecolor="white",
                  markeredgewidth=0.5)  # fmt: skip
        extremes += [low, high, *values]
    if chances:
        axes.axvline(chances[0], color=INK, linewidth=0.8, linestyle=REFERENCE_LINE, zorder=1.5)
    least = 4.0 if render.is_proportion(metric) else 0.04 * abs(max(extremes, default=1.0)) or 1.0
    if extremes:
        axes.set_xlim(_limits([*extremes, *chances[:1]], margin=0.08, least=least))
    axes.xaxis.set_major_locator(MaxNLocator(4, min_n_ticks=2))
    higher = results.scores.loc[results.scores.metric == metric, "higher_is_better"] if len(results.scores) else []
    unit = " (%)" if factor == 100.0 else ", lower is better" if len(higher) and not all(higher) else ""
    axes.set_xlabel(metric + unit, fontsize=SMALL_PT)


# --------------------------------------------------------------- differences


def differences(results: Results) -> Figure:
    """Accuracy of each interface minus the baseline's, in points, with 95 % intervals: a panel for each benchmark.

    Filled marks are beyond chance after Holm's correction, hollow ones are not. All panels have one axis, which the
    usual interval sets; one that reaches beyond it ends in an arrow.
    """
    baseline, look = results.baseline(), _looks(results)
    rows = [row for row in paired_rows(results) if row["unit"] == FRACTION]
    names = [name for name in look if any(row["interface"] == name for row in rows)]
    tasks = [task for task in results.settings.evaluate.tasks if any(_is_of(row, task) for row in rows)]
    if not rows:
        figure = sheet(WIDTH, 1.0)
        empty(figure.subplots(), "no paired accuracies")
        return figure
    figure, panels = _panels(results, tasks, len(names), sharex=True)
    limit = _usual_reach(rows)
    for task, axes in zip(tasks, panels, strict=True):
        names_on_y(axes, [look[name].label for name in names])
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_xlim(-limit, limit)
        for row in rows:
            if _is_of(row, task):
                _difference(axes, names.index(row["interface"]), row, look[row["interface"]], limit)
        axes.xaxis.set_major_locator(MaxNLocator(5))
    figure.supxlabel(f"Accuracy minus that of {look[baseline].label} (points)", fontsize=8.0)
    dot = {"color": FAINT, "marker": "o", "linewidth": 0, "markersize": 4}
    marks = [
        Line2D([], [], **dot, label="beyond chance after Holm's correction"),
        Line2D([], [], **dot, markerfacecolor="white", label="within chance"),
    ]
    figure.legend(handles=marks, loc="outside upper left", ncols=2)
    return figure


def _is_of(row: Record, task: Task) -> bool:
    return (row["task"], row["shots"]) == (task.name, task.shots)


def _usual_reach(rows: list[Record]) -> float:
    """Points on each side of 0 that show every mean, and every interval that is not much longer than the usual one."""
    middles = [abs(100 * row["difference"]) for row in rows if math.isfinite(row["difference"])]
    ends = [abs(100 * row[end]) for row in rows for end in ("low", "high") if math.isfinite(row[end])]
    usual = WIDE * float(np.median(ends)) if ends else 0.0
    return 1.08 * max([1.0, *middles, *(end for end in ends if end <= usual)])


def _difference(axes: Axes, place: int, row: Record, look: Look, limit: float) -> None:
    middle, low, high = (100 * row[end] for end in ("difference", "low", "high"))
    if math.isnan(middle):
        axes.text(0.98, place, "no interval", transform=axes.get_yaxis_transform(), ha="right", va="center_baseline",
                  fontsize=SMALL_PT, color=FAINT)  # fmt: skip
        return
    if math.isfinite(low) and math.isfinite(high):
        axes.plot([max(low, -limit), min(high, limit)], [place] * 2, color=look.colour, linewidth=1.1,
                  solid_capstyle="butt")  # fmt: skip
        for cut, end, arrow in ((low < -limit, -limit, "<"), (high > limit, limit, ">")):
            if cut:
                axes.plot([end], [place], arrow, color=look.colour, markersize=4, clip_on=False)
    face = look.colour if row["p_holm"] <= SIGNIFICANCE else "white"
    axes.plot([middle], [place], look.marker, color=look.colour, markerfacecolor=face, markersize=4)


# ---------------------------------------------------------------- accounting


def accounting(results: Results) -> Figure:
    """Trainable parameters of each interface as one bar: backbone, head, input; the total and the saving beside it."""
    look = _looks(results)
    counts = {row["interface"]: row for row in results.params.to_dict("records")}
    figure = sheet(WIDTH, max(ROW * 1.4 * len(look), 0.6) + 0.9)
    axes = figure.subplots()
    names_on_y(axes, [each.label for each in look.values()])
    axes.grid(visible=False)
    if not counts:
        empty(axes, "no accounting yet")
        return figure
    most = max(row["trainable"] for row in counts.values())
    axes.set_xlim(0, most)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(_scale(most)))
    axes.set_xlabel("Trainable parameters")
    for place, name in enumerate(look):
        row, start = counts.get(name), 0
        for part, colour in PARTS if row else ():
            axes.barh(place, row[part], left=start, height=0.66, color=colour, edgecolor="white", linewidth=0.6)
            start += row[part]
        axes.annotate(
            _total(counts, name, results.baseline()), (start, place), xytext=(3, 0), textcoords="offset points",
            va="center_baseline", fontsize=SMALL_PT, annotation_clip=False,
        )  # fmt: skip
    marks = [Patch(color=colour, label=part) for part, colour in PARTS]
    figure.legend(handles=marks, loc="outside upper left", ncols=len(marks), handlelength=1.0)
    return figure


def _total(counts: dict[str, dict[str, Any]], name: str, baseline: str | None) -> str:
    if name not in counts:
        return "no result"
    total = counts[name]["trainable"]
    text = findings.words(total)
    if baseline in counts and name != baseline:
        text += f", {render.decimal(100 * (total / counts[baseline]['trainable'] - 1), 2)} %"
    return text


def _scale(most: float) -> Callable[[float, int | None], str]:
    for size, name in ((1e9, " B"), (1e6, " M"), (1e3, " k")):
        if most >= size:
            return lambda x, _=None: f"{x / size:g}{name}" if x else "0"
    return lambda x, _=None: f"{x:g}"


# ---------------------------------------------------------------------- data


def data(results: Results) -> Figure:
    """Documents by length, kept or too short; documents by fate; tokens kept by shard, in the corpus' order."""
    store = results.store
    if store is None:
        figure = sheet(WIDTH, 1.2)
        empty(figure.subplots(), "no data yet")
        return figure
    fates = [("kept", store["kept"])]
    fates += [(reason.replace("_", " "), n) for reason, n in store["dropped"].items() if n]
    shares = [f"{n:,} ({_share(n, store['rows_in'])})" for _, n in fates]
    shards = [(shard["name"], shard["tokens"]) for shard in store["shards"]]
    few = len(shards) <= NAMED_SHARDS
    low = max(ROW * len(shards), 0.4) if few else 0.9
    figure = sheet(WIDTH, 2.4 + low + 0.4)
    places = [["lengths", "documents"], ["shards", "shards"]]
    axes = figure.subplot_mosaic(places, width_ratios=(1.5, 1.0), height_ratios=(2.3, low + 0.5))
    _lengths(results, axes["lengths"])
    documents, by_shard = axes["documents"], axes["shards"]
    documents.set_title("Documents kept and dropped")
    _named_bars(documents, fates, [KEPT] + [DROPPED] * (len(fates) - 1), shares)
    by_shard.set_title("Tokens kept by shard")
    if few:
        _named_bars(by_shard, shards, [KEPT] * len(shards), [f"{n:,}" for _, n in shards])
        return figure
    by_shard.stairs([n for _, n in shards], np.arange(len(shards) + 1) + 0.5, fill=True, color=KEPT)
    by_shard.set_xlim(0.5, len(shards) + 0.5)
    by_shard.set_ylim(0, None)
    by_shard.yaxis.set_major_locator(MaxNLocator(3))
    by_shard.yaxis.set_major_formatter(FuncFormatter(_scale(max(n for _, n in shards))))
    by_shard.set_xlabel("Shard, in the corpus' order")
    return figure


def _share(n: int, of: int) -> str:
    percent = 100 * n / max(of, 1)
    return "<0.01 %" if 0 < percent < 0.01 else f"{percent:.2f} %"


def _named_bars(axes: Axes, bars: list[tuple[str, int]], colours: list[str], ends: list[str]) -> None:
    """Horizontal bars with names before and counts behind them."""
    names_on_y(axes, [name for name, _ in bars])
    axes.grid(visible=False)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    axes.set_xlim(0, max((n for _, n in bars), default=0) or 1)
    for place, ((_, n), colour, end) in enumerate(zip(bars, colours, ends, strict=True)):
        axes.barh(place, n, height=0.7, color=colour)
        axes.annotate(
            end, (n, place), xytext=(3, 0), textcoords="offset points", va="center_baseline", fontsize=SMALL_PT,
            annotation_clip=False,
        )  # fmt: skip


def _lengths(results: Results, axes: Axes) -> None:
    """Encoded documents by number of tokens, on a logarithmic axis; the least that is kept as a line."""
    least, bins = results.settings.data.min_tokens, results.bins()
    axes.set_title("Documents by length")
    if not bins:
        empty(axes, "lengths were not counted")
        return
    low, high, kept, short = (np.array(column, dtype=float) for column in zip(*bins, strict=True))
    axes.set_xscale("log")
    axes.bar(low, short, width=high - low, align="edge", color=DROPPED, edgecolor="white", linewidth=0.3,
             label="too short")  # fmt: skip
    axes.bar(low, kept, width=high - low, bottom=short, align="edge", color=KEPT, edgecolor="white", linewidth=0.3,
             label=f"kept: from {least:,}")  # fmt: skip
    most = max(kept + short)
    axes.set_xlim(min(low[0], least / 2), max(high[-1], least * 2))
    axes.set_ylim(0, 1.35 * most)
    spans_decades = axes.get_xlim()[1] / axes.get_xlim()[0] > 30
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0,) if spans_decades else (1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(_scale(most)))
    axes.set_xlabel("Tokens")
    axes.set_ylabel("Documents")
    axes.axvline(least, color=INK, linewidth=0.8, linestyle=REFERENCE_LINE)
    axes.legend(loc="upper left", ncols=2, handlelength=1.0)


DRAWINGS: dict[str, Callable[[Results], Figure]] = {
    "loss": loss,
    "benchmarks": benchmarks,
    "differences": differences,
    "accounting": accounting,
    "data": data,
}
