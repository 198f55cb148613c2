"""What docs/generate.py writes is current: the schema, the key tables, the command lines, the records."""

import sys

import pytest


@pytest.fixture
def generate(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "docs"))
    import generate

    yield generate
    sys.modules.pop("generate")


def test_the_generated_files_are_current(generate, root):
    for path, text in generate.generated().items():
        assert path.read_text() == text, f"{path.relative_to(root)} is out of date; run `make schema`"
