"""YAML 1.2, read strictly and within bounds, by files that were made to be none; what is written reads back."""

import json
import math
import string

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from drawing import cases
from tokencodes.errors import UserError
from tokencodes.spec import Strict
from tokencodes.yamlfile import MAX_BYTES, MAX_DEPTH, MAX_NUMBER, MAX_TEXT, dump, parse_yaml, read_yaml, typed


def refusal(text: str) -> str:
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "x.yaml")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("x.yaml: ")
    return line


PLAIN = {  # what YAML 1.2 says of a value without quotes, where YAML 1.1 says the same
    **{text: None for text in ("", "~", "null", "Null", "NULL")},
    **{text: text.lower() == "true" for text in ("true", "True", "TRUE", "false", "False", "FALSE")},
    **{text: int(text) for text in ("0", "7", "-7", "+7", "123456789012345678901")},
    **{"0x1F": 31, "1.5": 1.5, "-0.5": -0.5, "1.": 1.0, "1.5e+3": 1500.0, ".inf": math.inf, "-.inf": -math.inf},
    **{"1e-5": 1e-5, "1.5e-4": 1.5e-4, "3E4": 3e4, "6e0": 6.0, ".5e3": 500.0},  # text for PyYAML alone
    **{text: text for text in ("1e5x", "0.1.2", "a b", "nul", "yess", "-x", "x:y", "~/x", "1-2")},
}


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_value_is_what_yaml_1_2_says(text):
    (value,) = parse_yaml(f"key: {text}", "x").values()
    assert value == PLAIN[text] and type(value) is type(PLAIN[text])


AMBIGUOUS = [
    *("010", "-010", "007", "08", "0o14", "0b11", "1_000", "0x_1F", "-0x1F", "1:30", "24:00:00", "1:30.5", "1_0.5"),
    *("yes", "No", "ON", "off", "=", "<<", "2024-01-01", "2024-01-01T10:00:00Z", "2024-13-45", "0x_", "1__"),
]


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_a_plain_value_that_readers_differ_on_is_refused(text):
    assert "line 1, column 6: " in refusal(f"key: {text}")
    assert parse_yaml(f"key: '{text}'", "x") == {"key": text}
    assert refusal(f"[{text}]") and refusal(f"{text}: 1")


def test_yaml_1_1_and_we_read_the_same_or_we_refuse():
    """Snakemake reads config files with PyYAML. The exception is a number like 1e5, which is text there."""
    alphabet = "0123456789" * 2 + "+-._:eExobinfatruys~=<T Z"
    for label, draw in cases("values without quotes", 500):
        text = "".join(draw.choices(alphabet, k=draw.randint(1, 6)))
        try:
            value = parse_yaml(f"- {text}", "x")
        except UserError:
            continue
        try:
            older = yaml.load(f"- {text}", Loader=yaml.FullLoader)
        except (yaml.YAMLError, ValueError):
            raise AssertionError(f"{label}: {text!r} is {value} here, and refused by PyYAML") from None
        if isinstance(value[0], float) and isinstance(older[0], str):
            assert "e" in text.lower(), label
        else:
            assert repr(value) == repr(older), (label, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!int ''", "line 1, column 4: the tag !!int is not taken; write the value without it"),
        ("a: !!bool maybe", "the tag !!bool is not taken"),
        ("a: ! x", "the tag ! is not taken"),
        ("a: {<<: {b: 1}}", "line 1, column 5: the merge key << is no part of YAML 1.2; write the keys out"),
        ("1: x", "the key 1 is not text; put quotes around it"),
        ("true: x", "the key True is not text; put quotes around it"),
        ("&a [1]: x", "a key is a list or a mapping"),
        ("a: *b", "no value before the alias *b has that anchor"),
        ("a: &b [*b]", "no value before the alias *b has that anchor"),
        ("--- 1\n--- 2", "line 2, column 1: a second document starts here"),
        ('a: "\\x1b[31m"', "a text with the control character U+001B; leave it out"),
        ('a: "\\u202e"', "a text with the control character U+202E"),
        ('"a\\nb": 1', "a text with the control character U+000A"),
        (f"a: {'9' * (MAX_NUMBER + 1)}", f"a number of {MAX_NUMBER + 1} characters"),
        (f"a: 0.{'9' * 5000}", "a number of 5,002 characters"),
        (f"a: {'x' * (MAX_TEXT + 1)}", "a text of 4,097 characters; the longest that is taken has 4,096"),
        ("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), f"more than {MAX_DEPTH} lists and mappings lie inside"),
    ],
)
def test_what_is_refused_is_named_with_its_place(text, message):
    assert message in refusal(text)


def test_an_alias_stands_for_its_value_and_counts_as_much():
    assert parse_yaml("a: &x {b: [1]}\nc: *x\nd: [*x, *x]", "x")["d"] == [{"b": [1]}] * 2
    layers = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 10)}]\n" for n in range(1, 9))
    assert "aliases written out" in refusal("x0: &x0 [a]\n" + layers)


def test_a_file_is_read_up_to_its_bound(tmp_path):
    (tmp_path / "large").write_text("#" * (MAX_BYTES + 1))
    for path in (tmp_path / "large", "/dev/zero"):
        with pytest.raises(UserError, match="has more than 1,048,576 bytes"):
            read_yaml(path)
    (tmp_path / "bom").write_bytes(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert read_yaml(tmp_path / "bom") == {"a": 1, "b": 2}


def test_damaged_files_end_in_one_line(root):
    """Bytes of the shipped configs changed, moved, left out or repeated: a value, or one line."""
    files = [path.read_text() for path in sorted((root / "config").glob("*.yaml"))]
    parts = [
        "[",
        "]",
        "{",
        "}",
        ": ",
        "- ",
        "&a ",
        "*a ",
        "!!int ",
        "<<",
        "|",
        ">",
        "'",
        '"',
        "%",
        "?",
        "\t",
        "\0",
        "---\n",
    ]
    parts += [
        "\x1b",
        "\x85",
        "\u2028",
        "é",
        "0",
        "_",
        ":",
        "#",
        "@",
        "`",
        "9" * 99,
        "[" * 99,
        "\n",
        "  ",
        "e9",
        ".",
        "~",
    ]
    for label, draw in cases("damaged files", 500):
        text = draw.choice(files)
        for _ in range(draw.randint(1, 6)):
            at = draw.randrange(len(text))
            end = min(len(text), at + draw.choice([0, 1, 1, 5, 200]))
            text = text[:at] + draw.choice([*parts, text[at:end] * 2, ""]) + text[end:]
        try:
            parse_yaml(text, "x.yaml")
        except UserError as error:
            assert str(error).startswith("x.yaml: ") and "\n" not in str(error), label
        except Exception as error:
            raise AssertionError(f"{label}: {text!r}") from error


# ------------------------------------------------------------ what is written

PRINTABLE = st.text(
    st.characters(
        exclude_categories=["Cc", "Cs", "Zl", "Zp"],
        exclude_characters="\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    ),
    max_size=30,
)
LIKE_NUMBERS = st.text("0123456789+-._:eExob~=<>'\"#&*!%@`|?{}[], yesnotrufal" + string.ascii_letters, max_size=12)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats(allow_nan=False, allow_infinity=False)
    | PRINTABLE
    | LIKE_NUMBERS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(PRINTABLE | LIKE_NUMBERS, inner, max_size=4),
    max_leaves=12,
)


class Anything(Strict):
    """One value of any kind."""

    value: object = Field()


@given(value=VALUES)
@settings(max_examples=500, deadline=None, derandomize=True)
def test_what_is_written_reads_back_here_and_with_yaml_1_1(value):
    text = dump(Anything(value=value))
    assert parse_yaml(text, "x") == {"value": value}
    assert yaml.safe_load(text) == {"value": value}


@given(value=VALUES)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_json_is_read_too(value):
    text = json.dumps({"value": value}, ensure_ascii=False)
    assert parse_yaml(text, "x") == {"value": value}


def test_values_of_the_command_line_get_their_types():
    """Snakemake leaves what lists and mappings hold as text."""
    assert typed({"seeds": ["0", "12"], "name": "1e5", "model": {"norm_eps": "1e-5", "x": ["a", "null"]}, "n": 3}) == {
        "seeds": [0, 12],
        "name": "1e5",
        "model": {"norm_eps": 1e-5, "x": ["a", None]},
        "n": 3,
    }
    for value in ({"seeds": ["010"]}, {"name": "a\x1b"}, {"seeds": ["9" * 5000]}):
        with pytest.raises(ValueError):
            typed(value)
