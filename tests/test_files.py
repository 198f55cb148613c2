"""Files and folders are whole or not there, whatever stops the writer: a kill, a full disk, an error, an interrupt."""

import errno
import fcntl
import os
import random
import signal
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tokencodes import files
from tokencodes.errors import UserError

OLD = {"a.bin": b"old a", "manifest.json": b"old manifest"}
NEW = {"a.bin": b"new a" * 50, "b.bin": b"new b" * 900, "manifest.json": b"new manifest"}
CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate")  # audit events


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def write(folder: Path, what: dict[str, bytes]) -> None:
    for name, content in what.items():
        (folder / name).write_bytes(content)


def one_file(folder: Path) -> None:
    with files.atomic_path(folder / "a.bin") as path:
        path.write_bytes(NEW["a.bin"])


def whole(folder: Path) -> None:
    with files.whole_folder(folder / "model", ours=("*.bin", "manifest.json"), what="a model") as temporary:
        write(temporary, NEW)


def together(folder: Path) -> None:
    with files.files_together(folder / "model", last="manifest.json") as temporary:
        write(temporary, NEW)


def killed(write_new, folder: Path, after: int) -> bool:
    """Whether a process that writes was killed before change number `after` of the file system; else it ended well."""
    child = os.fork()
    if child == 0:
        seen = 0

        def hook(event, arguments):
            nonlocal seen
            if event in CHANGES or (event == "open" and arguments[1] and set("wax+") & set(arguments[1])):
                seen += 1
                if seen > after:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        try:
            write_new(folder)
        finally:
            os._exit(0 if sys.exc_info()[0] is None else 1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def at_each_change(write_new, folder: Path, old: dict[str, bytes] | None):
    """Yield after each kill, at a later change each time; a fresh folder with `old` each time."""
    after = 0
    while True:
        place = folder / str(after)
        (place / "model").mkdir(parents=True) if old is not None else place.mkdir(parents=True)
        write(place / "model", old or {})
        if not killed(write_new, place, after):
            break
        yield place
        after += 1
    assert after >= 5


# ---------------------------------------------------------------------- kills


@pytest.mark.parametrize("old", [None, {}, OLD], ids=["nothing", "an empty folder", "an old one"])
def test_a_kill_leaves_a_whole_folder(tmp_path, old):
    """Old or new; or, between two renames, none, with the old one beside it. The next writer mends it all."""
    seen = set()
    for place in at_each_change(whole, tmp_path, old):
        target = place / "model"
        found = contents(target) if target.exists() else None
        if found is None and old is not None:
            assert contents(place / ".model.old") == old
        else:
            assert found in (old, NEW)
        seen.add("none" if found is None else "new" if found == NEW else "old")
        whole(place)
        assert contents(place) == {f"model/{name}": content for name, content in NEW.items()}
        assert os.listdir(place) == ["model"]
    assert "new" in seen or old is None


def test_what_a_kill_set_aside_is_put_back_even_if_the_next_writer_fails(tmp_path):
    for place in at_each_change(whole, tmp_path, OLD):
        with pytest.raises(RuntimeError), files.whole_folder(place / "model", ours=["*"], what="a model") as temporary:
            write(temporary, {"half": b""})
            raise RuntimeError
        assert contents(place / "model") in (OLD, NEW) and not (place / ".model.tmp").exists()


@pytest.mark.parametrize("old", [None, OLD], ids=["nothing", "an old one"])
def test_a_kill_leaves_no_mixture_with_a_manifest(tmp_path, old):
    seen = set()
    for place in at_each_change(together, tmp_path, old):
        target = place / "model"
        found = {name: content for name, content in contents(target).items() if not name.startswith(".scratch")}
        vouched = found.get("manifest.json")
        if vouched is not None:
            assert found == {OLD["manifest.json"]: OLD, NEW["manifest.json"]: NEW}[vouched]
        seen.add(vouched)
        together(place)
        assert contents(target) == NEW and not (target / ".scratch").exists()
    assert None in seen and (old is None or OLD["manifest.json"] in seen)


def test_a_kill_leaves_the_file_that_was_there(tmp_path):
    after, killed_now = 0, True
    while killed_now:
        place = tmp_path / str(after)
        place.mkdir()
        write(place, OLD)
        killed_now = killed(one_file, place, after)
        assert (place / "a.bin").read_bytes() == (OLD if killed_now else NEW)["a.bin"]
        after += 1
    assert after > 2


@pytest.mark.parametrize("seed", range(10))
def test_kills_at_any_time_one_after_the_other(tmp_path, seed):
    """Whatever a kill left, another writer is killed on top of it; then one comes through."""
    draw = random.Random(seed)
    (tmp_path / "model").mkdir()
    write(tmp_path / "model", OLD)
    for _ in range(6):
        killed(whole, tmp_path, draw.randrange(14))
        target = tmp_path / "model" if (tmp_path / "model").exists() else tmp_path / ".model.old"
        assert contents(target) in (OLD, NEW)
    whole(tmp_path)
    assert contents(tmp_path) == {f"model/{name}": content for name, content in NEW.items()}


# ------------------------------------------------------- errors, full disks


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("old", [None, OLD], ids=["nothing", "an old one"])
def test_an_error_changes_nothing(tmp_path, error, old):
    target = tmp_path / "model"
    if old is not None:
        target.mkdir()
        write(target, old)
    before = contents(tmp_path)
    for writer in (
        files.whole_folder(target, ours=["*"], what="a model"),
        files.files_together(target, last="manifest.json"),
        files.atomic_path(target / "a.bin"),
    ):
        with pytest.raises(error), writer as temporary:
            if temporary.is_dir():
                write(temporary, {"half": b"x"})
            else:
                temporary.write_bytes(b"x")
            raise error
        assert contents(tmp_path) == before and not list(tmp_path.rglob(".*"))


@hypothesis_settings(max_examples=60, deadline=None)
@given(limit=st.integers(0, 6000), writer=st.sampled_from([whole, together, one_file]))
def test_a_full_disk_changes_nothing(tmp_path_factory, small_files, limit, writer):
    """Of the user's three lines, the one that says so is true."""
    folder = tmp_path_factory.mktemp("full")
    (folder / "model").mkdir()
    write(folder, OLD)
    write(folder / "model", OLD)
    before = contents(folder)
    try:
        with small_files(limit):
            writer(folder)
    except UserError as error:
        assert "the disk is full (File too large); nothing was changed there; free some space" in str(error)
        assert contents(folder) == before
        assert not list(folder.rglob(".*"))
    else:
        assert limit >= max(len(content) for content in NEW.values()) or writer is one_file
        assert contents(folder) != before


@pytest.mark.parametrize("number", files.DISK_FULL)
@pytest.mark.parametrize("call", ["fsync", "mkdir", "replace", "rename"])
def test_nothing_was_changed_there_is_said_only_where_it_is_true(tmp_path, monkeypatch, number, call):
    """Each call of the system that a writer makes fails once, the first, the second, ...: said and done agree."""
    original, said = getattr(os, call), set()
    for writer in (whole, together, one_file):
        for after in range(20):
            place, calls = tmp_path / f"{writer.__name__}{after}", 0
            (place / "model").mkdir(parents=True)
            write(place, OLD)
            write(place / "model", OLD)
            before = contents(place)

            def fails(*arguments, after=after, **options):
                nonlocal calls
                calls += 1
                if calls == after + 1:
                    raise OSError(number, os.strerror(number), str(arguments[0]))
                return original(*arguments, **options)

            with monkeypatch.context() as patch:
                patch.setattr(os, call, fails)
                try:
                    writer(place)
                except UserError as error:
                    assert "nothing was changed there" in str(error) and contents(place) == before
                    said.add(writer)
                except OSError as error:
                    assert error.errno == number
            if calls <= after:
                break
    assert said or call == "replace"


def test_a_library_that_tells_of_a_full_disk_in_words(tmp_path):
    class SafetensorError(Exception):
        pass

    with pytest.raises(UserError, match=r"x: the disk is full \(No space left on device\)"):
        with files.full_disk_named("x"):
            raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")
    with pytest.raises(SafetensorError), files.full_disk_named("x"):
        raise SafetensorError("Error while serializing: I/O error: Permission denied")
    with pytest.raises(OSError, match="Input/output"), files.full_disk_named("x"):
        raise OSError(errno.EIO, "Input/output error")
    with pytest.raises(UserError, match=r"^the disk of y: No space left on device$"), files.full_disk_named("x"):
        raise UserError("the disk of y: No space left on device")


def test_all_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    """Every file and folder is fsynced before the first rename of the set, and the folder of the names after each."""
    events, synced, renamed = [], os.fsync, os.rename

    def fsync(handle):
        events.append(("fsync", Path(f"/proc/self/fd/{handle}").resolve()))
        synced(handle)

    def rename(source, target, **options):
        events.append(("rename", Path(target)))
        renamed(source, target, **options)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "replace", rename)
    folder = tmp_path.resolve()
    whole(folder)
    first = events.index(("rename", folder / "model"))
    temporary = folder / ".model.tmp"
    assert {path for _, path in events[:first]} == {temporary, *(temporary / name for name in NEW)}
    assert events[first + 1 :] == [("fsync", folder)]
    events.clear()
    together(folder)
    first = next(i for i, (kind, _) in enumerate(events) if kind == "rename")
    scratch = folder / "model" / ".scratch"
    assert {path for _, path in events[:first]} == {scratch, folder / "model", *(scratch / name for name in NEW)}
    moves = [path.name for kind, path in events if kind == "rename"]
    assert moves == ["a.bin", "b.bin", "manifest.json"]
    for i, (kind, _) in enumerate(events):
        assert kind == "fsync" or events[i + 1] == ("fsync", folder / "model")


# ------------------------------------------------------------ foreign content


@pytest.mark.parametrize("name", ["thesis.txt", ".hidden", "a.bin.bak", "folder/a.bin"])
def test_what_is_not_ours_is_not_replaced(tmp_path, name):
    target = tmp_path / "model"
    (target / name).parent.mkdir(parents=True)
    write(target, {**OLD, name: b"mine"})
    before = contents(tmp_path)
    with pytest.raises(UserError, match=f"model: holds {name.split('/')[0]}, which is no part of a model; name"):
        whole(tmp_path)
    assert contents(tmp_path) == before and not (tmp_path / ".model.tmp").exists()


def test_what_comes_while_we_write_is_not_replaced(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    with pytest.raises(UserError, match=r"holds thesis\.txt"):
        with files.whole_folder(target, ours=("*.bin",), what="a model") as temporary:
            write(temporary, NEW)
            write(target, {"thesis.txt": b"mine"})
    assert contents(tmp_path) == {"model/thesis.txt": b"mine"}


def test_a_file_where_a_folder_belongs(tmp_path):
    (tmp_path / "model").write_text("mine")
    with pytest.raises(UserError, match="model: is a file; name a folder for a model"):
        whole(tmp_path)
    assert contents(tmp_path) == {"model": b"mine"}


def test_a_file_of_snakemake_is_ours(tmp_path):
    (tmp_path / "model").mkdir()
    write(tmp_path / "model", {**OLD, ".snakemake_timestamp": b""})
    whole(tmp_path)
    assert contents(tmp_path / "model") == NEW


def test_other_files_beside_a_set_stay(tmp_path):
    (tmp_path / "model/folder").mkdir(parents=True)
    write(tmp_path / "model", {**OLD, "thesis.txt": b"mine", "folder/a": b"mine"})
    together(tmp_path)
    assert contents(tmp_path / "model") == {**NEW, "thesis.txt": b"mine", "folder/a": b"mine"}


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    """As when one disk is not enough."""
    (tmp_path / "elsewhere/model").mkdir(parents=True)
    (tmp_path / "model").symlink_to(tmp_path / "elsewhere/model")
    for writer in (whole, together):
        write(tmp_path / "elsewhere/model", OLD)
        writer(tmp_path)
        assert (tmp_path / "model").is_symlink() and contents(tmp_path / "elsewhere/model") == NEW
        assert sorted(os.listdir(tmp_path)) == ["elsewhere", "model"]
        assert os.listdir(tmp_path / "elsewhere") == ["model"]


def test_permissions_are_those_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        with files.whole_folder(tmp_path / "model", ours=["*"], what="a model") as temporary:
            write(temporary, NEW)
            (temporary / "a.bin").chmod(0o600)  # as safetensors does
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model").iterdir()}
    assert modes == {0o640} and stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o750


@given(st.text(max_size=20))
def test_a_name_from_data_stays_inside(name):
    root = Path("/some/root")
    try:
        path = files.inside(root, name)
    except (UserError, ValueError):
        return
    assert path.is_relative_to(root)


@pytest.mark.parametrize("name", ["..", "../x", "/etc/passwd", "a/../../x"])
def test_a_name_that_leaves_the_folder(name):
    with pytest.raises(UserError, match="leaves the folder /some/root"):
        files.inside("/some/root", name)


# ---------------------------------------------------------------------- locks


def test_two_writers_of_one_folder(tmp_path):
    for writer in (whole, together):
        with (
            files.whole_folder(tmp_path / "model", ours=["*"], what="a model")
            if writer is whole
            else (files.files_together(tmp_path / "model", last="manifest.json")) as temporary
        ):
            write(temporary, NEW)
            with pytest.raises(UserError, match="model: another process is writing here; wait for it or stop it"):
                writer(tmp_path)
            assert contents(temporary) == NEW
        assert contents(tmp_path / "model") == NEW


def test_a_lock_that_another_has(tmp_path):
    path = tmp_path / "made" / ".lock"
    with files.locked(path, busy="somebody trains here"):
        with pytest.raises(UserError, match=r"^somebody trains here$"), files.locked(path, busy="somebody trains here"):
            raise AssertionError
        with pytest.raises(UserError, match=r"^busy$"):
            files.lock_file(path, busy="busy")
    with files.lock_file(path, busy="busy"), open(path) as other:
        assert not files.lock(other)
    with files.locked(path, busy="busy"):
        pass


def test_waiting_for_a_lock(tmp_path):
    """Another process has it until it is told to end, which is after we said that we wait."""
    path, said = tmp_path / ".lock", []
    ready, end = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        with open(path, "w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.write(ready[1], b"x")
            os.read(end[0], 1)
        os._exit(0)
    os.read(ready[0], 1)

    def waiting():
        said.append("waiting")
        os.write(end[1], b"x")

    with files.locked(path, waiting=waiting):
        assert said == ["waiting"]
    os.waitpid(child, 0)
    with files.locked(path, waiting=waiting):
        assert said == ["waiting"]


def test_a_lock_whose_file_was_renamed_meanwhile(tmp_path, monkeypatch):
    """The other process was done with it between our opening and our locking it."""
    path, flock = tmp_path / "part", fcntl.flock

    def late(file, how):
        path.rename(tmp_path / "whole")
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(UserError, match=r"^busy$"):
        files.lock_file(path, busy="busy")


def test_a_file_system_without_locks_refuses_nobody(tmp_path, monkeypatch):
    """Some parallel file systems are mounted so."""

    def none(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    with open(tmp_path / ".lock", "w") as file:
        assert files.lock(file)
        with open(tmp_path / ".lock") as other:
            assert not files.lock(other)
            monkeypatch.setattr(fcntl, "flock", none)
            assert files.lock(other)
    whole(tmp_path)
    assert contents(tmp_path / "model") == NEW
