"""Files that are either whole or not there: temporary name, fsync, rename; and the hashes that say what they hold."""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from tokencodes.errors import UserError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the last: above `ulimit -f` or what the file system allows


def fsync_directory(path: Path) -> None:
    """Make a rename inside `path` survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_file(path: Path) -> None:
    """Bring a written file to the disk."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def full_disk_named(path: Path | str) -> Iterator[None]:
    """Turn "no space left" while `path` is written into a UserError that names it."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise UserError(
            f"{path}: the disk is full ({os.strerror(error.errno)}); nothing was changed there; free some space and "
            "start again"
        ) from error


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success fsync it and rename it to `path`, on any error remove it.

    What stood at `path` before stays as it was until the rename, so a killed job leaves no half file.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with full_disk_named(path):
            yield temporary
            fsync_file(temporary)
            os.replace(temporary, path)
            fsync_directory(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: Path | str, text: str) -> None:
    """Write UTF-8 text atomically."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def json_text(value: Any) -> str:
    """JSON as this project writes it: keys in the order given, floats by their shortest exact form, NaN refused."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path | str, value: Any) -> None:
    """Write JSON atomically."""
    write_text(path, json_text(value))


def read_json(path: Path | str) -> Any:
    """Read a JSON file; a missing or damaged one is the user's error, with its name."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; run the stage that writes it") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid JSON ({error}); delete it and run the stage that writes it again") from None


def sha256_file(path: Path | str) -> str:
    """Hex SHA-256 of a file's bytes."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """Hex SHA-256 of a JSON-able value in canonical form (sorted keys, no white space)."""
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def differences(there: Any, here: Any, key: str = "") -> list[str]:
    """Where two nested dicts differ: "train.peak_lr is 0.001 there and 0.002 here"."""
    if isinstance(there, dict) and isinstance(here, dict):
        names = list(dict.fromkeys([*there, *here]))
        return [
            line
            for name in names
            for line in differences(there.get(name), here.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if there == here else [f"{key} is {there!r} there and {here!r} here"]


def lock(file: IO[Any], *, wait: bool = False) -> bool:
    """Take an open file for this process; False if another one has it. `wait` until it has not.

    The kernel drops the lock when the file is closed or the process ends, in whatever way. A file system without locks
    refuses nobody.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def inside(root: Path | str, relative: str) -> Path:
    """Join a name that came from data or config to `root`; refuse one that would leave it."""
    root = Path(root).resolve()
    path = (root / relative).resolve()
    if not path.is_relative_to(root):
        raise UserError(f"{relative!r} leaves the folder {root}; use a name inside it")
    return path
