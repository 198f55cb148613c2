"""What docs/generate.py writes is current: the schema, the key tables, the command lines, the records."""

import ast
import sys
from typing import ClassVar

import pytest

from tokencodes.records import Record


@pytest.fixture
def generate(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "docs"))
    import generate

    yield generate
    sys.modules.pop("generate")


def test_the_generated_files_are_current(generate, root):
    for path, text in generate.generated().items():
        assert path.read_text() == text, f"{path.relative_to(root)} is out of date; run `make schema`"


def test_every_record_is_documented(generate, root):
    """Each class that is a record, by its source: the name of the record class among its bases."""
    sources = (root / "src/tokencodes").rglob("*.py")
    classes = [
        node for path in sources for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)
    ]
    bases = {node.name: {base.id for base in node.bases if isinstance(base, ast.Name)} for node in classes}
    records = {"Record"}
    while more := {name for name, of in bases.items() if of & records} - records:
        records |= more
    documented = {record.__name__ for record in generate.RECORDS.values()}
    assert documented == {name for name in records if not name.startswith("_")} - {"Record"}


def test_a_key_or_a_field_without_a_description_is_named(generate):
    class Undescribed(Record):
        kind: ClassVar[str] = "a record"
        made_by: ClassVar[str] = "nobody"
        loss: float

    with pytest.raises(ValueError, match=r"Undescribed\.loss has no description"):
        generate.record_table("x.json", Undescribed)
