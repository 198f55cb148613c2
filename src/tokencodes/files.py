"""Files and folders that are either whole or not there: temporary name, fsync, rename. Locks, hashes and JSON, too.

Three writers, for one file (`atomic_path`), for a folder that belongs to us (`whole_folder`), and for a set of files in
a folder that may hold others (`files_together`). Whatever stops them, a kill included, they leave what was there before
or what is new, and no mixture that passes for either. The next writer removes what a killed one left.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from tokencodes.errors import UserError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # the last: above `ulimit -f` or what the file system allows
PLAIN_FILE = 0o666  # permissions of a new file, before the user's umask
TIMESTAMP = ".snakemake_timestamp"  # Snakemake puts it into folders that are outputs of a rule


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


def fsync_tree(folder: Path) -> None:
    """Bring all files and folders below `folder` to the disk, and `folder` itself."""
    for root, _, names in os.walk(folder):
        for name in names:
            fsync_file(Path(root, name))
        fsync_directory(Path(root))


def remove(path: Path) -> None:
    """Remove a folder with all that it holds, a file, or a link alone; nothing happens if it is not there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def expanded(path: Path | str) -> Path:
    """`path` with the home folder in place of ~ or ~USER. Raises UserError if there is no such home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UserError(f"{path}: there is no home folder {Path(path).parts[0]}; write the whole path") from None


@contextlib.contextmanager
def full_disk_named(path: Path | str) -> Iterator[None]:
    """Turn "no space left" while `path` is written into a UserError that names it.

    For blocks that change nothing at `path` before their last step. Some libraries (safetensors) tell the error number
    in their text alone.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        full = [number for number in DISK_FULL if number == getattr(error, "errno", None)]
        if not isinstance(error, OSError):
            full = [number for number in DISK_FULL if os.strerror(number) in str(error)]
        if not full:
            raise
        raise UserError(
            f"{path}: the disk is full ({os.strerror(full[0])}); nothing was changed there; free some space and "
            "start again"
        ) from error


@contextlib.contextmanager
def atomic_path(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; on success fsync it and rename it to `path`, on any error remove it.

    What stood at `path` before stays as it was until the rename, so a killed job leaves no half file.
    """
    path = Path(os.path.realpath(path) if Path(path).is_symlink() else path)  # the file that a link names is replaced
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: is {'a folder' if path.is_dir() else 'a device or a pipe'}; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with full_disk_named(path):
            yield temporary
            fsync_file(temporary)
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fsync_directory(path.parent)


@contextlib.contextmanager
def whole_folder(path: Path | str, *, ours: Sequence[str], what: str) -> Iterator[Path]:
    """Yield an empty folder beside `path` that takes its place, whole and fsynced, when the block ends well.

    What stood at `path` stays as it was until then, and is removed afterwards. `ours` are patterns of the file names
    that a folder of this kind holds; `what` names the kind. All files get the permissions that the user's umask gives.

    A kill leaves `path` as it was, or new, or, in the instant between two renames, not there; then what it was is
    beside it, and the next call puts it back before it does anything else. Raises UserError if `path` is a file or
    holds what is not `ours`, if another process is writing it, or if the disk is full.
    """
    target = Path(path).resolve()  # of a link, the folder that it names is replaced
    temporary, old = (target.with_name(f".{target.name}.{kind}") for kind in ("tmp", "old"))
    with _scratch(temporary, path):
        with full_disk_named(path):
            if old.exists() and not target.exists():
                old.rename(target)
            _refuse_foreign(target, path, ours, what)
            yield temporary
            for file in (each for each in temporary.rglob("*") if each.is_file()):
                file.chmod(temporary.stat().st_mode & PLAIN_FILE)  # a new folder's permissions are the umask's
            fsync_tree(temporary)
            _refuse_foreign(target, path, ours, what)
            _take_place(temporary, target, old)
        fsync_directory(target.parent)
        remove(old)


def _refuse_foreign(folder: Path, name: Path | str, ours: Sequence[str], what: str) -> None:
    """Raise UserError if `folder`, which the user calls `name`, holds what would be lost by replacing it."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{name}: is a file; name a folder for {what}")
    for path in sorted(folder.iterdir()) if folder.exists() else []:
        if path.is_dir() or not any(fnmatch(path.name, pattern) for pattern in (*ours, TIMESTAMP)):
            raise UserError(f"{name}: holds {path.name}, which is no part of {what}; name another folder")


def _take_place(new: Path, target: Path, old: Path) -> None:
    """Rename `new` to `target`, and what `target` was to `old`; if that fails, `target` is as it was."""
    replaced = target.exists()
    if replaced:
        remove(old)  # of a writer that was killed after its folder was in place
        target.rename(old)
    try:
        new.rename(target)
    except BaseException:
        if replaced:
            old.rename(target)
        raise


@contextlib.contextmanager
def files_together(folder: Path | str, *, last: str) -> Iterator[Path]:
    """Yield an empty folder inside `folder`, whose files move to `folder`, fsynced, when the block ends well.

    `last` is the name of the file that vouches for the others (a manifest). The old one is removed before the first
    file moves, and the new one moves at the end, so that no mixture of old and new files has it. Other files in
    `folder` stay. Raises UserError if another process writes there, or if the disk is full before the first file moves.
    """
    folder = Path(folder)
    scratch = folder / ".scratch"
    with _scratch(scratch, folder):
        with full_disk_named(folder):
            yield scratch
            fsync_tree(scratch)
        names = sorted(path.name for path in scratch.iterdir())
        (folder / last).unlink(missing_ok=True)
        fsync_directory(folder)
        for name in sorted(names, key=lambda name: (name == last, name)):
            os.replace(scratch / name, folder / name)
            fsync_directory(folder)
        scratch.rmdir()


@contextlib.contextmanager
def _scratch(folder: Path, owner: Path | str) -> Iterator[None]:
    """An empty `folder` for this process alone, removed if the block fails, on behalf of `owner`.

    The lock is on the folder itself, so that a kill leaves nothing but the folder, which is then used again. Raises
    UserError if another process has it.
    """
    handle = None
    while handle is None:
        with full_disk_named(owner):
            folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # a process that ended just now took it away
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not lock(handle) or not _is_at(handle, folder):
            raise UserError(f"{owner}: another process is writing here; wait for it or stop it")
        for left in list(folder.iterdir()):
            remove(left)
        try:
            yield
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    finally:
        os.close(handle)


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


def differences(stored: Any, current: Any, key: str = "") -> list[str]:
    """Where two nested dicts differ: "train.peak_lr is 0.001 there and 0.002 here"."""
    if isinstance(stored, dict) and isinstance(current, dict):
        names = list(dict.fromkeys([*stored, *current]))
        return [
            line
            for name in names
            for line in differences(stored.get(name), current.get(name), f"{key}.{name}" if key else name)
        ]
    return [] if stored == current else [f"{key} is {stored!r} there and {current!r} here"]


def lock(file: IO[Any] | int, *, wait: bool = False) -> bool:
    """Take an open file for this process; False if another one has it. With `wait`, wait until it is free.

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


def _is_at(file: IO[Any] | int, path: Path) -> bool:
    """Whether an open file is the one at `path`: it may have been renamed or removed before it was locked."""
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file if isinstance(file, int) else file.fileno()), path.stat())
    return False


def lock_file(path: Path | str, *, busy: str, mode: str = "a") -> IO[Any]:
    """Open `path` and lock it for this process until the file is closed. Raises UserError(busy) if another one has it.

    Where locks are not supported, nobody is refused: what is guarded so needs a second guard.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, mode)
    if not lock(file) or not _is_at(file, path):
        file.close()
        raise UserError(busy)
    return file


@contextlib.contextmanager
def locked(
    path: Path | str, *, busy: str | None = None, waiting: Callable[[], None] = lambda: None, mode: str = "a"
) -> Iterator[IO[Any]]:
    """Hold the lock of the file `path`, which is opened in `mode` and made if it is not there; yields the open file.

    If another process has it: raises UserError(busy), or without `busy` calls `waiting` once and waits.
    """
    if busy is not None:
        with lock_file(path, busy=busy, mode=mode) as file:
            yield file
        return
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, mode) as file:
        if not lock(file):
            waiting()
            lock(file, wait=True)
        yield file


def inside(root: Path | str, relative: str) -> Path:
    """Join a name that came from data or config to `root`; refuse one that would leave it."""
    root = Path(root).resolve()
    path = (root / relative).resolve()
    if not path.is_relative_to(root):
        raise UserError(f"{relative!r} leaves the folder {root}; use a name inside it")
    return path
