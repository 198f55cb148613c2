"""What the workflow checks before its first job: the config, that one call works on a results folder, that the jobs of
an earlier call have ended, and that no training is lost. A dry run refuses what the call would refuse.
"""

import contextlib
import filecmp
import functools
import os
import socket
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tokencodes import codeversion, config, slurm, triggers
from tokencodes.attempts import say
from tokencodes.data.source import shard_names
from tokencodes.errors import EXIT_USER_ERROR, UserError, lines
from tokencodes.files import differences, digest, lock_file, locked, read_json, write_text
from tokencodes.layout import Layout, model_name
from tokencodes.train.final import Final
from tokencodes.train.spec import Run

QUEUE_INTERVAL_S = 15  # between two looks at Slurm's queue
DIFFERENCES_SHOWN = 3
FATE = {
    "restart": "they will be trained again; to keep them: --rerun-triggers mtime input (for this call), or "
    "train.on_code_change: continue (for good)",
    "refuse": "they are kept; train.on_code_change: restart trains them again, continue accepts them",
}


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """A UserError, or a file that cannot be used, ends the process: lines on stderr, no traceback, exit code 2."""
    try:
        try:
            yield
        except OSError as error:
            if error.filename is None:
                raise
            raise UserError(f"{error.filename}: cannot be used ({error.strerror})") from None
    except UserError as error:
        for line in lines(error):
            say(f"error: {line}")
        raise SystemExit(EXIT_USER_ERROR) from None


def put_stages_on_path() -> None:
    """Let shells find `tokencodes` beside the Python that runs Snakemake, even if its environment is not activated."""
    folder = str(Path(sys.executable).parent)
    if folder not in os.get_exec_path():
        os.environ["PATH"] = os.pathsep.join([folder, *os.get_exec_path()])


# ------------------------------------------------------- one call at a time


def hold(layout: Layout) -> IO[str]:
    """Take the results folder for this process; the file that is returned holds the lock while it is open.

    The kernel drops the lock when the process ends, in whatever way. Raises UserError if another process has it. A file
    system without locks refuses nobody: each training run's own lock, and Snakemake's, are still there.
    """
    path = Path(layout.lock)
    owner = path.read_text().strip() if path.exists() else ""
    by_whom = f" ({owner})" if owner else ""
    busy = f"{layout.root}: another snakemake is at work here{by_whom}; wait for it, stop it, or use another `name`"
    file = lock_file(path, busy=busy)
    file.truncate(0)
    print(f"process {os.getpid()} on {socket.gethostname()}", file=file, flush=True)
    return file


def wait_for_earlier_jobs(layout: Layout, run_dirs: Iterable[Path], slurm_name: str | None) -> bool:
    """Let the jobs of an earlier call end, which outlive a Snakemake that was killed; returns whether there were any.

    `slurm_name` is what Slurm calls all jobs of this call; None on one machine. There, training runs are waited for
    by their locks, and the answer is False: they hold no other job back. Raises UserError on Ctrl-C.
    """
    try:
        if slurm_name is not None:
            return wait_for_slurm(layout, slurm_name)
        wait_for_orphans(run_dirs)
        return False
    except KeyboardInterrupt:
        raise UserError("stopped while waiting for jobs of an earlier call; they go on") from None


def wait_for_orphans(run_dirs: Iterable[Path]) -> None:
    """Wait until no process trains in these folders, so that two never do. Its work is then continued."""
    for run_dir in run_dirs:
        line = f"a job of an earlier call still trains {run_dir}; waiting for it"
        if (run_dir / ".lock").exists():
            with locked(run_dir / ".lock", waiting=functools.partial(say, line)):
                pass


def wait_for_slurm(layout: Layout, name: str) -> bool:
    """Wait until the jobs of earlier calls have left Slurm's queue; note `name`, that of this call's jobs.

    Returns whether there were any.
    """
    record = Path(layout.slurm)
    names = record.read_text().split() if record.exists() else []
    waited = False
    while names and (jobs := slurm.queue(names)):
        if not waited:
            say(
                f"{layout.root}: Slurm has {len(jobs)} job(s) of an earlier call; waiting for them; to go on at once, "
                f"and submit them again: scancel {' '.join(jobs)}"
            )
            waited = True
        time.sleep(QUEUE_INTERVAL_S)
    write_text(record, f"{name}\n")
    return waited


# ---------------------------------------------------------- no training lost


def refuse(
    settings: config.Config, layout: Layout, trainings: Sequence[Path], documents: Mapping[str, tuple[Path, Path]]
) -> None:
    """Refuse what would fail or lose something later. Before any job, since Snakemake deletes a starting job's outputs.

    `trainings` are the folders of those that the call will run; `documents` are, by shard that it will prepare, the
    user's own file and the raw shard that was copied from it earlier. Raises UserError, a line for each problem.
    """
    refuse_other_configs(runs(settings, layout))
    refuse_to_train_anew(trainings)
    refuse_other_documents(layout, trainings, shard_names(settings.data.source), documents)


def refuse_unusable(layout: Layout) -> None:
    """Refuse a results folder that cannot be written, before Snakemake looks into it. Raises UserError."""
    folder = Path(layout.root)
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise UserError(f"{folder}: is no folder, so {layout.root} cannot be made; change `results` or `name`")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"{folder}: cannot be written by you; change its permissions, or `results` in the config")


def refuse_other_documents(
    layout: Layout, trainings: Iterable[Path], shards: Sequence[str], documents: Mapping[str, tuple[Path, Path]]
) -> None:
    """Refuse to make another store under trainings that have begun: each of them would be refused afterwards.

    Raises UserError if the corpus has other shards than the store, or a shard other bytes than its copy.
    """
    begun = [run_dir for run_dir in trainings if (run_dir / "final.json").exists() or has_checkpoints(run_dir)]
    if not begun:
        return
    changes = [
        f"{original} has changed"
        for original, copy in documents.values()
        if original.exists() and copy.exists() and not filecmp.cmp(original, copy, shallow=False)
    ]
    with contextlib.suppress(UserError, KeyError, TypeError):
        stored = [entry["name"] for entry in read_json(layout.store_manifest)["shards"]]
        changes += [f"shard {name} is new" for name in shards if name not in stored]
        changes += [f"shard {name} is missing" for name in stored if name not in shards]
    if changes:
        names = ", ".join(run_dir.name for run_dir in begun)
        raise UserError(
            f"{layout.root}: the corpus is no longer that of {names}: {'; '.join(changes[:DIFFERENCES_SHOWN])}"
            f"{' ...' if changes[DIFFERENCES_SHOWN:] else ''}; restore it, use another `name`, or delete these runs to "
            "train anew"
        )


def has_checkpoints(run_dir: Path) -> bool:
    """Whether a training left any."""
    return any(run_dir.glob("checkpoints/step_*"))


def runs(settings: config.Config, layout: Layout) -> dict[Path, Run]:
    """By folder: the description of each training."""
    return {
        Path(layout.run(model_name(interface, seed))): settings.run(interface, seed)
        for interface in settings.interfaces
        for seed in settings.seeds
    }


def refuse_other_configs(trainings: Mapping[Path, Run]) -> None:
    """Refuse to touch a run that another config made. Before any job, since Snakemake deletes a starting job's outputs.

    Raises UserError, a line for each run whose final.json, or else newest whole checkpoint, has another identity.
    """
    problems = [
        f"{run_dir}: was made by another config: {difference}; restore that, use another `name`, or delete the folder "
        "to train anew"
        for run_dir, run in trainings.items()
        if (difference := difference_of(run_dir, run))
    ]
    if problems:
        raise UserError("\n".join(problems))


def difference_of(run_dir: Path, run: Run) -> str | None:
    """How the run in a folder differs from `run`; None if it does not, or if nothing is there."""
    identity = run.identity()
    try:
        final = Final.read(run_dir / "final.json").run_sha256
    except UserError:
        final = None
    if final == digest(identity):
        return None
    made = identity_of_checkpoint(run_dir)
    if made is None:
        return None if final is None else "its final.json has another run_sha256"
    keys = differences(made, identity)
    return f"{'; '.join(keys[:DIFFERENCES_SHOWN])}{' ...' if keys[DIFFERENCES_SHOWN:] else ''}" or None


def identity_of_checkpoint(run_dir: Path) -> dict[str, Any] | None:
    """The identity in the newest checkpoint's manifest that can be read; None if there is none."""
    for manifest in sorted(run_dir.glob("checkpoints/step_*/manifest.json"), reverse=True):
        try:
            return read_json(manifest)["identity"]
        except (UserError, KeyError, TypeError):
            continue
    return None


def refuse_to_train_anew(run_dirs: Iterable[Path]) -> None:
    """Refuse to train finished runs again that have no checkpoints. Before Snakemake deletes their final.json.

    Raises UserError, a line for each run. With checkpoints training goes on from them.
    """
    problems = [
        f"{run_dir}: is finished, and the call would train it from the start, because something that it was made from "
        "is missing or has changed (a dry run, -n, shows what) and its checkpoints are gone; restore that, or delete "
        "the folder to train anew"
        for run_dir in run_dirs
        if (run_dir / "final.json").exists() and not has_checkpoints(run_dir)
    ]
    if problems:
        raise UserError("\n".join(problems))


def warn_of_other_code(run_dirs: Iterable[Path], on_code_change: str) -> None:
    """Say which finished models were trained by other code than today's, and what will become of them."""
    today = codeversion.digest(triggers.TRAINING)
    others = [run_dir.name for run_dir in run_dirs if triggers.trained_by(run_dir) not in (None, today)]
    if others and on_code_change in FATE:
        say(f"warning: the training code has changed since {', '.join(others)} was trained: {FATE[on_code_change]}")
