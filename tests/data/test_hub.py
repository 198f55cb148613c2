"""The hub: one commit, every byte checked, what came is kept; each fault one line, with a hub on this machine."""

import fcntl
import functools
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hub_server import Hub
from tokencodes import cli, config
from tokencodes.data import hub as code
from tokencodes.data import source, tokenizer
from tokencodes.errors import UserError
from tokencodes.report import page

SIZE = 3_000_000
PATTERN = "part/train-{shard:05d}-of-00002.parquet"
SHARDS = ["shard-00000-of-00002", "shard-00001-of-00002"]


@functools.cache
def content(seed: int) -> bytes:
    return random.Random(seed).randbytes(SIZE + seed)


def files(first: int = 0) -> dict[str, bytes]:
    """Two files, of other content for another `first`."""
    return {PATTERN.format(shard=number): content(first + number) for number in range(2)}


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
    monkeypatch.setattr(code.time, "sleep", server.pauses.append)
    yield server
    server.close()


def use(monkeypatch, url):
    """Make it the library's endpoint, as HF_ENDPOINT does when the library is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}")


@pytest.fixture
def place(tiny, tmp_path, capsys):
    """A results folder and the two commands on it, which end well or with one line."""
    spec = {"kind": "hub", "repo": "a/b", "revision": "main", "pattern": PATTERN, "n_shards": 2}
    place = SimpleNamespace(data=tmp_path / "data", listing=tmp_path / "data" / "listing.json", spec=spec)
    place.raw = place.data / "raw"

    def configure(**changes) -> config.Config:
        settings = tiny.config(data={"source": {**spec, **changes}})
        (tmp_path / "config.yaml").write_text(config.dump(settings))
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


# ------------------------------------------------------------------- listing


def test_the_listing_says_commit_size_and_hash(server, place):
    commit = server.branches["dataset", "a/b", "main"]
    assert f"commit {commit}, 2 shards" in place.list()
    says = place.says()
    assert (says["repo"], says["revision"], says["commit"], says["endpoint"]) == ("a/b", "main", commit, server.url)
    assert list(says["files"]) == SHARDS
    for number, entry in enumerate(says["files"].values()):
        path = PATTERN.format(shard=number)
        assert entry == {
            "path": path,
            "size": SIZE + number,
            "sha256": hashlib.sha256(files()[path]).hexdigest(),
        }


def test_a_small_file_has_gits_own_hash(server, place, tmp_path):
    server.commit("a/b", files(), large=False)
    place.list()
    for number, entry in enumerate(place.says()["files"].values()):
        (tmp_path / "blob").write_bytes(content(number))
        by_git = subprocess.run(["git", "hash-object", tmp_path / "blob"], capture_output=True, text=True, check=True)
        assert entry["git_sha1"] == by_git.stdout.strip() and "sha256" not in entry
    place.download(1)
    assert place.shard(1).read_bytes() == content(1)
    server.wrong_bytes = True
    said = place.download(0, fails=True)
    assert "has the git_sha1" in said and place.left() == [f"{SHARDS[1]}.parquet"]


def test_many_files_are_asked_for_in_parts(server, place, monkeypatch):
    monkeypatch.setattr(code, "PATHS_AT_A_TIME", 3)
    server.commit("a/b", {f"{number}.parquet": bytes([number]) for number in range(8)})
    place.configure(pattern="{shard}.parquet", n_shards=8)
    place.list()
    assert [entry["size"] for entry in place.says()["files"].values()] == [1] * 8
    assert [request.method for request in server.requests] == ["GET", "POST", "POST", "POST"]


def test_the_same_listing_is_not_written_again_and_another_is(server, place, monkeypatch):
    place.list()
    before = place.listing.stat().st_mtime_ns, place.listing.stat().st_ino, place.listing.read_bytes()
    assert "says so already" in place.list()
    mirror = server.url.replace("127.0.0.1", "localhost")
    use(monkeypatch, mirror)  # the same files from another address
    assert "says so already" in place.list()
    assert (place.listing.stat().st_mtime_ns, place.listing.stat().st_ino, place.listing.read_bytes()) == before
    commit = server.commit("a/b", files(5))
    place.list()
    assert place.says()["commit"] == commit and place.says()["endpoint"] == mirror
    place.listing.write_text("{")
    place.list()
    assert place.says()["commit"] == commit


def test_missing_files_are_named_before_anything_is_fetched(server, place):
    place.list()
    before = place.listing.read_bytes()
    place.configure(pattern="part/train-{shard:05d}-of-00006.parquet", n_shards=6)
    said = place.list(fails=True)
    assert "6 of 6 files are not there at commit" in said and "part/train-00000-of-00006.parquet, part/" in said
    assert "train-00003" not in said and "check data.source.repo, data.source.revision, data.source.pattern" in said
    assert place.listing.read_bytes() == before and server.asked(content=True) == []


def test_a_folder_is_no_shard(server, place):
    place.configure(pattern="part", n_shards=1)
    assert "1 of 1 files are not there" in place.list(fails=True)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"revision": "no-such"}, r"a/b at no-such: the hub has no such revision .* check data.source.revision"),
        (
            {"repo": "a/other"},
            r"the hub refuses the revision \(HTTP 401\): a/other is private or gated, or there is no",
        ),
        ({"repo": "a/b--c"}, r"check data.source.repo"),
    ],
)
def test_what_is_not_there(server, place, changes, said):
    place.configure(**changes)
    assert re.search(said, place.list(fails=True))
    assert not place.listing.exists()


def test_a_listing_of_another_source_is_not_used(server, place):
    place.list()
    place.configure(revision="other")
    said = place.download(fails=True)
    assert "listing.json: was made for another data.source (revision); make it again: `tokencodes list`" in said
    assert place.left() == [] and server.asked(content=True) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda says: [],
        lambda says: {},
        lambda says: says | {"files": {}},
        lambda says: says | {"commit": "main"},
        lambda says: says | {"files": {SHARDS[0]: {"path": "x", "size": 3}}},
        lambda says: says | {"files": {SHARDS[0]: {"path": "x", "size": 3, "sha256": "../../../etc/passwd" * 4}}},
        lambda says: says | {"files": {SHARDS[0]: {"path": "x", "size": "3", "sha256": "0" * 64}}},
    ],
)
def test_a_damaged_listing(server, place, damage):
    place.list()
    place.listing.write_text(json.dumps(damage(place.says())))
    said = place.download(fails=True)
    assert "listing.json: " in said and "tokencodes list" in said and server.asked(content=True) == []


def test_another_question_has_another_name(place):
    names = [code.listing_name(place.configure(**changes).data.source) for changes in ({}, {"keep_raw": True})]
    assert names[0] == names[1]
    for changes in ({"repo": "a/c"}, {"revision": "x"}, {"pattern": "{shard}", "n_shards": 2}, {"n_shards": 3}):
        assert code.listing_name(place.configure(**changes).data.source) not in names


def test_the_report_says_the_commit(server, place, tmp_path):
    settings = place.configure()
    results = SimpleNamespace(settings=settings, root=tmp_path)
    assert page.setting(results).endswith("; corpus a/b at main.")
    place.run("list", "--out", tmp_path / "data" / code.listing_name(settings.data.source))
    assert page.setting(results).endswith(f"; corpus a/b at commit {server.branches['dataset', 'a/b', 'main']}.")


def test_only_the_hub_has_a_listing(tiny, tmp_path):
    with pytest.raises(UserError, match=r"data\.source\.kind is local; only a corpus on the hub has a listing"):
        source.write_listing(tiny.config(), tmp_path / "listing.json")


# ------------------------------------------------------------------- fetching


def test_whole(server, place):
    place.list()
    said = place.download(1)
    assert place.shard(1).read_bytes() == content(1) and place.left() == [f"{SHARDS[1]}.parquet"]
    assert f"{SIZE + 1:,} bytes, sha256 {hashlib.sha256(content(1)).hexdigest()[:12]}" in said
    assert server.ranges() == [None]


def test_what_is_there_whole_is_not_fetched_again(server, place):
    place.list()
    place.download(0)
    assert "downloaded" not in place.download(0) and server.ranges() == [None]
    place.shard(0).write_bytes(content(0)[:-1] + b"x")
    assert "downloaded" in place.download(0) and server.ranges() == [None, None]
    assert place.shard(0).read_bytes() == content(0)


def test_it_says_how_far_it_is(server, place, monkeypatch, capsys):
    place.list()
    monkeypatch.setattr(code, "SECONDS_BETWEEN_LINES", 0.0)
    settings = place.configure()
    source.download(settings, SHARDS[0], place.shard(0), place.listing)
    lines = capsys.readouterr().err.splitlines()
    number = r"[0-9]+\.[0-9]"
    assert all(
        re.fullmatch(rf"download part/train-00000\S+: 0\.00 of 0\.00 GiB, {number} MB/s", line) for line in lines
    )
    assert lines


def test_without_a_listing_the_hub_is_asked_for_the_one_file(server, place):
    place.download(1, listing=False)
    assert place.shard(1).read_bytes() == content(1)
    (asked,) = (request for request in server.requests if request.method == "POST")
    assert "resolve/" + asked.path.rsplit("/", 1)[1] in server.asked(content=True)[0].path  # at the commit


def test_all_shards_are_of_one_commit_though_the_branch_moves(server, place):
    place.list()
    first = place.says()["commit"]
    place.download(0)
    server.commit("a/b", files(7))
    place.download(1)
    assert [place.shard(number).read_bytes() for number in range(2)] == [content(0), content(1)]
    assert all(first in r.path for r in server.asked(content=True) if "/resolve/" in r.path)


@pytest.mark.parametrize("large", [True, False])
def test_cut_in_the_middle_it_asks_for_the_rest(server, place, large):
    server.commit("a/b", files(), large=large)
    place.list()
    server.cuts = [1_000_000, 500_000]
    place.download(0)
    assert place.shard(0).read_bytes() == content(0)
    assert server.ranges() == [None, "bytes=1000000-", "bytes=1500000-"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(size=st.integers(1, 3_000), cuts=st.lists(st.integers(0, 1_500), max_size=code.TRIES - 1), large=st.booleans())
def test_wherever_it_is_cut_each_byte_is_asked_for_once(server, tmp_path, size, cuts, large):
    content = random.Random(size).randbytes(size)
    server.commit("a/cut", {"x": content}, large=large)
    repo = code.Repo("data.source", "a/cut", "dataset", "main")
    commit, (file,) = code.state(repo, ["x"])
    server.cuts, server.requests = list(cuts), []
    out = tmp_path / f"{size}-{len(cuts)}"
    code.fetch(repo, commit, file, out)
    assert out.read_bytes() == content
    begun = [0, *itertools.accumulate(cuts)]
    expected = [f"bytes={start}-" if start else None for start in begun if start < size]
    assert server.ranges() == expected


def test_cut_again_and_again_without_a_byte(server, place):
    place.list()
    server.cuts = [2_000_000] + [0] * 20
    said = place.download(0, fails=True)
    assert "was asked for part/train-00000-of-00002.parquet 7 times in vain" in said and "start again" in said
    assert len(server.pauses) == code.TRIES - 1 and server.pauses[1:] == sorted(server.pauses[1:])
    assert not place.shard(0).exists()
    server.cuts, server.requests = [], []
    place.download(0)
    assert server.ranges() == ["bytes=2000000-"] and place.shard(0).read_bytes() == content(0)
    assert place.left() == [f"{SHARDS[0]}.parquet"]


def test_a_server_that_cannot_go_on_in_the_middle(server, place):
    place.list()
    server.cuts, server.ignores_range = [1_000_000], True
    place.download(0)
    assert place.shard(0).read_bytes() == content(0)


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_an_answer_that_passes(server, place, status):
    server.statuses = [status, status]
    place.list()
    server.content_statuses = [status]
    place.download(0)
    assert place.shard(0).read_bytes() == content(0)
    assert server.pauses == ([1.0, 2.0, 1.0] if status != 429 else [60.0] * 3)  # its windows are of five minutes


def test_the_hub_says_how_long_to_wait(server, place):
    server.statuses, server.retry_after = [503, 503, 503, 503, 503], "9"
    place.list()
    server.statuses, server.retry_after = [429, 429], "100000"
    place.list()
    assert server.pauses == [9.0, 9.0, 9.0, 9.0, 16.0, code.LONGEST_PAUSE, code.LONGEST_PAUSE]


def test_a_hub_that_is_down(server, place):
    place.list()
    before = place.listing.read_bytes()
    server.down = 503
    assert f"{server.url} was asked for the revision 7 times in vain (HTTP 503)" in place.list(fails=True)
    assert "7 times in vain (HTTP 503)" in place.download(fails=True)
    assert place.listing.read_bytes() == before and place.left() == []


def test_a_hub_that_is_not_reached(server, place, monkeypatch):
    place.list()
    server.close()
    huggingface_hub.close_session()  # with the connections that are open still
    for said in (place.list(fails=True), place.download(fails=True)):
        assert "7 times in vain" in said and "check the network and HF_ENDPOINT" in said
    assert place.left() == []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_hub_that_says_nothing(server, place, monkeypatch, method):
    monkeypatch.setattr(code, "ANSWER_SECONDS", 0.2)
    server.silent = method
    assert "7 times in vain (" in place.list(fails=True) and len(server.pauses) >= code.TRIES - 1


def test_a_download_that_falls_silent_is_continued(server, place, monkeypatch):
    place.list()
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.5)
    server.stall = 1_200_000
    place.download(0)
    assert place.shard(0).read_bytes() == content(0)
    starts = [int(asked.removeprefix("bytes=").removesuffix("-")) for asked in server.ranges()[1:]]
    assert starts == sorted(starts) and 1_200_000 in starts and len(starts) >= 2


def test_wrong_bytes_of_the_right_length(server, place):
    place.list()
    place.raw.mkdir()
    place.shard(0).write_bytes(b"before")
    server.wrong_bytes = True
    said = place.download(0, fails=True)
    stated = hashlib.sha256(content(0)).hexdigest()
    came = hashlib.sha256(content(0)[:-1] + bytes([content(0)[-1] ^ 1])).hexdigest()
    assert f"part/train-00000-of-00002.parquet came and has the sha256 {came}" in said
    assert f"the hub states {stated}; it was deleted: start again" in said
    assert place.left() == [f"{SHARDS[0]}.parquet"] and place.shard(0).read_bytes() == b"before"
    server.wrong_bytes, server.requests = False, []
    place.download(0)
    assert server.ranges() == [None] and place.shard(0).read_bytes() == content(0)


@pytest.mark.parametrize(("longer", "shorter"), [(b"x", 0), (b"x" * 500_000, 0), (b"", 1), (b"", 500_000)])
def test_another_length_than_stated(server, place, longer, shorter):
    place.list()
    server.longer, server.shorter = longer, shorter
    said = place.download(0, fails=True)
    assert f"the hub states {SIZE:,}" in said and place.left() == []


def test_a_damaged_beginning_from_an_earlier_try(server, place):
    place.list()
    place.raw.mkdir()
    digest = hashlib.sha256(content(0)).hexdigest()
    partial = place.raw / f".{SHARDS[0]}.parquet.{digest[:16]}.part"
    partial.write_bytes(b"\0" * 1_000)
    assert "has the sha256" in place.download(0, fails=True) and place.left() == []
    place.download(0)
    assert place.shard(0).read_bytes() == content(0)


def test_what_was_begun_of_another_content_is_not_continued(server, place):
    place.list()
    server.cuts = [1_000_000] + [0] * 20
    place.download(0, fails=True)
    assert len(place.left()) == 1
    server.commit("a/b", files(3))
    server.cuts, server.requests = [], []
    place.list()
    place.download(0)
    assert server.ranges() == [None] and place.left() == [f"{SHARDS[0]}.parquet"]
    assert place.shard(0).read_bytes() == content(3)


def test_a_file_that_is_stated_and_not_served(server, place):
    place.list()
    server.gone = {PATTERN.format(shard=0)}
    said = place.download(0, fails=True)
    assert "the hub has no part/train-00000-of-00002.parquet; check data.source.repo" in said and place.left() == []


def test_a_commit_that_is_gone(server, place):
    place.list()
    server.commits.clear()
    assert "the hub has no such revision when asked for part/train-00000" in place.download(0, fails=True)


@pytest.mark.parametrize(
    "text", ["<html>log in to this network</html>", "[]", "{}", '{"id": "a/b", "sha": "main"}', "1"]
)
def test_what_answers_is_no_hub(server, place, text):
    server.no_hub = text
    said = place.list(fails=True)
    assert f"{server.url} does not answer as a hub does" in said and "check HF_ENDPOINT" in said


@pytest.mark.parametrize("url", ["", "hub.example", "ftp://hub.example", "http://", "http://a:port"])
def test_an_endpoint_that_is_no_address(server, place, monkeypatch, url):
    use(monkeypatch, url)
    assert "HF_ENDPOINT: " in place.list(fails=True)


def test_a_password_in_the_endpoint_is_not_told(server, place, monkeypatch):
    use(monkeypatch, server.url.replace("http://", "http://me:secret@"))
    place.list()
    assert place.says()["endpoint"] == server.url


# --------------------------------------------------------------------- tokens


def test_the_token_goes_to_the_hub_alone(server, place, monkeypatch):
    server.token = "hf_mine"
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    place.list()
    place.download(0)
    assert place.shard(0).read_bytes() == content(0)
    sent = {(r.path.startswith("/blob/"), r.headers.get("authorization")) for r in server.requests}
    assert sent == {(False, "Bearer hf_mine"), (True, None)}  # not to the network that has the content


@pytest.mark.parametrize("token", [None, "hf_other"])
def test_without_the_right_token(server, place, monkeypatch, token):
    place.list()
    before = place.listing.read_bytes()
    server.token = "hf_mine"
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    for said in (place.list(fails=True), place.download(fails=True)):
        assert "HTTP 401" in said and "set HF_TOKEN to a token that may read it" in said and "hf_" not in said
    assert place.listing.read_bytes() == before and place.left() == [] and server.pauses == []


def test_a_signed_address_that_has_run_out_is_asked_for_again(server, place):
    place.list()
    server.network_statuses = [403]
    place.download(0)
    assert place.shard(0).read_bytes() == content(0) and server.pauses == [1.0]
    assert len([request for request in server.requests if "/resolve/" in request.path]) == 2
    server.network_statuses = [403] * 20
    assert "7 times in vain (HTTP 403)" in place.download(1, fails=True)


def test_a_gated_repository(server, place):
    place.list()
    server.gated = True
    said = place.download(fails=True)
    assert "HTTP 403" in said and "set HF_TOKEN" in said and "accept its terms" in said


# -------------------------------------------------------------------- offline


def fill_cache(server, path=None, **changes):
    """As a user does where there is a network: `hf download`."""
    for name in [path] if path else files():
        huggingface_hub.hf_hub_download("a/b", name, repo_type="dataset", revision="main", **changes)
    server.requests.clear()


def test_offline_all_comes_from_the_cache(server, place, monkeypatch):
    place.list()
    stated = place.listing.read_bytes()
    fill_cache(server)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "says so already" in place.list()
    place.listing.unlink()
    place.list()
    assert place.listing.read_bytes() == stated
    place.download(1)
    assert place.shard(1).read_bytes() == content(1) and not place.shard(1).is_symlink() and server.requests == []


def test_offline_with_a_cache_without_links(server, place, monkeypatch):
    fill_cache(server)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for link in Path(constants.HF_HUB_CACHE).rglob("*.parquet"):
        blob = link.resolve()
        link.unlink()
        shutil.move(blob, link)
    place.list()
    assert place.says()["files"][SHARDS[1]]["sha256"] == hashlib.sha256(content(1)).hexdigest()
    place.download(1)
    assert place.shard(1).read_bytes() == content(1)


def test_offline_without_the_files(server, place, monkeypatch):
    fill_cache(server, PATTERN.format(shard=1))
    place.list()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.requests.clear()
    for said, asked in ((place.list(fails=True), 2), (place.download(0, fails=True), 1)):
        assert f"HF_HUB_OFFLINE is set, and 1 of {asked} files are not in the cache {constants.HF_HUB_CACHE}" in said
        assert "train-00000-of-00002.parquet; unset it, or bring them there" in said and "`hf download a/b" in said
    place.download(1)
    assert server.requests == [] and place.left() == [f"{SHARDS[1]}.parquet"]


def test_a_cached_file_that_was_changed(server, place, monkeypatch):
    place.list()
    fill_cache(server)
    (blob,) = Path(constants.HF_HUB_CACHE).rglob(f"blobs/{hashlib.sha256(content(0)).hexdigest()}")
    blob.write_bytes(content(0)[:-1] + b"x")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    said = place.download(0, fails=True)
    assert "in huggingface_hub's cache has the sha256" in said and "delete it and bring it there again" in said
    assert place.left() == [] and server.requests == []
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    place.download(0)
    assert place.shard(0).read_bytes() == content(0) and server.ranges() == [None]


def test_what_the_cache_has_is_not_fetched(server, place):
    place.list()
    fill_cache(server)
    place.download(0)
    assert place.shard(0).read_bytes() == content(0) and server.asked(content=True) == []


# ----------------------------------------------------------------------- disk


def free(monkeypatch, n_bytes):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(code.shutil, "disk_usage", lambda _: usage._replace(free=n_bytes))


def test_a_disk_that_will_not_hold_it_is_said_before_a_byte_is_fetched(server, place, monkeypatch):
    place.list()
    listing = place.listing.read_bytes()
    one, both = SIZE + 1, 2 * SIZE + 1
    free(monkeypatch, code.MARGIN + one)
    place.list()
    free(monkeypatch, code.MARGIN + SIZE - 1)
    server.requests.clear()
    for said in (place.list(fails=True), place.download(0, fails=True)):
        assert "1 raw shard to come: 0.00 GiB are needed and 1.00 GiB must stay free, 1.00 GiB are free" in said
        assert f"{place.raw}: " in said and "put `results` on another disk" in said
    place.configure(keep_raw=True)
    free(monkeypatch, code.MARGIN + both - 1)
    for said in (place.list(fails=True), place.download(0, fails=True)):
        assert "2 raw shards to come: 0.01 GiB are needed" in said
    assert server.asked(content=True) == [] and place.left() == []
    assert place.listing.read_bytes() == listing
    free(monkeypatch, code.MARGIN + both)
    place.download(0)
    free(monkeypatch, code.MARGIN + one)  # the first one is there
    place.list()
    place.download(1)


def test_what_came_already_needs_no_room(server, place, monkeypatch):
    place.list()
    server.cuts = [2_000_000] + [0] * 20
    place.download(0, fails=True)
    server.cuts = []
    free(monkeypatch, code.MARGIN + SIZE - 2_000_000 - 1)
    assert "1 raw shard to come" in place.download(0, fails=True)
    # One that is under way beside it needs its room too.
    free(monkeypatch, code.MARGIN + SIZE + 1 + 1_000_000 - 1)
    assert "2 raw shards to come" in place.download(1, fails=True)
    free(monkeypatch, code.MARGIN + SIZE + 1 + 1_000_000)
    place.download(1)
    free(monkeypatch, code.MARGIN + SIZE - 2_000_000)
    place.download(0)
    assert [place.shard(number).read_bytes() for number in range(2)] == [content(0), content(1)]


@pytest.mark.parametrize("limit", [0, 10_000, 2_000_000])
def test_a_disk_that_is_full_after_all(server, place, small_files, limit):
    place.list()
    with small_files(limit):
        said = place.download(0, fails=True)
    assert f"{SHARDS[0]}.parquet: the disk is full (File too large)" in said and not place.shard(0).exists()
    server.requests.clear()
    place.download(0)
    assert place.shard(0).read_bytes() == content(0)
    assert server.ranges() == [f"bytes={limit}-" if limit else None]


# ------------------------------------------------------------------ processes


def start(server, place, tmp_path, *arguments):
    """The command in a process of its own, which knows the hub by its environment alone."""
    environment = {**os.environ, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "0"}
    call = [sys.executable, "-m", "tokencodes.cli", *place.command(*arguments)]
    return subprocess.Popen(call, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_after_kill_9_the_next_try_asks_for_the_rest(server, place, tmp_path, monkeypatch):
    monkeypatch.undo()  # this process makes pauses
    where = ["--shard", SHARDS[0], "--listing", place.listing, "--out", place.shard(0)]
    listing = start(server, place, tmp_path, "list", "--out", place.listing)
    assert listing.wait() == 0, listing.stderr.read()
    server.stall = 2_000_000
    first = start(server, place, tmp_path, "download", *where)
    digest = hashlib.sha256(content(0)).hexdigest()
    partial = place.raw / f".{SHARDS[0]}.parquet.{digest[:16]}.part"
    end = time.monotonic() + 60
    while not (partial.exists() and partial.stat().st_size > 1_900_000):
        assert first.poll() is None and time.monotonic() < end
        time.sleep(0.02)
    second = start(server, place, tmp_path, "download", *where)
    out, err = second.communicate()
    assert second.returncode == 2 and out == "" and len(err.splitlines()) == 1
    assert "another process is fetching this file; wait for it or stop it" in err
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert not place.shard(0).exists()
    had = partial.stat().st_size
    server.stall, server.requests = None, []
    server.go_on.set()
    third = start(server, place, tmp_path, "download", *where)
    out, err = third.communicate()
    assert (third.returncode, err) == (0, "")
    assert server.ranges() == [f"bytes={had}-"] and place.shard(0).read_bytes() == content(0)
    assert place.left() == [f"{SHARDS[0]}.parquet"]


def test_a_file_that_was_put_in_its_place_meanwhile_is_not_written_to(server, place, monkeypatch):
    """Between opening the growing file and locking it, who had the lock may have finished."""
    place.list()
    lock = fcntl.flock

    def late(stream, how):
        lock(stream, how)
        os.replace(stream.name, place.shard(0))

    monkeypatch.setattr(fcntl, "flock", late)
    assert "another process is fetching this file" in place.download(0, fails=True)


def test_two_shards_at_a_time(server, place):
    settings = place.configure()
    place.list()
    made = [
        threading.Thread(target=source.download, args=(settings, shard, place.raw / f"{shard}.parquet", place.listing))
        for shard in SHARDS
    ]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    assert [place.shard(number).read_bytes() for number in range(2)] == [content(0), content(1)]


# ------------------------------------------------------------------ tokenizer


@pytest.fixture
def with_tokenizer(tiny, server):
    """The made-up tokenizer in a repository of models."""
    text = (tiny.folder / "bpe.json").read_bytes()
    server.commit("a/model", {"tokenizer.json": text, "README.md": b"x"}, kind="model", large=False)
    return tiny.config(data={"tokenizer": {"kind": "hub", "repo": "a/model", "revision": "main"}})


def test_the_tokenizer_says_its_commit(server, tiny, with_tokenizer, tmp_path):
    tokenizer.build(with_tokenizer, tmp_path / "made")
    assert (tmp_path / "made/tokenizer.json").read_bytes() == (tiny.tokenizer / "tokenizer.json").read_bytes()
    manifest = json.loads((tmp_path / "made/manifest.json").read_text())
    assert manifest["source"] == {"kind": "hub", "repo": "a/model", "revision": "main"}
    assert manifest["commit"] == server.branches["model", "a/model", "main"]
    assert json.loads((tiny.tokenizer / "manifest.json").read_text())["commit"] is None


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"wrong_bytes": True}, r"a/model at main: tokenizer\.json came and has the git_sha1 .* start again"),
        ({"down": 503}, r"data\.tokenizer: a/model at main: .* 7 times in vain"),
        ({"token": "x"}, r"data\.tokenizer: .*set HF_TOKEN.*check data\.tokenizer\.repo"),
        (
            {"gone": {"tokenizer.json"}},
            r"has no tokenizer\.json; check data\.tokenizer\.repo, data\.tokenizer\.revision$",
        ),
    ],
)
def test_a_tokenizer_that_does_not_come(server, with_tokenizer, tmp_path, fault, said):
    for name, value in fault.items():
        setattr(server, name, value)
    with pytest.raises(UserError, match=said):
        tokenizer.build(with_tokenizer, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_tokenizer_offline(server, with_tokenizer, tmp_path, monkeypatch):
    huggingface_hub.hf_hub_download("a/model", "tokenizer.json")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.requests.clear()
    tokenizer.build(with_tokenizer, tmp_path / "made")
    commit = server.branches["model", "a/model", "main"]
    assert json.loads((tmp_path / "made/manifest.json").read_text())["commit"] == commit and server.requests == []
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    with pytest.raises(
        UserError, match=r"HF_HUB_OFFLINE is set, and 1 of 1 files .* `hf download a/model --repo-type model"
    ):
        tokenizer.build(with_tokenizer, tmp_path / "made")
