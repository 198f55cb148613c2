"""The hub: one commit, every byte checked, what came is kept; each fault one line, with a hub on this machine."""

import fcntl
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
import time
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stages
from hub_server import PATTERN, SHARDS, SIZE, content, files, use
from tokencodes.data import hub
from tokencodes.errors import UserError

# ------------------------------------------------------------------- fetching


def test_whole(server, place):
    place.list()
    said = place.download(1)
    assert place.shard(1).read_bytes() == content(1) and place.left() == [f"{SHARDS[1]}.parquet"]
    assert f"{SIZE + 1:,} bytes, sha256 {hashlib.sha256(content(1)).hexdigest()[:12]}" in said
    assert server.ranges() == [None]


def test_it_says_how_far_it_is(server, place, monkeypatch, capsys):
    place.list()
    monkeypatch.setattr(hub, "SECONDS_BETWEEN_LINES", 0.0)
    settings = place.configure()
    stages.download(settings, SHARDS[0], place.shard(0), place.listing)
    lines = capsys.readouterr().err.splitlines()
    number = r"[0-9]+\.[0-9]"
    assert all(
        re.fullmatch(rf"download part/train-00000\S+: 0\.00 of 0\.00 GiB, {number} MB/s", line) for line in lines
    )
    assert lines


@pytest.mark.parametrize("large", [True, False])
def test_cut_in_the_middle_it_asks_for_the_rest(server, place, large):
    server.commit("a/b", files(), large=large)
    place.list()
    server.cuts = [1_000_000, 500_000]
    place.download(0)
    assert place.shard(0).read_bytes() == content(0)
    assert server.ranges() == [None, "bytes=1000000-", "bytes=1500000-"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(size=st.integers(1, 3_000), cuts=st.lists(st.integers(0, 1_500), max_size=hub.TRIES - 1), large=st.booleans())
def test_wherever_it_is_cut_each_byte_is_asked_for_once(server, tmp_path, size, cuts, large):
    content = random.Random(size).randbytes(size)
    server.commit("a/cut", {"x": content}, large=large)
    repo = hub.Repo("data.source", "a/cut", "dataset", "main")
    commit, (file,) = hub.state(repo, ["x"])
    server.cuts, server.requests = list(cuts), []
    out = tmp_path / f"{size}-{len(cuts)}"
    hub.fetch(repo, commit, file, out)
    assert out.read_bytes() == content
    begun = [0, *itertools.accumulate(cuts)]
    expected = [f"bytes={start}-" if start else None for start in begun if start < size]
    assert server.ranges() == expected


def test_cut_again_and_again_without_a_byte(server, place):
    place.list()
    server.cuts = [2_000_000] + [0] * 20
    said = place.download(0, fails=True)
    assert "was asked for part/train-00000-of-00002.parquet 7 times without success" in said and "start again" in said
    assert len(server.pauses) == hub.TRIES - 1 and server.pauses[1:] == sorted(server.pauses[1:])
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
    assert server.pauses == [9.0, 9.0, 9.0, 9.0, 16.0, hub.LONGEST_PAUSE, hub.LONGEST_PAUSE]


def test_a_hub_that_is_down(server, place):
    place.list()
    before = place.listing.read_bytes()
    server.down = 503
    assert f"{server.url} was asked for the revision 7 times without success (HTTP 503)" in place.list(fails=True)
    assert "7 times without success (HTTP 503)" in place.download(fails=True)
    assert place.listing.read_bytes() == before and place.left() == []


def test_a_hub_that_is_not_reached(server, place, monkeypatch):
    place.list()
    server.close()
    huggingface_hub.close_session()  # with the connections that are open still
    for said in (place.list(fails=True), place.download(fails=True)):
        assert "7 times without success" in said and "check the network and HF_ENDPOINT" in said
    assert place.left() == []


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_hub_that_says_nothing(server, place, monkeypatch, method):
    monkeypatch.setattr(hub, "ANSWER_SECONDS", 0.2)
    server.silent = method
    assert "7 times without success (" in place.list(fails=True) and len(server.pauses) >= hub.TRIES - 1


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
    assert f"part/train-00000-of-00002.parquet was fetched and has the sha256 {came}" in said
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


# ---------------------------------------------------------------- the library


def test_the_library_keeps_nothing_of_what_came(server, tmp_path, monkeypatch):
    """Why bytes do not come by its `hf_hub_download`: if this fails, it has learned to go on where it was stopped."""
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    server.cuts = [2_000_000] + [0] * 20
    asked = {
        "repo_id": "a/b",
        "filename": PATTERN.format(shard=0),
        "repo_type": "dataset",
        "local_dir": tmp_path / "in",
    }
    with pytest.raises(Exception, match="peer closed connection"):
        huggingface_hub.hf_hub_download(**asked)
    assert not [path for path in (tmp_path / "in").rglob("*") if path.is_file() and path.stat().st_size > 1_000]
    server.cuts, server.requests = [], []
    huggingface_hub.hf_hub_download(**asked)
    assert server.ranges()[-1] is None  # from the first byte


def test_the_library_takes_wrong_bytes_of_the_right_length(server, tmp_path):
    """And compares no hash."""
    server.wrong_bytes = True
    path = huggingface_hub.hf_hub_download("a/b", PATTERN.format(shard=0), repo_type="dataset", local_dir=tmp_path)
    assert Path(path).read_bytes() != content(0)


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
    assert "7 times without success (HTTP 403)" in place.download(1, fails=True)


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
    assert "up to date" in place.list()
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
        assert "train-00000-of-00002.parquet; unset it, or download them where" in said and "`hf download a/b" in said
    place.download(1)
    assert server.requests == [] and place.left() == [f"{SHARDS[1]}.parquet"]


def test_a_cached_file_that_was_changed(server, place, monkeypatch):
    place.list()
    fill_cache(server)
    (blob,) = Path(constants.HF_HUB_CACHE).rglob(f"blobs/{hashlib.sha256(content(0)).hexdigest()}")
    blob.write_bytes(content(0)[:-1] + b"x")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    said = place.download(0, fails=True)
    assert "in huggingface_hub's cache has the sha256" in said and "delete it and download it again" in said
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
    while not (partial.exists() and partial.stat().st_size > 1_900_000):
        assert first.poll() is None
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


# ------------------------------------------------------------------ tokenizer


@pytest.fixture
def with_tokenizer(tiny, server):
    """The made-up tokenizer in a repository of models."""
    text = (tiny.folder / "bpe.json").read_bytes()
    server.commit("a/model", {"tokenizer.json": text, "README.md": b"x"}, kind="model", large=False)
    return tiny.config(data={"tokenizer": {"kind": "hub", "repo": "a/model", "revision": "main"}})


def test_the_tokenizer_says_its_commit(server, tiny, with_tokenizer, tmp_path):
    stages.build_tokenizer(with_tokenizer, tmp_path / "made")
    assert (tmp_path / "made/tokenizer.json").read_bytes() == (tiny.tokenizer / "tokenizer.json").read_bytes()
    manifest = json.loads((tmp_path / "made/manifest.json").read_text())
    assert manifest["source"] == {"kind": "hub", "repo": "a/model", "revision": "main"}
    assert manifest["commit"] == server.branches["model", "a/model", "main"]
    assert json.loads((tiny.tokenizer / "manifest.json").read_text())["commit"] is None


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"wrong_bytes": True}, r"a/model at main: tokenizer\.json was fetched and has the git_sha1 .* start again"),
        ({"down": 503}, r"data\.tokenizer: a/model at main: .* 7 times without success"),
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
        stages.build_tokenizer(with_tokenizer, tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_tokenizer_offline(server, with_tokenizer, tmp_path, monkeypatch):
    huggingface_hub.hf_hub_download("a/model", "tokenizer.json")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    server.requests.clear()
    stages.build_tokenizer(with_tokenizer, tmp_path / "made")
    commit = server.branches["model", "a/model", "main"]
    assert json.loads((tmp_path / "made/manifest.json").read_text())["commit"] == commit and server.requests == []
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    with pytest.raises(
        UserError, match=r"HF_HUB_OFFLINE is set, and 1 of 1 files .* `hf download a/model --repo-type model"
    ):
        stages.build_tokenizer(with_tokenizer, tmp_path / "made")
