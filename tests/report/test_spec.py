"""The display section: names that are there, colours that are colours."""

import pytest

from tokencodes.errors import UserError
from tokencodes.report.spec import Display


def test_the_baseline_is_what_is_asked_for_or_the_table(tiny):
    assert tiny.config().display.baseline_of(["gf2", "learned"]) == "learned"
    assert Display().baseline_of(["gf2", "binary9"]) == "gf2"
    assert tiny.config(display={"baseline": "gf2"}).display.baseline_of(["learned", "gf2"]) == "gf2"


def test_a_label_stands_for_a_name(tiny):
    display = tiny.config(display={"labels": {"gf2": "recoded"}}).display
    assert (display.label("gf2"), display.label("learned")) == ("recoded", "learned")


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"baseline": "gf3"}, "display.baseline: 'gf3' is not in interfaces; did you mean 'gf2'?"),
        ({"labels": {"learnt": "x"}}, "display.labels.learnt: 'learnt' is not in interfaces; did you mean 'learned'?"),
        ({"colours": {"gf9": "#123456"}}, "display.colours.gf9: 'gf9' is not in interfaces"),
        ({"colours": {"gf2": "red"}}, "display.colours.gf2: "),
        ({"groups": {"a": ["gf2", "x"]}}, "display.groups.a: 'x' is not in interfaces"),
        ({"groups": {"a": ["gf2"], "b": ["gf2"]}}, "display.groups: 'gf2' is named twice"),
        ({"colors": {}}, "display.colors: unknown key; did you mean 'colours'?"),
    ],
)
def test_a_name_that_is_not_there_is_one_line(tiny, section, said):
    with pytest.raises(UserError) as caught:
        tiny.config(display=section)
    assert said in str(caught.value) and "\n" not in str(caught.value)
