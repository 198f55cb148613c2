"""The page: well formed, self-contained, readable, and true to its files."""

import base64
import json
import re
import shlex
from html.parser import HTMLParser
from importlib import resources
from xml.etree import ElementTree

import pytest
import simulate
from simulate import write_json

from tokencodes import cli, config
from tokencodes.commandline import parse_line
from tokencodes.report import figures, page, tables
from tokencodes.report.results import read
from tokencodes.spec import parse

VOID = {"meta", "img", "br", "wbr"}


class Document(HTMLParser):
    """Elements with their attributes and text; raises on a tag that is not closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag} has an attribute twice"
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data):
        if "style" not in self.open:
            self.text.append(data)
        if self.cells and ("td" in self.open or "th" in self.open):
            self.cells[-1] += data


@pytest.fixture
def document(stage, folder) -> Document:
    """The page of the simulated run."""
    assert stage("figures", folder)[0] == 0
    assert stage("report", folder)[0] == 0
    return Document((folder / "report.html").read_text(encoding="utf-8"))


def test_it_is_self_contained(document, folder):
    tags = {tag for tag, _ in document.elements}
    assert not tags & {"script", "link", "iframe", "object", "embed", "base", "video", "audio", "source"}
    for _, attributes in document.elements:
        assert not any(name.startswith("on") for name in attributes)
        assert re.match(r"#\w+$", attributes.get("href") or "#x")
        assert re.match(r"data:image/svg\+xml;base64,", attributes.get("src") or "data:image/svg+xml;base64,")
    style = resources.files("tokencodes.report").joinpath("page.css").read_text()
    assert "url(" not in style and "@import" not in style
    assert "http" not in re.sub(r"data:[^\"]*", "", (folder / "report.html").read_text())


def test_pictures_have_text_and_are_the_drawn_ones(document, folder):
    images = [attributes for tag, attributes in document.elements if tag == "img"]
    assert len(images) == len(figures.DRAWINGS)
    contents = set()
    for attributes in images:
        assert len(attributes["alt"] or "") > 40
        content = base64.b64decode((attributes["src"] or "").partition(",")[2])
        ElementTree.fromstring(content)
        contents.add(content)
    assert contents == {(folder / f"figures/{name}.svg").read_bytes() for name in figures.DRAWINGS}
    final = json.loads((folder / "runs/gf2-s0/final.json").read_text())
    assert any(f"gf2 {final['val_loss']:.2f}" in (attributes["alt"] or "") for attributes in images)


@pytest.mark.parametrize("many", [False, True])
def test_many_shards_are_folded_away_and_all_there(stage, settings, folder, many):
    path = folder / "data/store/manifest.json"
    content = json.loads(path.read_text())
    if many:
        content = simulate.many_shards(content)
        write_json(path, content)
    assert stage("figures", folder)[0] == stage("report", folder)[0] == 0
    text = (folder / "report.html").read_text(encoding="utf-8")
    document = Document(text)
    cells = [" ".join(cell.split()) for cell in document.cells]
    for shard in content["shards"]:
        assert sum(cell.startswith(shard["name"]) for cell in cells) == 1
        assert f"{shard['tokens']:,}" in cells
    assert ("Each of the 234 shards</summary>" in text) is many
    assert any(cell.startswith("total") for cell in cells) and f"{content['rows_in']:,}" in cells


def test_sections_come_in_order_and_links_lead_somewhere(document):
    ids = [attributes["id"] for _, attributes in document.elements if attributes.get("id")]
    assert len(set(ids)) == len(ids)
    anchors = [(a.get("href") or "")[1:] for tag, a in document.elements if tag == "a"]
    assert anchors == [anchor for anchor, _ in page.SECTIONS]
    assert [name for name in ids if name in anchors] == anchors
    for _, attributes in document.elements:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids
    assert [tag for tag, _ in document.elements].count("h1") == 1


def test_it_says_at_the_top_that_a_toy_is_one(document):
    text = " ".join("".join(document.text).split())
    assert text.index("A toy run") < text.index("Table 1") < text.index("Table 2") < text.index("Figure 2")
    for word in ("Asked:", "Trained:", "Scored:"):
        assert text.index("A toy run") < text.index(word) < text.index("Table 1")


def test_it_has_every_cell_of_the_tables_and_names_their_files(document, settings, folder):
    results = read(settings, folder)
    cells = [" ".join(cell.split()) for cell in document.cells]
    for table in (make(results) for make in tables.TABLES.values()):
        for row in table.rows:
            assert set(row[1:]) <= set(cells), table.name
            assert any(cell.startswith(row[0]) for cell in cells)
    text = "".join(document.text)
    for path, sha in results.files.items():
        if not path.endswith("metrics.jsonl"):
            assert path in text and sha in text
    assert "piqa-0shot.json" in text and "eval/*-s0/" in text


def test_each_command_line_is_one_that_the_program_has(document, settings, folder):
    lines = [line for _, group in page.commands(read(settings, folder)) for line in group]
    stages = set()
    for line in lines:
        program, *arguments = shlex.split(line)
        if program == "tokencodes":
            stages.add(parse_line(cli.app, arguments).info_name)
        else:
            assert program == "snakemake"
    assert stages == {
        *("params", "tokenizer", "download", "prepare", "index", "train", "export", "validate", "benchmarks"),
        *("evaluate", "compare", "tables", "figures", "report"),
    }


def test_command_lines_are_quoted_for_a_shell(settings, folder):
    """A folder's name may have spaces and signs that mean something to a shell."""
    odd = settings.model_copy(update={"results": "my results; rm $HOME"})
    for line in (line for _, group in page.commands(read(odd, folder)) for line in group):
        words = [word for word in shlex.split(line) if "rm $HOME" in word]
        assert words and all(word.startswith("my results; rm $HOME/quickstart") for word in words), line


def test_what_comes_from_files_is_text(stage, folder):
    path = folder / "eval/gf2-s0/piqa-0shot.json"
    content = json.loads(path.read_text())
    content["label"] = content["data"] = "<script>alert(1)</script>"
    write_json(path, content)
    path = folder / "eval/learned-s0/piqa-0shot.json"
    write_json(path, json.loads(path.read_text()) | {"label": '<img src=x onerror="x">'})
    stage("figures", folder)
    assert stage("report", folder)[0] == 0
    document = Document((folder / "report.html").read_text())
    assert "script" not in {tag for tag, _ in document.elements}
    assert sum(tag == "img" for tag, _ in document.elements) == len(figures.DRAWINGS)


def test_a_figure_that_is_not_drawn_is_named(stage, folder):
    code, said = stage("report", folder)
    assert code == 2
    assert "figures/" in said and "tokencodes figures" in said
    stage("figures", folder)
    (folder / "figures/loss.svg").write_text("<svg>")
    code, said = stage("report", folder)
    assert code == 2
    assert "figures/loss.svg" in said
    assert not (folder / "report.html").exists()


def test_the_same_results_give_the_same_page(stage, folder):
    stage("figures", folder)
    stage("report", folder)
    first = (folder / "report.html").read_bytes()
    stage("report", folder)
    assert (folder / "report.html").read_bytes() == first


def test_failed_checks_and_gaps_are_seen(stage, folder):
    path = folder / "validation/gf2-s0.json"
    content = json.loads(path.read_text())
    content["checks"][0]["passed"] = False
    write_json(path, content)
    (folder / "validation/learned-s0.json").unlink()
    stage("figures", folder)
    stage("report", folder)
    document = Document((folder / "report.html").read_text())
    assert "FAILED" in document.cells
    assert "7 of 8 passed, for 2 of 3 models" in "".join(document.text)


@pytest.mark.parametrize("kind", ["nothing has run", "controls", "no benchmark", "no learned table", "local corpus"])
def test_runs_of_other_shapes(settings, tmp_path, kind):
    value = settings.model_dump(mode="json")
    if kind == "no benchmark":
        value["evaluate"]["tasks"] = []
    if kind == "no learned table":
        value["interfaces"] = {"gf2": value["interfaces"]["gf2"]}
    if kind == "local corpus":
        value["data"]["source"] = {"kind": "local", "path": "corpus/<mine>"}
    chosen = simulate.controls(settings) if kind == "controls" else parse(config.Config, value, kind)
    if kind != "nothing has run":
        simulate.results(chosen, tmp_path)
    tables.write(chosen, tmp_path)
    figures.write(chosen, tmp_path)
    page.write(chosen, tmp_path, tmp_path / "report.html")
    document = Document((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert set(chosen.interfaces) <= {" ".join(cell.split()) for cell in document.cells}


# Text and what it may lie on, by the style sheet's names.
PAIRS = [
    *(("ink", ground) for ground in ("paper", "aside", "notice", "code")),
    *(("muted", ground) for ground in ("paper",)),
    ("link", "paper"),
    ("bad", "paper"),
]


def luminance(colour: str) -> float:
    """Relative luminance by WCAG 2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("pair", PAIRS, ids="-on-".join)
def test_contrast_is_aa_in_light_dark_and_print(pair):
    style = resources.files("tokencodes.report").joinpath("page.css").read_text()
    schemes = re.findall(r":root \{([^}]*)\}", style)
    assert len(schemes) == 3
    for scheme in schemes:
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", scheme))
        light, dark = sorted((luminance(colours[name]) for name in pair), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (4.25, "4.2 s"), (61.5, "1 min 2 s"), (7325, "2 h 2 min"), (190_000, "2 d 4 h")],
)
def test_durations(seconds, text):
    assert page.duration(seconds).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("joules", "text"), [(None, "–"), (45_000, "12.5\u00a0Wh"), (9e8, "250.00\u00a0kWh"), (3.6e6, "1.00\u00a0kWh")]
)
def test_energies(joules, text):
    assert page.energy(joules) == text
