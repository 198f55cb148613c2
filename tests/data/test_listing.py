"""The listing of a corpus on the hub: one commit, size and hash of each shard; and the shards that come by it."""

import hashlib
import re
import shutil
import subprocess
import threading
from types import SimpleNamespace

import pytest

import stages
from hub_server import PATTERN, SHARDS, SIZE, content, files, use
from tokencodes.data import hub, listing, source
from tokencodes.data.listing import Listing
from tokencodes.errors import UserError
from tokencodes.files import digest, write_json
from tokencodes.report import page


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
    monkeypatch.setattr(hub, "PATHS_AT_A_TIME", 3)
    server.commit("a/b", {f"{number}.parquet": bytes([number]) for number in range(8)})
    place.configure(pattern="{shard}.parquet", n_shards=8)
    place.list()
    assert [entry["size"] for entry in place.says()["files"].values()] == [1] * 8
    assert [request.method for request in server.requests] == ["GET", "POST", "POST", "POST"]


def test_the_same_listing_is_not_written_again_and_another_is(server, place, monkeypatch):
    place.list()
    before = place.listing.stat().st_mtime_ns, place.listing.stat().st_ino, place.listing.read_bytes()
    assert "up to date" in place.list()
    mirror = server.url.replace("127.0.0.1", "localhost")
    use(monkeypatch, mirror)  # the same files from another address
    assert "up to date" in place.list()
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
    assert "6 of 6 files are missing at commit" in said and "part/train-00000-of-00006.parquet, part/" in said
    assert "train-00003" not in said and "check data.source.repo, data.source.revision, data.source.pattern" in said
    assert place.listing.read_bytes() == before and server.asked(content=True) == []


def test_a_folder_is_no_shard(server, place):
    place.configure(pattern="part", n_shards=1)
    assert "1 of 1 files are missing" in place.list(fails=True)


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
        lambda says: says | {"files": {SHARDS[0]: {"path": "x", "size": 3, "sha256": "0" * 64, "git_sha1": "0" * 40}}},
    ],
)
@pytest.mark.parametrize("signed", [False, True])
def test_a_damaged_listing(server, place, damage, signed):
    """Changed by hand; or written so, with a digest that fits."""
    place.list()
    value = damage(place.says())
    if signed and value:
        del value["record_sha256"]
        value |= {"record_sha256": digest(value)}
    write_json(place.listing, value)
    said = place.download(fails=True)
    assert "listing.json: " in said and "tokencodes list" in said and server.asked(content=True) == []


def test_a_listing_is_read_as_it_was_written(server, place):
    place.list()
    read = Listing.read(place.listing)
    assert [read.file(shard).digest for shard in SHARDS] == [hashlib.sha256(content(i)).hexdigest() for i in range(2)]
    before = place.listing.read_bytes()
    read.write(place.listing)
    assert place.listing.read_bytes() == before


def test_another_question_has_another_name(place):
    names = [listing.listing_name(place.configure(**changes).data.source) for changes in ({}, {"keep_raw": True})]
    assert names[0] == names[1]
    for changes in ({"repo": "a/c"}, {"revision": "x"}, {"pattern": "{shard}", "n_shards": 2}, {"n_shards": 3}):
        assert listing.listing_name(place.configure(**changes).data.source) not in names


def test_the_report_says_the_commit(server, place, tmp_path):
    settings = place.configure()
    results = SimpleNamespace(settings=settings, root=tmp_path)
    assert page.setting(results).endswith("; corpus a/b at main.")
    place.run("list", "--out", tmp_path / "data" / listing.listing_name(settings.data.source))
    assert page.setting(results).endswith(f"; corpus a/b at commit {server.branches['dataset', 'a/b', 'main']}.")


def test_only_the_hub_has_a_listing(tiny, tmp_path):
    with pytest.raises(UserError, match=r"data\.source\.kind is local; only a corpus on the hub has a listing"):
        source.write_listing(tiny.config().data.source, tmp_path / "listing.json")


def test_what_is_there_whole_is_not_fetched_again(server, place):
    place.list()
    place.download(0)
    assert "downloaded" not in place.download(0) and server.ranges() == [None]
    place.shard(0).write_bytes(content(0)[:-1] + b"x")
    assert "downloaded" in place.download(0) and server.ranges() == [None, None]
    assert place.shard(0).read_bytes() == content(0)


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


def free(monkeypatch, n_bytes):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(listing.shutil, "disk_usage", lambda _: usage._replace(free=n_bytes))


def test_a_disk_that_will_not_hold_it_is_said_before_a_byte_is_fetched(server, place, monkeypatch):
    place.list()
    before = place.listing.read_bytes()
    one, both = SIZE + 1, 2 * SIZE + 1
    free(monkeypatch, listing.MARGIN + one)
    place.list()
    free(monkeypatch, listing.MARGIN + SIZE - 1)
    server.requests.clear()
    for said in (place.list(fails=True), place.download(0, fails=True)):
        assert "1 raw shard to come: 0.00 GiB are needed and 1.00 GiB must stay free, 1.00 GiB are free" in said
        assert f"{place.raw}: " in said and "put `results` on another disk" in said
    place.configure(keep_raw=True)
    free(monkeypatch, listing.MARGIN + both - 1)
    for said in (place.list(fails=True), place.download(0, fails=True)):
        assert "2 raw shards to come: 0.01 GiB are needed" in said
    assert server.asked(content=True) == [] and place.left() == []
    assert place.listing.read_bytes() == before
    free(monkeypatch, listing.MARGIN + both)
    place.download(0)
    free(monkeypatch, listing.MARGIN + one)  # the first one is there
    place.list()
    place.download(1)


def test_what_came_already_needs_no_room(server, place, monkeypatch):
    place.list()
    server.cuts = [2_000_000] + [0] * 20
    place.download(0, fails=True)
    server.cuts = []
    free(monkeypatch, listing.MARGIN + SIZE - 2_000_000 - 1)
    assert "1 raw shard to come" in place.download(0, fails=True)
    # One that is under way beside it needs its room too.
    free(monkeypatch, listing.MARGIN + SIZE + 1 + 1_000_000 - 1)
    assert "2 raw shards to come" in place.download(1, fails=True)
    free(monkeypatch, listing.MARGIN + SIZE + 1 + 1_000_000)
    place.download(1)
    free(monkeypatch, listing.MARGIN + SIZE - 2_000_000)
    place.download(0)
    assert [place.shard(number).read_bytes() for number in range(2)] == [content(0), content(1)]


def test_two_shards_at_a_time(server, place):
    settings = place.configure()
    place.list()
    made = [
        threading.Thread(target=stages.download, args=(settings, shard, place.raw / f"{shard}.parquet", place.listing))
        for shard in SHARDS
    ]
    for thread in made:
        thread.start()
    for thread in made:
        thread.join()
    assert [place.shard(number).read_bytes() for number in range(2)] == [content(0), content(1)]
