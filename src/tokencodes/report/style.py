"""How figures look: their type, and one colour, line and marker for each interface in all of them."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tokencodes.report.spec import Display

# Okabe and Ito's colours, told apart by colour-blind readers; their yellow is too pale on white and is left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p")
LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (7, 2, 2, 2)))
INK, FAINT, GRID = "#222222", "#6B6B6B", "#E4E4E4"
REFERENCE_LINE = (0, (2, 1.6))  # chance, and other lines that no model drew

TEXT_PT = 8.0
PLACES = 6  # decimals of a place in a figure, of which its width is 1
SMALL_PT = 7.2

RC: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": TEXT_PT,
    "axes.titlesize": TEXT_PT,
    "axes.titlelocation": "left",
    "axes.labelsize": TEXT_PT,
    "xtick.labelsize": SMALL_PT,
    "ytick.labelsize": SMALL_PT,
    "legend.fontsize": SMALL_PT,
    "legend.frameon": False,
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


@dataclass(frozen=True)
class Look:
    """How one interface is drawn in every figure."""

    label: str
    colour: str
    line: Any
    marker: str


def looks(display: Display, interfaces: list[str]) -> dict[str, Look]:
    """A look for each interface, none of them twice.

    Up to eight interfaces have a colour each. More of them share colours by group (`display.groups`), and differ by
    line and marker within a group. A colour that the config states is kept.
    """
    many = len(interfaces) > len(COLOURS)
    by_name = {}
    for number, members in enumerate(_groups(display, interfaces)):
        for place, name in enumerate(members):
            order = interfaces.index(name)
            colour = COLOURS[number % len(COLOURS)] if many else COLOURS[order]
            marker = MARKERS[(place + number // len(COLOURS)) % len(MARKERS)] if many else MARKERS[order]
            by_name[name] = Look(
                label=display.label(name),
                colour=display.colours.get(name, colour),
                line=LINES[place % len(LINES)] if many else "-",
                marker=marker,
            )
    return {name: by_name[name] for name in interfaces}


def _groups(display: Display, interfaces: list[str]) -> list[list[str]]:
    """The groups of the config; what is in none of them is cut into groups of as many as there are lines."""
    groups = [[name for name in names if name in interfaces] for names in display.groups.values()]
    rest = [name for name in interfaces if not any(name in group for group in groups)]
    return [*groups, *(rest[start : start + len(LINES)] for start in range(0, len(rest), len(LINES)))]


def sheet(width: float, height: float) -> Figure:
    """An empty figure of that size in inches, whose parts are laid out so that they do not touch."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def settle(figure: Figure) -> None:
    """Lay the figure out once, and round where its axes lie: the solver's last bits differ from call to call."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        axes.set_position([round(edge, PLACES) for edge in axes.get_position().bounds])


def empty(axes: Axes, text: str) -> None:
    """Axes that show nothing but a reason."""
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=FAINT)


def names_on_y(axes: Axes, names: list[str]) -> None:
    """A row for each name, from the top."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0, labelsize=TEXT_PT)
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)
