"""What decides whether Snakemake runs a finished job again: for each rule, a digest of its settings and of its code.

The parameter `settings` of a rule covers the keys of the config that decide its output, and no other key. Snakemake
stores it with the output and runs the job again when it differs. The parameter `code` is the digest of codeversion.py;
training alone has its own rule for it, because it takes weeks.
"""

import argparse
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tokencodes import codeversion
from tokencodes.config import Config
from tokencodes.data.spec import data_digest
from tokencodes.errors import UserError
from tokencodes.evaluate.spec import ImportedReference
from tokencodes.interfaces.codes import recipe
from tokencodes.interfaces.spec import CodeInterface, Interface
from tokencodes.spec import section_digest
from tokencodes.train.final import Final

TRAINING = "tokencodes.train.loop"
NOT_IN_REPORT = {"results": True, "cache": True, "resources": True, "data": {"expected"}}


# ----------------------------------------------------------------- settings


def accounting(settings: Config) -> str:
    """Of the parameter accounting: the model and the interfaces, in their order."""
    return section_digest(settings.model, list(settings.interfaces), *settings.interfaces.values())


def raw_shard(settings: Config, original: str | None) -> str:
    """Of a downloaded shard: the source. What becomes of the file afterwards does not decide it.

    `original` is the user's own file that it is copied from, if it is.
    """
    source = settings.data.source.model_dump(mode="json", exclude={"keep_raw"})
    return section_digest(source, *([version_of(original)] if original else []))


def tokenizer(settings: Config) -> str:
    """Of the tokenizer: its source and the size of the vocabulary."""
    return section_digest(settings.data.tokenizer, settings.model.vocab_size)


def prepared_shard(settings: Config, original: str | None) -> str:
    """Of a prepared shard; `original` as in `raw_shard`.

    Snakemake deletes the raw shard when a download fails, and asks for no missing file behind a complete one: what has
    changed must be known here too.
    """
    return section_digest(store(settings), version_of(original)) if original else store(settings)


def version_of(original: str) -> list[int]:
    """Size and time of a user's own file, in nanoseconds. Snakemake misses a change to an older time; this does not."""
    try:
        stat = Path(original).stat()
    except OSError:
        return []  # the stage says what is wrong
    return [stat.st_size, stat.st_mtime_ns]


def store(settings: Config) -> str:
    """Of the index, and of what all prepared shards share."""
    return data_digest(settings.data, settings.model.vocab_size)


def codes(settings: Config, interface: str) -> str:
    """Of a code book: the keys of the interface that decide it, and the vocabulary."""
    spelled = [settings.data.tokenizer] if settings.interfaces[interface].codebook.spelled else []
    return section_digest(recipe(settings.interfaces[interface]), settings.model.vocab_size, *spelled)


def training(settings: Config, interface: str, seed: int) -> str:
    """Of one training: what decides its weights."""
    return section_digest(settings.run(interface, seed).identity())


def reference(settings: Config, name: str) -> str:
    """Of a model that others trained; if it is imported, of the shape that it is imported into too."""
    spec = settings.reference(name)
    shape = [settings.model, settings.interfaces[spec.interface]] if isinstance(spec, ImportedReference) else []
    return section_digest(spec, *shape)


def benchmarks(settings: Config) -> str:
    """Of the data of a benchmark."""
    return section_digest(settings.evaluate.data, settings.evaluate.wheel)


def scores(settings: Config, task: str, shots: int) -> str:
    """Of the scores on a task, beside the model. How the work is batched, and on which device, does not decide them."""
    (spec,) = (spec for spec in settings.evaluate.tasks if (spec.name, spec.shots) == (task, shots))
    common = settings.evaluate.model_dump(mode="json", include={"data", "wheel", "precision", "bootstrap_iters"})
    return section_digest(spec, common, settings.evaluate.revisions.get(task), version("lm_eval"))


def report(settings: Config) -> str:
    """Of tables, figures and the page."""
    return section_digest(settings.model_dump(mode="json", exclude=NOT_IN_REPORT))


# --------------------------------------------- code of one kind of code book


def codes_code(settings: Config, interface: str) -> str:
    """Digest of the code that makes a code book: that of its own kind, and of no other."""
    return codeversion.digest("tokencodes.interfaces.codes", *kind_modules(settings.interfaces[interface]))


def validation_code(settings: Config, interface: str) -> str:
    """Digest of the checks of a model, with the other way of its kind of code book."""
    return codeversion.digest("tokencodes.validate.checks", *kind_modules(settings.interfaces[interface]))


def kind_modules(interface: Interface) -> list[str]:
    """The module of an interface's kind of code book; none for a table."""
    return [type(interface.codebook).__module__] if isinstance(interface, CodeInterface) else []


# --------------------------------------------------------- code of training


def trained_by(run_dir: Path) -> str | None:
    """Digest of the code that trained a finished run; None if the run is not finished or does not state it."""
    try:
        return Final.read(run_dir / "final.json").code
    except UserError:
        return None


def training_code(run_dir: Path, on_code_change: str) -> str:
    """Digest of the code that decides whether a run is trained again.

    With `restart` it is that of today's code. Otherwise a finished run keeps the digest of the code that trained it, so
    that an edit of one line does not spend weeks of GPUs again.
    """
    today = codeversion.digest(TRAINING)
    return today if on_code_change == "restart" else trained_by(run_dir) or today


def looks_at_params(options: Sequence[str]) -> bool:
    """Whether a call of Snakemake with these options compares parameters, and by them the code's digest.

    The options are parsed here because Snakemake settles its triggers only after it has read the rules.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--rerun-triggers", nargs="+", default=["params"])
    return "params" in parser.parse_known_args(options)[0].rerun_triggers
