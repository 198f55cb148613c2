"""Checkpoints that are whole or not there.

A checkpoint is a folder checkpoints/step_NNNNNNN with safetensors files and manifest.json, which lists the SHA-256 of
each. It is written under a temporary name, fsynced and renamed, the manifest last. On loading, what is incomplete or
damaged is named and passed over for the one before it; one of another config, corpus or tokenizer is refused.
"""

import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from tokencodes.errors import UserError
from tokencodes.files import (
    DISK_FULL,
    differences,
    fsync_directory,
    fsync_file,
    read_json,
    remove,
    sha256_file,
    write_json,
)

FORMAT = 1
MANIFEST = "manifest.json"
NAME = re.compile(r"step_(\d{7,})")
PARTS = ("model", "optimizer", "rng")
DAMAGED = ".damaged"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint on disk."""

    path: Path
    manifest: dict[str, Any]

    @property
    def step(self) -> int:
        return self.manifest["step"]

    def tensors(self, part: str) -> dict[str, Tensor]:
        """The tensors of `model`, `optimizer` or `rng`, on the CPU."""
        return load_file(self.path / f"{part}.safetensors")


def name_of(step: int) -> str:
    """step_0001234"""
    return f"step_{step:07d}"


def save(folder: Path, step: int, parts: dict[str, dict[str, Tensor]], facts: dict[str, Any], keep: int) -> Path:
    """Write checkpoints/step_NNNNNNN and remove the oldest until `keep` are left. Returns its path.

    `facts` go into the manifest. What is there of later steps was passed over, or this one would have been made from
    it: it does not count, and is set aside as NAME.damaged. Raises UserError when the disk is full, FloatingPointError
    for weights that are not finite; what was there before is untouched.
    """
    final = folder / name_of(step)
    temporary = folder / f".{final.name}.tmp"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(temporary, ignore_errors=True)  # of an attempt that was killed; the run's lock keeps others out
    for name, tensor in parts["model"].items():
        if not tensor.isfinite().all():
            raise FloatingPointError(f"step {step}: {name} is not finite; not saved")
    try:
        temporary.mkdir()
        files = {}
        for part, tensors in parts.items():
            path = temporary / f"{part}.safetensors"
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in sorted(tensors.items())}, path)
            fsync_file(path)
            files[path.name] = {"sha256": sha256_file(path), "bytes": path.stat().st_size}
        write_json(temporary / MANIFEST, {"format": FORMAT, "step": step, **facts, "files": files})
        if final.exists():  # damaged: a whole one would have been continued from
            shutil.rmtree(final)
        temporary.rename(final)
        fsync_directory(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if getattr(error, "errno", None) in DISK_FULL or "No space left" in str(error):
            raise UserError(
                f"{final}: the disk is full; the checkpoints before it are untouched; free some space and start again"
            ) from error
        raise
    paths = sorted_paths(folder)
    counted = paths[: paths.index(final) + 1]
    for path in paths[len(counted) :]:
        aside = path.with_name(f"{path.name}{DAMAGED}")
        remove(aside)
        path.rename(aside)
    for path in counted[:-keep]:
        remove(path)
    return final


def clear_temporary(out: Path) -> None:
    """Remove what a kill left half written in a run's folder. The caller has the run's lock."""
    for folder in (out, out / "checkpoints"):
        for path in folder.glob(".*.tmp"):
            remove(path)


def sorted_paths(folder: Path) -> list[Path]:
    """Folders that have a checkpoint's name, oldest first; temporary ones do not."""
    if not folder.is_dir():
        return []
    found = [(int(match[1]), path) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def verify(path: Path) -> Checkpoint:
    """Read the manifest and hash every file. Raises ValueError with what is wrong."""
    if not (path / MANIFEST).is_file():
        raise ValueError(f"{path}: incomplete: it has no {MANIFEST}")
    try:
        manifest = read_json(path / MANIFEST)
        if manifest["format"] != FORMAT:
            raise ValueError(f"{path}: format {manifest['format']}, this code reads {FORMAT}")
        if not isinstance(manifest["step"], int) or path.name != name_of(manifest["step"]):
            raise ValueError(f"{path}: its manifest says step {manifest['step']!r}")
        if missing := sorted({f"{part}.safetensors" for part in PARTS} - set(manifest["files"])):
            raise ValueError(f"{path}: damaged: its manifest does not list {', '.join(missing)}")
        for name, entry in manifest["files"].items():
            file = path / name
            if not file.is_file() or file.stat().st_size != entry["bytes"] or sha256_file(file) != entry["sha256"]:
                raise ValueError(f"{file}: damaged: missing, cut, or not the bytes that were written")
    except (UserError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
    return Checkpoint(path, manifest)


def latest(folder: Path, expected: dict[str, Any]) -> Checkpoint | None:
    """The newest whole checkpoint, or None if there never was one.

    `expected` are facts that must be equal in its manifest (config identity, hashes of store and tokenizer). Raises
    UserError if they are not, or if there are checkpoints of which none is whole.
    """
    paths = sorted_paths(folder)
    for path in reversed(paths):
        try:
            found = verify(path)
        except ValueError as error:
            print(f"train: {error}; passed over", file=sys.stderr, flush=True)
            continue
        if unequal := differences({key: found.manifest.get(key) for key in expected}, expected):
            raise UserError(
                f"{path}: was made by another run: {'; '.join(unequal[:3])}{' ...' if unequal[3:] else ''}; "
                f"restore that, use another `name`, or delete {folder} to train anew"
            )
        return found
    if paths:
        raise UserError(f"{folder}: none of its {len(paths)} checkpoints is whole; delete the folder to train anew")
    return None
