"""The digest of code: what moves it and what does not, on a small package made for the purpose."""

import textwrap

import pytest

from tokencodes import codeversion
from tokencodes.errors import UserError

FILES = {
    "__init__.py": '"""The package."""\n',
    "config.py": "KEYS = 1\n",
    "low/__init__.py": "",
    "low/base.py": '''
        """What all stand on."""
        import math


        def area(r: float) -> float:
            """Of a circle."""
            return math.pi * r**2  # as known
        ''',
    "low/other.py": "VALUE = 1\n",
    "high/__init__.py": "",
    "high/stage.py": '''
        """A stage."""
        from tokencodes import config
        from tokencodes.low import base


        def run():
            from . import late

            return base.area(config.KEYS) + late.MORE
        ''',
    "high/late.py": "MORE = 2\n",
    "high/tables.py": "from pathlib import Path\nTEXT = (Path(__file__).parent / 'reference.csv').name\n",
    "high/probe.py": "COMMAND = ['-c', 'import tokencodes.low.other']\n",
    "high/reference.csv": "a,b\n",
    "high/tasks/one.yaml": "task: one\n",
    "high/readers.py": "FOLDER = 'tasks'\n",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Writes files of the package; returns the digest of a module after them."""
    monkeypatch.setattr(codeversion, "ROOT", tmp_path)

    def version(module="tokencodes.high.stage", **files):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip("\n"))
        for cached in vars(codeversion).values():
            if hasattr(cached, "cache_clear"):
                cached.cache_clear()
        return codeversion.digest(module)

    version("tokencodes.low", **FILES)
    yield version
    monkeypatch.undo()
    version("tokencodes.model")


def edited(name, old, new):
    text = textwrap.dedent(FILES[name]).lstrip("\n")
    assert old in text
    return {name: text.replace(old, new)}


@pytest.mark.parametrize(
    "edit",
    [
        edited("low/base.py", "  # as known", "  # for a circle"),
        edited("low/base.py", '"""Of a circle."""', '"""Of a circle of radius r.\n\n    In square metres."""'),
        edited("low/base.py", "import math\n\n\n", "import math\n\n\n\n\n"),
        edited("low/base.py", "math.pi * r**2", "(math.pi\n        * r ** 2)"),
        edited("low/base.py", '"""What all stand on."""', "# nothing to say"),
        edited("config.py", "1", "1\nANOTHER = 2"),
        edited("low/other.py", "1", "2"),
        edited("high/reference.csv", "a,b", "a,c"),
    ],
    ids=["comment", "docstring", "blank lines", "layout", "no docstring", "config", "not imported", "not read"],
)
def test_what_changes_nothing(package, edit):
    assert package() == package(**edit)


@pytest.mark.parametrize(
    "edit",
    [
        edited("low/base.py", "r**2", "r**3"),
        edited("high/late.py", "2", "3"),
        edited("high/stage.py", "base.area(config.KEYS) +", "base.area(config.KEYS) -"),
        edited("low/base.py", "math.pi * r**2", "'math.pi * r**2'"),
    ],
    ids=["imported", "imported in a function, relatively", "itself", "a string that is a value"],
)
def test_what_is_noticed(package, edit):
    assert package() != package(**edit)


def test_a_module_named_in_a_string_is_run(package):
    before = package("tokencodes.high.probe")
    assert before != package("tokencodes.high.probe", **edited("low/other.py", "1", "2"))


def test_data_belongs_to_the_modules_that_name_it(package):
    tables, readers = package("tokencodes.high.tables"), package("tokencodes.high.readers")
    changed = edited("high/reference.csv", "a,b", "a,c")
    assert package("tokencodes.high.tables", **changed) != tables
    assert package("tokencodes.high.readers") == readers
    tables = package("tokencodes.high.tables")
    changed = edited("high/tasks/one.yaml", "one", "two")
    assert package("tokencodes.high.readers", **changed) != readers
    assert package("tokencodes.high.tables") == tables


def test_data_that_nobody_names_belongs_to_the_whole_package(package):
    before = package()
    assert package(**{"high/unnamed.txt": "x"}) != before


def test_an_entry_that_is_no_module(package):
    with pytest.raises(UserError, match=r"tokencodes\.high\.none: no such module"):
        package("tokencodes.high.none")


def test_the_project_itself():
    training = codeversion.closure("tokencodes.train.loop")
    assert {"tokencodes.model.transformer", "tokencodes.interfaces.gf2", "tokencodes.data.sampler"} <= set(training)
    assert not any(name.startswith(("tokencodes.report", "tokencodes.evaluate")) for name in training)
    tables = codeversion.closure("tokencodes.report.tables")
    data = codeversion.closure("tokencodes.data.prepare", "tokencodes.data.source", "tokencodes.evaluate.benchmarks")
    # An edit of the model neither prepares the corpus again nor, by itself, redraws a table.
    shown = {"tokencodes.model", "tokencodes.model.shape", "tokencodes.train"}  # the counts that a table shows
    for name in {*tables, *data} - shown:
        assert not name.startswith(("tokencodes.model", "tokencodes.train", "tokencodes.interfaces"))
    assert not shown & set(data)
    assert "tokencodes.model.hf" in codeversion.closure("tokencodes.evaluate.run")
    assert codeversion.ROOT / "report" / "published.csv" in codeversion.data_files(tables)
