"""The docs: links lead somewhere, and each command, option and make target that they show exists."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from tokencodes import cli

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".", "config", "docs", "results")
    for path in (ROOT / folder).glob("*.md")
)
STAGES = get_command(cli.app).commands


def anchors(path: Path) -> set[str]:
    """The anchors that a page's headings get, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    path = ROOT / page
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if not target.startswith("http"):
            file, _, anchor = target.partition("#")
            place = (path.parent / file).resolve() if file else path
            assert place.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(place), f"{page}: {target}"


def test_every_page_of_the_docs_is_linked_from_the_readme():
    readme = (ROOT / "README.md").read_text()
    assert not [page for page in PAGES if page.startswith("docs/") and f"({page})" not in readme]


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_that_a_page_shows_exist(page):
    text = (ROOT / page).read_text()
    for stage, rest in re.findall(r"\btokencodes ([a-z]+)((?: [^`\n]*)?)", "\n".join(code(text))):
        assert stage in STAGES, f"{page}: tokencodes {stage}"
        options = {name for param in STAGES[stage].params for name in param.opts}
        shown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest))
        assert shown <= options | {"--help"}, f"{page}: tokencodes {stage}{rest}"
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"\bmake ([a-z-]+)", "\n".join(code(text)))) <= set(targets)


def code(text: str) -> list[str]:
    """What a page shows as code: blocks, and spans on one line or two."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    return [*blocks, *(span.replace("\n", " ") for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text))]


def test_the_plan_of_the_paper_is_the_one_that_the_page_shows(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)  # no results of a run are here
    assert cli.main(["plan", "--config", str(ROOT / "config/paper.yaml")]) == 0
    assert f"```\n{capsys.readouterr().out}```" in (ROOT / "docs/reproducing.md").read_text()
