"""Checkpoints that are complete or absent.

A checkpoint is a folder checkpoints/step_NNNNNNN with safetensors files and manifest.json, which lists the SHA-256 of
each file. `save` writes it under a temporary name, the manifest last, fsyncs it and renames it. `latest` names and
skips incomplete and damaged checkpoints and returns the newest complete one. It refuses a checkpoint of another config,
corpus or tokenizer.
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
MAX_DIFFERENCES = 3  # a message lists as many


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
    """Write checkpoints/step_NNNNNNN and remove the oldest checkpoints until `keep` are left. Returns its path.

    `facts` are stored in the manifest. Checkpoints of later steps must be damaged: `latest` skipped them, otherwise
    training would have continued from them. They are renamed to NAME.damaged and do not count towards `keep`. Raises
    UserError if the disk is full, and FloatingPointError if a weight is not finite; both leave the earlier checkpoints
    unchanged.
    """
    final = folder / name_of(step)
    temporary = folder / f".{final.name}.tmp"
    folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(temporary, ignore_errors=True)  # from a killed attempt: the run's lock excludes other writers
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
        if final.exists():  # damaged: otherwise training would have continued from it
            shutil.rmtree(final)
        temporary.rename(final)
        fsync_directory(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if getattr(error, "errno", None) in DISK_FULL or "No space left" in str(error):
            raise UserError(
                f"{final}: the disk is full; the earlier checkpoints are unchanged; free some space and start again"
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
    """Remove the incomplete files of a killed process from a run's folder. The caller must hold the run's lock."""
    for folder in (out, out / "checkpoints"):
        for path in folder.glob(".*.tmp"):
            remove(path)


def sorted_paths(folder: Path) -> list[Path]:
    """The folders with a checkpoint's name, oldest first; temporary folders have other names."""
    if not folder.is_dir():
        return []
    by_step = [(int(match[1]), path) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    return [path for _, path in sorted(by_step)]


def verify(path: Path) -> Checkpoint:
    """Read the manifest and hash every file. Raises ValueError that says what is wrong."""
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
                raise ValueError(f"{file}: damaged: missing, truncated, or its bytes have changed")
    except (UserError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
    return Checkpoint(path, manifest)


def latest(folder: Path, expected: dict[str, Any]) -> Checkpoint | None:
    """The newest complete checkpoint, or None if the folder has no checkpoints.

    `expected` are the facts that its manifest must have: config identity, hashes of store and tokenizer. Raises
    UserError if they differ, or if there are checkpoints and none is complete.
    """
    paths = sorted_paths(folder)
    for path in reversed(paths):
        try:
            newest = verify(path)
        except ValueError as error:
            print(f"train: {error}; skipped", file=sys.stderr, flush=True)
            continue
        if unequal := differences({key: newest.manifest.get(key) for key in expected}, expected):
            raise UserError(
                f"{path}: belongs to another run: {'; '.join(unequal[:MAX_DIFFERENCES])}"
                f"{' ...' if unequal[MAX_DIFFERENCES:] else ''}; restore the old values, use another `name`, or delete "
                f"{folder} to train from the start"
            )
        return newest
    if paths:
        raise UserError(
            f"{folder}: none of its {len(paths)} checkpoints is complete; delete the folder to train from the start"
        )
    return None
