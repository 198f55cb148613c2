"""Figures: what is drawn, that nothing collides or is cut, and that bytes are the same each time."""

import itertools
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
import simulate
from matplotlib.text import Text
from simulate import write_json

from tokencodes.analysis.pairing import FRACTION
from tokencodes.config import Config
from tokencodes.report import differences, figures, style
from tokencodes.report.results import read
from tokencodes.spec import parse

KINDS = {
    "quickstart": lambda settings: settings,
    "controls": simulate.controls,
    "many": lambda settings: settings,  # shards
    "kept": lambda settings: settings,  # nothing dropped, and the shortest document far above the least
    "short": lambda settings: settings,  # no document much longer than the least
}


@pytest.fixture(scope="module")
def drawn(settings, tmp_path_factory):
    """Results and figures by kind and name."""
    found = {}
    for kind, change in KINDS.items():
        chosen = change(settings)
        folder = simulate.results(chosen, tmp_path_factory.mktemp(kind))
        if kind == "many":
            path = folder / "data/store/manifest.json"
            write_json(path, simulate.many_shards(json.loads(path.read_text())))
        if kind in ("kept", "short"):
            reshape(folder / "data/store/manifest.json", chosen.data.min_tokens, kind)
        results = read(chosen, folder)
        with mpl.rc_context({**mpl.rcParamsDefault, **style.RC}):
            found[kind] = results, {name: draw(results) for name, draw in figures.DRAWINGS.items()}
            for figure in found[kind][1].values():
                figure.canvas.draw()
    return found


def reshape(path: Path, least: int, kind: str) -> None:
    """Another mix of documents in a simulated store: all are kept; lengths lie where `kind` says."""
    value = json.loads(path.read_text())
    value["kept"], value["dropped"] = value["rows_in"], dict.fromkeys(value["dropped"], 0)
    value["train"]["documents"] = value["kept"] - value["validation"]["documents"]
    bins = value["lengths"]
    where = (least * 11, least * 400) if kind == "kept" else (least, least * 1.5)
    drawn = np.random.default_rng(0).uniform(*where, value["kept"])
    bins["kept"] = np.histogram(drawn, bins["edges"])[0].tolist()
    bins["too_few_tokens"] = [0] * len(bins["kept"])
    write_json(path, value)


def shown_texts(figure) -> list[Text]:
    """All texts that are drawn: of ticks, those within the axes."""
    texts = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        texts += axes.get_legend().get_texts() if axes.get_legend() else []
        texts += [*axes.texts, axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        texts += [tick.label1 for axis in (axes.xaxis, axes.yaxis) for tick in axis._update_ticks()]
    return [text for text in texts if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", figures.DRAWINGS)
def test_no_text_collides_is_cut_or_too_small(drawn, kind, name):
    figure = drawn[kind][1][name]
    renderer = figure.canvas.get_renderer()
    texts = shown_texts(figure)
    assert min(text.get_fontsize() for text in texts) >= 7
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts]
    assert boxes
    width, height = figure.get_size_inches() * figure.dpi
    for text, box in boxes:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, f"{text!r} is cut"
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        shared = (min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0))
        assert min(shared) <= 1.0, f"{one!r} and {other!r} overlap"


@pytest.mark.parametrize("kind", KINDS)
def test_each_interface_is_named_and_keeps_its_colour(drawn, kind):
    results, by_name = drawn[kind]
    looks = style.looks(results.settings.display, list(results.settings.interfaces))
    assert len({(look.colour, str(look.line), look.marker) for look in looks.values()}) == len(looks)
    for name, figure in by_name.items():
        if name == "data":  # of the corpus, which they share
            continue
        words = [text.get_text() for text in shown_texts(figure)]
        for interface in results.settings.interfaces:
            if name == "differences" and interface == results.baseline():
                continue  # the others are compared with it
            assert interface in words, f"{interface} is not named in {name}"
    ranked = by_name["loss"].axes[2]
    places = {
        label.get_text(): place for place, label in zip(ranked.get_yticks(), ranked.get_yticklabels(), strict=True)
    }
    for interface, place in places.items():
        marks = [line for line in ranked.lines if list(line.get_ydata()) == [place]]
        assert {line.get_color() for line in marks} == {looks[interface].colour}


def test_the_final_losses_are_ranked(drawn):
    for results, by_name in drawn.values():
        ranked = by_name["loss"].axes[2]
        measured = results.curves.dropna(subset=["val_loss"]).sort_values("step")
        finals = measured.groupby(["interface", "seed"]).val_loss.last().groupby("interface").mean()
        names = [label.get_text() for label in ranked.get_yticklabels()]
        assert names == list(finals.sort_values(kind="stable").index)
        marks = {line.get_ydata()[0]: line.get_xdata()[0] for line in ranked.lines if len(line.get_xdata()) == 1}
        assert [marks[place] for place in range(len(names))] == pytest.approx(list(finals.sort_values(kind="stable")))


def test_labels_groups_and_colours_of_the_config_are_drawn(settings, tmp_path):
    section = {
        "labels": {"gf2": "recoded"},
        "colours": {"gf2": "#123456"},
        "groups": {"fixed": ["gf2", "binary12"]},
    }
    chosen = parse(Config, settings.model_dump(mode="json") | {"display": section}, "display")
    results = read(chosen, simulate.results(chosen, tmp_path / "x"))
    with mpl.rc_context({**mpl.rcParamsDefault, **style.RC}):
        for name in ("loss", "benchmarks", "differences", "accounting"):
            figure = figures.DRAWINGS[name](results)
            figure.canvas.draw()
            words = [text.get_text() for text in shown_texts(figure)]
            assert "recoded" in words and "gf2" not in words, name
            if name != "accounting":
                assert "#123456" in {line.get_color() for axes in figure.axes for line in axes.lines}


def test_one_wide_interval_does_not_set_the_axis_for_all(settings, tmp_path):
    """Two seeds can give an interval of any length: it is cut, and ends in arrows."""
    chosen = parse(Config, simulate.controls(settings).model_dump(mode="json") | {"seeds": [0, 1]}, "two seeds")
    results = read(chosen, simulate.results(chosen, tmp_path / "x"))
    figure = figures.differences(results)
    (limits,) = {axes.get_xlim() for axes in figure.axes}
    rows = [row for row in differences.paired_rows(results) if row["unit"] == FRACTION]
    ends = np.array([100 * abs(row[end]) for row in rows for end in ("low", "high")])
    ends = ends[np.isfinite(ends)]
    arrows = [line for axes in figure.axes for line in axes.lines if line.get_marker() in ("<", ">")]
    assert limits[1] == -limits[0] and len(arrows) == (ends > limits[1]).sum() > 0
    assert all(abs(100 * row["difference"]) <= limits[1] for row in rows)


def test_benchmark_marks_are_the_scores(drawn, settings):
    results, by_name = drawn["quickstart"]
    panel = by_name["benchmarks"].axes[1]  # PIQA, the second task
    for place, interface in enumerate(settings.interfaces):
        content = json.loads((results.root / f"eval/{interface}-s0/piqa-0shot.json").read_text())["metrics"]["acc"]
        bar, mark = (line for line in panel.lines if list(line.get_ydata()) in ([place], [place, place]))
        assert mark.get_xdata()[0] == pytest.approx(100 * content["value"])
        reach = 1.96 * 100 * content["stderr"]
        assert list(bar.get_xdata()) == pytest.approx([100 * content["value"] - reach, 100 * content["value"] + reach])
    assert any(list(line.get_xdata()) == [50.0, 50.0] for line in panel.lines), "chance is not drawn"


def hollow_marks(figure) -> list[float]:
    """x of the hollow diamonds."""
    return [
        float(line.get_xdata()[0])
        for axes in figure.axes
        for line in axes.lines
        if line.get_marker() == "D" and line.get_markerfacecolor() == "white"
    ]


def test_the_papers_figures_enter_a_plot_only_at_its_size(drawn, settings, tmp_path):
    assert hollow_marks(drawn["quickstart"][1]["benchmarks"]) == []
    paper = simulate.paper_size(settings)
    simulate.write_params(tmp_path / "params.json", simulate.parameters(paper))
    marks = hollow_marks(figures.benchmarks(read(paper, tmp_path)))
    assert {57.79, 52.40, 51.44, 16.50} <= set(marks)
    assert len(marks) == 10 * 3 - 1  # ten benchmarks, three models, one cell not given


def test_accounting_bars_are_the_counts(drawn):
    results, by_name = drawn["quickstart"]
    widths = [bar.get_width() for bar in by_name["accounting"].axes[0].patches]
    expected = [row[part] for row in results.params.to_dict("records") for part in ("backbone", "head", "input")]
    assert widths == expected


def test_data_bars_are_the_stores_counts(drawn):
    results, by_name = drawn["quickstart"]
    lengths, fates, shards = by_name["data"].axes
    found = results.store["lengths"]
    for fate, colour in (("kept", figures.KEPT), ("too_few_tokens", figures.DROPPED)):
        bars = [bar for bar in lengths.patches if mpl.colors.same_color(bar.get_facecolor(), colour)]
        drawn_bars = {(bar.get_x(), bar.get_x() + bar.get_width()): bar.get_height() for bar in bars}
        for low, high, n in zip(found["edges"][:-1], found["edges"][1:], found[fate], strict=True):
            assert drawn_bars.get((low, high), 0) == n
    assert lengths.get_xscale() == "log"
    assert list(lengths.lines[0].get_xdata()) == [results.settings.data.min_tokens] * 2
    assert [bar.get_width() for bar in fates.patches] == [240, 4, 4]
    assert [bar.get_width() for bar in shards.patches] == [shard["tokens"] for shard in results.store["shards"]]
    words = [text.get_text() for text in shown_texts(by_name["data"])]
    assert {"kept", "too few bytes", "too few tokens", "240 (96.77 %)"} <= set(words) and "null text" not in words


def test_many_shards_are_one_outline(drawn):
    results, by_name = drawn["many"]
    shards = by_name["data"].axes[2]
    (outline,) = shards.patches
    assert outline.get_data().values.tolist() == [shard["tokens"] for shard in results.store["shards"]]
    assert max(by_name["data"].get_size_inches()) <= 7


def test_the_same_results_give_the_same_bytes(settings, folder, tmp_path):
    figures.write(settings, folder)
    elsewhere = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    shutil.rmtree(elsewhere / "figures")
    with mpl.rc_context({"font.size": 20, "figure.facecolor": "red"}):  # a user's own style does not reach them
        figures.write(settings, elsewhere)
    names = sorted(path.name for path in (folder / "figures").iterdir())
    assert names == sorted(f"{name}.{kind}" for name in figures.DRAWINGS for kind in ("png", "svg", "pdf"))
    for name in names:
        assert (folder / "figures" / name).read_bytes() == (elsewhere / "figures" / name).read_bytes(), name
    for name in figures.DRAWINGS:
        text = (folder / f"figures/{name}.svg").read_text()
        ElementTree.fromstring(text)
        assert "<dc:date>" not in text


def test_an_edit_reaches_its_figure_alone(settings, folder):
    def drawn_bytes() -> dict[str, bytes]:
        figures.write(settings, folder)
        return {path.name: path.read_bytes() for path in (folder / "figures").iterdir()}

    before = drawn_bytes()
    path = folder / "eval/gf2-s0/corpus_validation-0shot.json"
    content = json.loads(path.read_text())
    content["metrics"]["bits_per_byte"]["value"] += 0.5
    write_json(path, content)
    after = drawn_bytes()
    assert {name for name in after if after[name] != before[name]} == {
        f"benchmarks.{kind}" for kind in ("png", "svg", "pdf")
    }


def test_gaps_and_nan_are_said_in_the_plot(settings, folder):
    (folder / "eval/gf2-s0/piqa-0shot.json").unlink()
    path = folder / "eval/learned-s0/piqa-0shot.json"
    content = json.loads(path.read_text())
    content["metrics"]["acc"]["value"] = None
    write_json(path, content)
    texts = [text.get_text() for text in figures.benchmarks(read(settings, folder)).axes[1].texts]
    assert "no result" in texts and "NaN" in texts


def test_figures_of_a_run_that_has_not_begun(settings, tmp_path):
    figures.write(settings, tmp_path)
    assert all(path.stat().st_size > 1000 for path in (tmp_path / "figures").iterdir())


def test_a_run_of_one_step_is_drawn(settings, folder):
    for path in (folder / "runs").rglob("metrics.jsonl"):
        path.write_bytes(path.read_bytes().split(b"\n")[0] + b"\n")
        (path.parent / "final.json").unlink()
    figures.write(settings, folder)
