"""The page in a real headless Chromium: nothing complains, nothing is wider than the screen, all can be read."""

from pathlib import Path

import pytest
import simulate
from browser import PX_PER_IN, browser, program

from tokencodes.report import figures, page

pytestmark = pytest.mark.skipif(
    program() is None,
    reason="NO CHROMIUM: the page was not looked at in a browser. On Debian: apt-get install chromium-headless-shell; "
    "elsewhere name one in TOKENCODES_CHROMIUM",
)

PHONE, DESK = 360, 1280  # pixels
AA = 4.5  # least contrast of text, by WCAG 2

WIDER = """
[...document.querySelectorAll('body *')].filter(e => {
  for (let up = e; up; up = up.parentElement)
    if (up !== e && ['auto', 'scroll'].includes(getComputedStyle(up).overflowX)) return false;
  const box = e.getBoundingClientRect();
  return box.width && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(e => e.tagName + ': ' + e.textContent.slice(0, 60))
"""

# Of each element with text of its own: what it says, and the contrast to the nearest ground that is not transparent.
CONTRASTS = """
(() => {
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = colour => {
    const [r, g, b] = colour.slice(0, 3).map(c => c / 255)
      .map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = e => {
    for (; e; e = e.parentElement) {
      const found = rgb(getComputedStyle(e).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  return [...document.querySelectorAll('body *')]
    .filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
    .map(e => {
      const [low, high] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort((a, b) => a - b);
      return [e.tagName + ': ' + e.textContent.trim().slice(0, 60), (high + 0.05) / (low + 0.05)];
    });
})()
"""


@pytest.fixture(scope="module")
def seen(settings, tmp_path_factory):
    """A browser, and the pages of a small and of a wide run."""
    root = tmp_path_factory.mktemp("browser")
    pages = {}
    for name, chosen in (("quickstart", settings), ("controls", simulate.controls(settings))):
        simulate.results(chosen, root / name)
        figures.write(chosen, root / name)
        pages[name] = root / name / "report.html"
        page.write(chosen, root / name, pages[name])
    with browser(root / "profile") as found:
        yield found, pages


@pytest.mark.parametrize("run", ["quickstart", "controls"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_complains_and_nothing_is_wider_than_the_screen(seen, run, width):
    chromium, pages = seen
    chromium.open(pages[run], width=width)
    chromium.value("document.querySelectorAll('details').forEach(e => { e.open = true })")
    assert chromium.complaints() == []
    asked = [address for address in chromium.requests() if not address.startswith("data:")]
    assert len(asked) == 1 and asked[0].startswith("file:"), "the page asks for nothing but itself"
    assert chromium.value("document.documentElement.scrollWidth <= innerWidth")
    assert chromium.value(WIDER) == []
    assert chromium.value("document.body.scrollHeight") > 2000


def test_pictures_are_drawn_and_have_text(seen):
    chromium, pages = seen
    chromium.open(pages["quickstart"], width=DESK)
    found = chromium.value(
        "[...document.images].map(i => [i.complete && i.naturalWidth > 0, i.getBoundingClientRect().width, i.alt])"
    )
    assert len(found) == len(figures.DRAWINGS)
    assert all(drawn and width > 200 and len(alternative) > 40 for drawn, width, alternative in found)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("media", ["", "print"])
def test_all_text_has_contrast(seen, dark, media):
    chromium, pages = seen
    chromium.open(pages["quickstart"], width=DESK, dark=dark, media=media)
    chromium.value("document.querySelectorAll('details').forEach(e => { e.open = true })")
    found = chromium.value(CONTRASTS)
    assert len(found) > 300
    assert [text for text, contrast in found if contrast < AA] == []
    ground = chromium.value("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is not (dark and not media), "dark is dark, and print is white"


def test_it_prints_on_paper(seen, tmp_path):
    chromium, pages = seen
    chromium.open(pages["quickstart"], width=round(7.17 * PX_PER_IN), media="print")  # A4 less its margins
    assert chromium.value(WIDER) == []
    assert chromium.value("document.documentElement.scrollWidth <= innerWidth")
    chromium.print(tmp_path / "page.pdf")
    content = (tmp_path / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF") and 3 <= content.count(b"/Type /Page\n") <= 40
    assert Path(tmp_path / "page.pdf").stat().st_size < 20e6
