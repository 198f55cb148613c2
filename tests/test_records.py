"""Records: what is written is read back, and nothing else is."""

import json
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokencodes.errors import UserError
from tokencodes.interfaces.codes import CodesRecord
from tokencodes.model.origin import Origin
from tokencodes.model.shape import Params
from tokencodes.records import Record
from tokencodes.train.final import Final
from tokencodes.validate.validation import Validation

REMEDY = "delete it and run `tokencodes weigh` again"


class Weight(Record):
    """A record of each kind of value."""

    kind: ClassVar[str] = "a weight"
    made_by: ClassVar[str] = "tokencodes weigh"

    name: str
    grams: float
    parts: dict[str, int]
    note: str | None = None


weights = st.builds(
    Weight,
    name=st.text(st.characters(exclude_categories=["Cs"])),
    grams=st.floats(allow_nan=False, allow_infinity=False),
    parts=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), st.integers(), max_size=4),
    note=st.none() | st.just("x"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@given(weight=weights)
def test_what_is_written_is_read_back(folder, weight):
    weight.write(folder / "w.json")
    assert Weight.read(folder / "w.json") == weight


@given(weight=weights, data=st.data())
def test_a_changed_byte_is_never_believed(folder, weight, data):
    """Whatever byte is changed to whatever: the file is refused in one line, or its content is the same."""
    path = folder / "w.json"
    weight.write(path)
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        assert Weight.read(path) == weight
    except UserError as error:
        assert "\n" not in str(error) and str(path) in str(error)


def resealed(value):
    """A record's JSON text with a digest that fits."""
    return json.dumps(type("Any", (Record,), {"model_config": {"extra": "allow"}}).model_construct(**value).content())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "not a weight"),
        ("null", "not a weight"),
        ("{}", "schema version None"),
        ('{"schema_version": 2}', "schema version 2, this version of tokencodes reads 1"),
        ('{"schema_version": 1, "name": "x"}', "does not match its record_sha256"),
        ("{", "not valid JSON"),
    ],
)
def test_what_is_no_record_is_one_line_with_a_remedy(tmp_path, text, said):
    path = tmp_path / "w.json"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        Weight.read(path)
    assert said in str(caught.value) and str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert REMEDY in str(caught.value) or text == "{"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"grams": "heavy"}, "grams: "),
        ({"more": 1}, "more: "),
        ({"parts": {"a": 1.5}}, "parts.a: "),
        ({"name": None}, "name: "),
    ],
)
def test_a_key_that_is_wrong_is_named_even_with_a_digest_that_fits(tmp_path, change, said):
    path = tmp_path / "w.json"
    path.write_text(resealed({"name": "x", "grams": 1.0, "parts": {}, "note": None, **change}))
    with pytest.raises(UserError, match=rf"not a weight \({said}") as caught:
        Weight.read(path)
    assert REMEDY in str(caught.value)


def test_a_missing_file_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        Weight.read(tmp_path / "w.json")


@pytest.mark.parametrize("record", [CodesRecord, Final, Params, Origin, Validation])
def test_every_key_of_our_records_is_described(record):
    for name, field in record.model_fields.items():
        assert field.description, f"{record.__name__}.{name}"
