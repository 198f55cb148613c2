"""One table, four notations: CSV in full precision; Markdown, LaTeX and plain text from the same rounded cells."""

import csv
import io
import math
import re
import textwrap
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

GAP = "–"  # no such result; never a zero
Record = dict[str, Any]  # one row in full precision: None is a gap, NaN what could not be computed

# LaTeX is set at \footnotesize (8 pt) for a text width of 6.5 in (a page with margins of an inch); a wider table is
# split into parts by columns. The estimates of a character's width are those of a digit in Computer Modern.
LATEX_WIDTH_IN = 6.5
LATEX_WIDTH_PT = 72.27 * LATEX_WIDTH_IN
LATEX_STUB_PT = 112.0  # the first column is at most so wide and wraps
LATEX_CHARACTER_PT = 4.25  # at 8 pt
LATEX_NARROW = 0.6  # of that: point, comma and the like
LATEX_SMALL = 0.93  # of that: 7 pt, as standard errors are set
LATEX_COLSEP_PT = 2.5
LATEX_ROWS = 50  # of a page; a longer table is split by rows
HEADER_CHARACTERS = 12  # longer column titles are broken over lines, at spaces and underscores


@dataclass(frozen=True)
class Table:
    """A table for people (`header`, `rows`: text) and for programs (`records`: full precision, a dict a row).

    The first column names the row. `sources` gives the files behind each row, as a pattern below the results folder.
    `aside` is the first of the columns that hold figures of others: where a table has to be split, they stay together.
    """

    name: str
    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    aside: int | None = None

    @classmethod
    def of(
        cls, records: Sequence[Record], columns: dict[str, Callable[[Record], str]], fields: Sequence[str] = (), *,
        source: Callable[[Record], str] = lambda record: "", gaps: bool = False, **rest: Any,
    ) -> "Table":  # fmt: skip
        """A row for each record. `columns`: by title, how a column shows a record; `fields`: the keys in files.

        `gaps`: where there is no record, one row of gaps.
        """
        rows = [tuple(show(record) for show in columns.values()) for record in records]
        sources = [source(record) for record in records]
        if gaps and not rows:
            rows, sources = [(GAP,) * len(columns)], [""]
        kept = tuple({field: record.get(field) for field in fields} for record in records)
        return cls(header=tuple(columns), rows=tuple(rows), records=kept, sources=tuple(sources), **rest)

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.header) for row in self.rows)
        assert not self.sources or len(self.sources) == len(self.rows)


# ------------------------------------------------------------------- numbers


def count(value: int | None) -> str:
    """1,234,567; a gap if there is none."""
    return GAP if value is None else f"{value:,}"


def span(counts: Sequence[int]) -> str:
    """100, or 100–1,000 from the least to the greatest; a gap if there is none."""
    ends = sorted({min(counts), max(counts)}) if counts else ()
    return "–".join(f"{end:,}" for end in ends) or GAP


def signed(value: int | None) -> str:
    """The same with a sign; zero has none."""
    return GAP if value is None else (f"{value:+,}".replace("-", "−") if value else "0")


def decimal(value: float | None, digits: int) -> str:
    """Fixed decimals; NaN as NaN; a gap if there is none."""
    if value is None:
        return GAP
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    return f"{value:,.{digits}f}".replace("-", "−")


MILLION = 1e6


def millions(value: float | None) -> str:
    """73.6M: for perplexities that have no meaning beyond their size."""
    return decimal(value, 1) if value is None or not math.isfinite(value) else f"{decimal(value / MILLION, 1)}M"


def digits_of(value: float) -> int:
    """Decimals that show about four significant digits of a perplexity."""
    size = abs(value)
    return 3 if size < 10 else 2 if size < 100 else 1 if size < 1000 else 0


MANY_DOCUMENTS = 1000  # from here on a standard error is below 1.6 points, and a second decimal means something


def score_format(kind: str, n: int, like: float = 0.0) -> Callable[[float | None], str]:
    """How scores of n documents near `like` are shown; `kind` is their metric or unit.

    Proportions in percent, losses with three decimals, perplexities with about four significant digits.
    """
    if is_proportion(kind):
        digits = 2 if n >= MANY_DOCUMENTS else 1
        return lambda score: decimal(None if score is None else 100 * score, digits)
    if kind.startswith(("bits", "nats")) or kind == "validation_loss":
        return lambda score: decimal(score, 3)
    if abs(like) >= MILLION:
        return millions
    return lambda score: decimal(score, digits_of(like))


def plus(shown: str) -> str:
    """A difference with its sign; zero, a gap and NaN have none; nothing stays nothing."""
    return shown if not shown or shown[0] in "−N–∞" or not float(shown.replace(",", "")) else f"+{shown}"


def bounds(shown_low: str, shown_high: str) -> str:
    """[low, high] of an interval, each with its sign."""
    return f"[{plus(shown_low)}, {plus(shown_high)}]"


LEAST_P = 0.0001  # a smaller p is shown as being so


def probability(p: float | None) -> str:
    """0.032; <0.0001; NaN; a gap if there is none."""
    if p is None or math.isnan(p):
        return GAP if p is None else "NaN"
    return f"<{LEAST_P}" if p < LEAST_P else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def is_proportion(metric: str) -> bool:
    """Whether a metric or unit is a share of documents, shown in percent."""
    return metric.startswith("acc") or metric in ("exact_match", "f1", "fraction")


def percent(metric: str) -> float:
    """By what a score is multiplied to be shown: 100 for a share of documents, else 1."""
    return 100.0 if is_proportion(metric) else 1.0


def mean(values: Sequence[float]) -> float | None:
    """The mean; None if there are no values."""
    return math.fsum(values) / len(values) if values else None


# ---------------------------------------------------------------------- text


def clean(text: str) -> str:
    """One line: what came from files may hold line ends."""
    return " ".join(str(text).split())


def heading(text: str, width: int = HEADER_CHARACTERS) -> list[str]:
    """A column title in lines of about `width` characters, broken at spaces and after underscores."""
    lines = [""]
    for piece in re.findall(r"[^\s_]+_*\s*|_+", clean(text)):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return [line.rstrip() for line in lines]


def parts(table: Table, widths: list[float], limit: float) -> list[tuple[list[int], list[int]]]:
    """Columns and rows of each part of a table that is to be at most `limit` wide; column 0 stands in all of them.

    A part that holds only figures of others leaves out the rows for which there are none.
    """
    rows = list(range(len(table.rows)))
    if sum(widths) <= limit:
        return [(list(range(len(widths))), rows)]
    aside = table.aside or len(widths)
    groups = _fill(range(1, aside), widths, limit) + _fill(range(aside, len(widths)), widths, limit)
    return [
        (group, rows if group[1] < aside else [r for r in rows if any(table.rows[r][c] != GAP for c in group[1:])])
        for group in groups
    ]


def _fill(columns: range, widths: list[float], limit: float) -> list[list[int]]:
    groups: list[list[int]] = []
    for column in columns:
        if not groups or sum(widths[used] for used in groups[-1]) + widths[column] > limit:
            groups.append([0])
        groups[-1].append(column)
    return groups


def to_csv(table: Table) -> str:
    """Full precision: floats by their shortest exact form, NaN as NaN, an empty field for a gap."""
    out = io.StringIO()
    columns = list(dict.fromkeys(key for record in table.records for key in record))
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for record in table.records:
        writer.writerow([_field(record.get(column)) for column in columns])
    return out.getvalue()


def _field(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else repr(float(value))
    return clean(value) if isinstance(value, str) else str(value)


def to_markdown(table: Table) -> str:
    """GitHub Markdown, columns padded so that the source reads as a table too."""
    body = [[_markdown(cell) for cell in row] for row in (table.header, *table.rows)]
    widths = [max(3, *(len(row[column]) for row in body)) for column in range(len(table.header))]

    def line(cells: list[str]) -> str:
        padded = [cells[0].ljust(widths[0])] + [c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]
        return "| " + " | ".join(padded) + " |"

    rule = "| " + " | ".join("-" * w if i == 0 else "-" * (w - 1) + ":" for i, w in enumerate(widths)) + " |"
    text = [f"**{_markdown(table.caption)}**", "", line(body[0]), rule, *(line(row) for row in body[1:])]
    for note in table.notes:
        text += ["", _markdown(note)]
    return "\n".join(text) + "\n"


def _markdown(text: str) -> str:
    return re.sub(r"([\\`*|<>\[\]])", r"\\\1", clean(text))


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{character: "\\" + character for character in "&%$#_{}"},
    "<": r"\ensuremath{<}",
    ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}",
    "−": r"\ensuremath{-}",
    "±": r"\,\ensuremath{\pm}\,",
    "×": r"\ensuremath{\times}",
    "≈": r"\ensuremath{\approx}",
    "≤": r"\ensuremath{\le}",
    "≥": r"\ensuremath{\ge}",
    "∞": r"\ensuremath{\infty}",
    "–": "--",
    "\u2014": "---",
    "\u2019": "'",
}


def latex(text: str) -> str:
    """`text` so that pdflatex prints it; characters that it has no glyph for lose their marks, or become `?`."""
    out = []
    for character in clean(text):
        if character in _LATEX:
            out.append(_LATEX[character])
        elif character.isascii() or character in "äöüßéèêáàâóòôíìîúùûçñÄÖÜÉ§":
            out.append(character)
        else:
            plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
            out.append("".join(_LATEX.get(letter, letter) for letter in plain) or "?")
    return "".join(out)


def _latex_cell(text: str) -> str:
    """A number; its standard error or its range over seeds is set smaller."""
    match = re.fullmatch(r"(\S+) (± \S+|\(\S+\))( \[.*\])?", text)
    if not match:
        return latex(text)
    number, small, rest = match.groups()
    return rf"{latex(number)}\,{{\scriptsize {latex(small.replace('± ', '±'))}}}{latex(rest or '')}"


def _latex_width(text: str) -> float:
    number, _, small = text.partition(" ")
    characters = [(number, 1.0), (small.replace("± ", "±"), LATEX_SMALL)]
    return sum(
        size * LATEX_CHARACTER_PT * (len(part) - (1 - LATEX_NARROW) * sum(c in ",.:()il " for c in part))
        for part, size in characters
    )


def to_latex(table: Table) -> str:
    """booktabs; what is wider than LATEX_WIDTH_PT or longer than LATEX_ROWS is split, each with the first column."""
    body = [table.header, *table.rows]
    stub_pt = min(max(len(row[0]) for row in body) * LATEX_CHARACTER_PT + LATEX_COLSEP_PT, LATEX_STUB_PT)
    widths = [stub_pt + LATEX_COLSEP_PT]
    for column in range(1, len(table.header)):
        head = max(len(line) for line in heading(table.header[column])) * LATEX_CHARACTER_PT
        widths.append(max([head, *(_latex_width(row[column]) for row in table.rows)]) + 2 * LATEX_COLSEP_PT)
    pieces = [
        (columns, rows[start : start + LATEX_ROWS])
        for columns, rows in parts(table, widths, LATEX_WIDTH_PT)
        for start in range(0, max(len(rows), 1), LATEX_ROWS)
    ]
    lines = [
        f"% The table `{table.name}`, written by `tokencodes tables`. Needs \\usepackage{{booktabs}}; set for a text",
        f"% width of {LATEX_WIDTH_IN} in.",
    ]
    for number, (columns, rows) in enumerate(pieces, start=1):
        part = f" (part {number} of {len(pieces)})" if len(pieces) > 1 else ""
        lines += [
            r"\begin{table}[tbp]",
            r"\centering\footnotesize",
            rf"\setlength{{\tabcolsep}}{{{LATEX_COLSEP_PT}pt}}",
            rf"\caption{{{latex(table.caption + part)}}}",
            rf"\label{{tab:{table.name}{f'-{number}' if number > 1 else ''}}}",
            rf"\begin{{tabular}}{{@{{}}p{{{stub_pt:.0f}pt}}{'r' * (len(columns) - 1)}@{{}}}}",
            r"\toprule",
            " & ".join(_latex_head(table.header[column], first=column == 0) for column in columns) + r" \\",
            r"\midrule",
            *(_latex_row(table.rows[row], columns) for row in rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        if number == len(pieces) and table.notes:
            lines.append(r"\par\smallskip\begin{minipage}{\linewidth}\scriptsize\raggedright")
            lines += [latex(note) + r"\par" for note in table.notes]
            lines.append(r"\end{minipage}")
        lines.append(r"\end{table}")
    return "\n".join(lines) + "\n"


def _latex_head(text: str, *, first: bool) -> str:
    lines = [latex(line) for line in ([text] if first else heading(text))]
    return lines[0] if len(lines) == 1 else r"\shortstack[r]{" + r" \\ ".join(lines) + "}"


def _latex_row(row: tuple[str, ...], columns: list[int]) -> str:
    first = r"\raggedright\hangindent=1em " + latex(row[0])
    return " & ".join([first, *(_latex_cell(row[column]) for column in columns[1:])]) + r" \\"


def to_text(table: Table, width: int) -> str:
    """Plain text for a terminal of `width` columns; a wider table is split by columns."""
    body = [[row[0], *(cell.replace(" ± ", "±") for cell in row[1:])] for row in table.rows]
    stub = min(max(len(row[0]) for row in [table.header, *body]), width // 3)
    heads = [[table.header[0]], *(heading(title) for title in table.header[1:])]
    widths = [stub]
    for column in range(1, len(table.header)):
        widths.append(2 + max(len(text) for text in [*heads[column], *(row[column] for row in body)]))
    lines = textwrap.wrap(table.caption, width)
    for number, (columns, rows) in enumerate(parts(table, [float(w) for w in widths], width)):
        if number:
            lines.append("")
        depth = max(len(heads[column]) for column in columns)
        for level in range(-depth, 0):
            titles = [heads[column][level] if len(heads[column]) >= -level else "" for column in columns[1:]]
            named = table.header[0] if level == -1 else ""
            cells = (title.rjust(widths[column]) for title, column in zip(titles, columns[1:], strict=True))
            lines.append(named.ljust(stub) + "".join(cells))
        lines.append("─" * sum(widths[column] for column in columns))
        for row in rows:
            *above, last = textwrap.wrap(body[row][0], stub, subsequent_indent="  ")
            lines += above
            lines.append(last.ljust(stub) + "".join(body[row][column].rjust(widths[column]) for column in columns[1:]))
    return "\n".join(line.rstrip() for line in lines) + "\n"


FILES: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}  # by their ending
