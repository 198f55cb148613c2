"""Notations of a table, against readers that others wrote, and by properties."""

import ast
import csv
import io
import itertools
import math
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tokencodes.report import render
from tokencodes.report.render import Table

texts = st.text(max_size=30)
printable = st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), max_size=30)
names = st.from_regex(r"[a-z][a-z0-9]{0,8}(_[a-z0-9]{1,12}){0,4}", fullmatch=True)


def table_of(cells: list[list[str]], *, aside: int | None = None) -> Table:
    """A table with the cells as they are."""
    header = tuple(f"column_{i} of many" for i in range(len(cells[0])))
    return Table("name", "A caption.", header, tuple(map(tuple, cells)), (), aside=aside)


rectangles = st.integers(1, 6).flatmap(
    lambda width: st.lists(st.lists(printable, min_size=width, max_size=width), min_size=1, max_size=5)
)


@given(rectangles)
@example([["a|b", "*c*", "`d`", "<e>", "f\\"]])
def test_markdown_is_read_back_as_the_same_cells(cells):
    tokens = MarkdownIt("commonmark").enable("table").parse(render.to_markdown(table_of(cells)))
    cells_read = [
        "".join(child.content for child in following.children or [])
        for token, following in itertools.pairwise(tokens)
        if token.type == "td_open"
    ]
    cells_given = [render.clean(cell) for row in cells for cell in row]
    assert len(cells_read) == len(cells_given)
    for read, given_ in zip(cells_read, cells_given, strict=True):
        if not set("_~&") & set(given_):  # emphasis within a word and entities are no matter of tables
            assert read == given_


@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts), min_size=1, max_size=8))
def test_csv_is_exact(values):
    record = {f"c{i}": value for i, value in enumerate(values)}
    text = render.to_csv(Table("name", "", (), (), (record,)))
    _, row = csv.reader(io.StringIO(text)) if values != [None] else ([], [""])  # an empty line is no row to it
    for field, value in zip(row, values, strict=True):
        if value is None:
            assert field == ""
        elif isinstance(value, bool):
            assert field == str(value).lower()
        elif isinstance(value, float):
            assert (field == "NaN") if math.isnan(value) else (float(field) == value)
        elif isinstance(value, int):
            assert int(field) == value
        else:
            assert field == " ".join(value.split())


@given(texts)
@example("a_b & 50 % #1 {x} ~ ^ \\ $5 <±–−×≈|>")
def test_latex_has_no_bare_special_character(text):
    out = render.latex(text)
    assert all(c.isascii() or c in "äöüßéèêáàâóòôíìîúùûçñÄÖÜÉ§" for c in out)
    bare = re.sub(r"\\(?:textbackslash|textasciitilde|textasciicircum)\{\}", "", out)
    bare = re.sub(r"\\ensuremath\{(?:[<>|-]|\\[a-z]+)\}", "", bare)
    bare = re.sub(r"\\[&%$#_{},]", "", bare)
    assert not re.search(r"[\\&%$#_{}~^<>|]", bare)


@given(
    st.lists(st.integers(3, 30), min_size=2, max_size=12),
    st.integers(40, 120),
    st.integers(0, 11),
)
def test_parts_hold_each_column_once_and_fit(widths, limit, aside):
    aside = min(aside, len(widths) - 1) or None
    table = table_of([["x"] * len(widths), [render.GAP] * len(widths)], aside=aside)
    pieces = render.parts(table, [float(w) for w in widths], limit)
    assert [column for columns, _ in pieces for column in columns[1:]] == list(range(1, len(widths)))
    for columns, rows in pieces:
        assert columns[0] == 0
        assert sum(widths[c] for c in columns) <= limit or len(columns) == 2
        if len(pieces) > 1 and aside:
            assert columns[1] >= aside or columns[-1] < aside, "ours and the paper's are mixed in a part"
            assert rows == ([0] if columns[1] >= aside else [0, 1])


@given(names, st.integers(5, 20))
def test_a_title_is_broken_without_loss(name, width):
    lines = render.heading(name, width)
    assert "".join(lines) == name
    assert all(len(line) <= width or "_" not in line[:-1].rstrip("_") for line in lines)


@given(st.lists(names, min_size=1, max_size=12), st.integers(1, 4))
def test_text_fits_the_terminal(interfaces, rows):
    header = ("Benchmark, metric", *interfaces)
    body = tuple(
        ("A benchmark with a rather long name, metric", *("25.0 ± 4.3" for _ in interfaces)) for _ in range(rows)
    )
    text = render.to_text(Table("name", "A caption. " * 20, header, body, ()), 100)
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("25.0±4.3") == rows * len(interfaces)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (math.nan, "NaN"), (math.inf, "∞"), (-0.5, "−0.50"), (1234.5, "1,234.50"), (0.0, "0.00")],
)
def test_numbers(value, text):
    assert render.decimal(value, 2) == text


def test_signs_and_counts():
    assert render.signed(-100_663_296) == "−100,663,296"
    assert render.signed(0) == "0"
    assert render.signed(5) == "+5"
    assert render.count(1_812_039_680) == "1,812,039,680"
    assert render.count(None) == render.signed(None) == "–"


def test_every_sign_that_a_table_may_hold_has_a_form_in_latex(root):
    """Else a `≥` would be printed as a question mark. Rules of lines are for terminals alone,
    and control characters are cut out of a text before it is printed.
    """
    signs = set()
    for path in sorted((root / "src/tokencodes").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                signs |= {
                    sign for sign in node.value if not sign.isascii() and unicodedata.category(sign)[0] not in "CZ"
                }
    assert {"≥", "−", "±", "–"} <= signs
    assert [sign for sign in sorted(signs - {"─"}) if "?" in render.latex(sign)] == []
