"""A corpus on the hub, through the workflow: one commit for all shards, no request in a dry run, raw shards dropped."""

import hashlib
import json

import pytest

from hub_server import Hub

pytestmark = pytest.mark.workflow

STORE = "results/tiny/data/store/manifest.json"
SHARDS = ["shard-00000-of-00002", "shard-00001-of-00002"]


@pytest.fixture
def server(tiny):
    """A hub with the made-up corpus and its tokenizer."""
    server = Hub()
    corpus = {
        f"part-{number}.parquet": (tiny.folder / f"corpus/part-{number}.parquet").read_bytes() for number in (0, 1)
    }
    server.corpus = corpus
    server.first = server.commit("a/corpus", corpus)
    server.commit("a/model", {"tokenizer.json": (tiny.folder / "bpe.json").read_bytes()}, kind="model", large=False)
    yield server
    server.close()


@pytest.fixture
def project(real, server, tmp_path):
    """The stages themselves, with the hub of this test as their hub."""
    value = real.config
    hub = {"kind": "hub", "repo": "a/corpus", "revision": "main", "pattern": "part-{shard}.parquet", "n_shards": 2}
    value["data"]["source"] = hub | {"keep_raw": False}
    value["data"]["tokenizer"] = {"kind": "hub", "repo": "a/model", "revision": "main"}
    real.configure(value)
    home = str(tmp_path / "home")
    real.environment |= {"HF_ENDPOINT": server.url, "HF_HOME": home, "HF_HUB_OFFLINE": "0"}
    return real


def digest(server, number):
    return hashlib.sha256(server.corpus[f"part-{number}.parquet"]).hexdigest()


def test_from_the_hub_to_the_store(project, server, tiny):
    data = project.folder / "results/tiny/data"
    assert project.planned(STORE) == {"listing": 1, "download": 2, "tokenizer": 1, "prepare": 2, "index": 1}
    assert server.requests == []

    # The second shard does not come; the first one is prepared all the same.
    server.gone = {"part-1.parquet"}
    output = project.snakemake(STORE, code=1)
    lines = [line for line in output.splitlines() if line.startswith("tokencodes: error: ")]
    assert len(lines) == 1 and "the hub has no part-1.parquet" in lines[0] and "Traceback" not in output
    (listing,) = data.glob("listing-*.json")
    assert json.loads(listing.read_text())["commit"] == server.first
    assert (data / f"store/{SHARDS[0]}/manifest.json").exists() and not list(data.glob("raw/*"))

    # The branch moves on; what is missing still comes from the commit of the listing, and nothing is asked for twice.
    # What an earlier try left of it, beside its place, is continued.
    server.gone, server.requests = set(), []
    server.commit("a/corpus", {name: content + b"more" for name, content in server.corpus.items()})
    part = server.corpus["part-1.parquet"][:10_000]
    (data / "raw").mkdir(exist_ok=True)
    (data / f"raw/.{SHARDS[1]}.parquet.{digest(server, 1)[:16]}.part").write_bytes(part)
    project.snakemake(STORE)
    first, second = server.requests
    assert f"/resolve/{server.first}/part-1.parquet" in first.path and "/blob/" in second.path
    assert first.headers["range"] == second.headers["range"] == "bytes=10000-"
    assert not list(data.glob("raw/*"))
    rows = [json.loads(path.read_text())["rows_in"] for path in (project.folder / STORE, tiny.store / "manifest.json")]
    assert rows[0] == rows[1] == 240

    # A shard that is lost comes back alone, though the listing was written anew since, and another revision was tried.
    (data / f"store/{SHARDS[1]}/train.arrow").unlink()
    listing.write_bytes(listing.read_bytes())
    shards = [f"results/tiny/data/store/{shard}/train.arrow" for shard in SHARDS]
    value = project.config
    value["data"]["source"]["revision"] = "no-such"
    project.configure(value)
    output = project.snakemake(STORE, code=1)
    assert "the hub has no such revision" in output and [listing] == list(data.glob("listing-*.json"))
    value["data"]["source"] |= {"revision": "main", "keep_raw": True}
    project.configure(value)
    assert project.planned(STORE, *shards) == {"download": 1, "prepare": 1, "index": 1}
    server.commit("a/corpus", server.corpus)
    project.snakemake(STORE, *shards)
    assert [path.name for path in data.glob("raw/*")] == [f"{SHARDS[1]}.parquet"]  # what is kept from now on
    assert (data / f"raw/{SHARDS[1]}.parquet").read_bytes() == server.corpus["part-1.parquet"]
