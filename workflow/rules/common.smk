# What all rules share: the validated config, and the names of what they make.
import os
import re

from tokencodes import codeversion, guards, triggers
from tokencodes.config import read_merged
from tokencodes.data.listing import listing_name
from tokencodes.data.manifest import MANIFEST
from tokencodes.data.source import shard_names
from tokencodes.data.store import FILES
from tokencodes.evaluate.catalogue import CORPUS_TASK
from tokencodes.files import expanded
from tokencodes.interfaces.spec import is_fixed
from tokencodes.layout import Layout, model_name, task_name
from tokencodes.planning.resources import by_stage

with guards.user_errors():
    SETTINGS = read_merged(config_files(), config_overrides())  # Snakemake itself reads YAML 1.1
    SHARDS = shard_names(SETTINGS.data.source)
    LAYOUT = Layout.of(SETTINGS.results, SETTINGS.name)
    guards.refuse_unusable(LAYOUT)

ENVIRONMENT = "../../envs/environment.yaml"
ASK = by_stage(SETTINGS)

# The wildcards of a model that is trained here, and all of them.
TRAINING = model_name("{interface}", "{seed}")
TRAININGS = dict(interface=list(SETTINGS.interfaces), seed=SETTINGS.seeds)
MODELS = expand(TRAINING, **TRAININGS)

FIXED = [name for name, interface in SETTINGS.interfaces.items() if is_fixed(interface)]
RUNS = [LAYOUT.final(model) for model in MODELS]
VALIDATIONS = [LAYOUT.validation(model) for model in MODELS]
EVALUATIONS = [
    path(model, task.name, task.shots)
    for model in MODELS
    for task in SETTINGS.evaluate.tasks
    for path in (LAYOUT.scores, LAYOUT.documents)
]
SHARD_FILES = [f"{LAYOUT.shard(shard)}/{name}" for shard in SHARDS for name in (*FILES, MANIFEST)]
STORE = [LAYOUT.store_manifest, *SHARD_FILES]
RESULTS = [LAYOUT.store_manifest, *RUNS, *VALIDATIONS, *EVALUATIONS]  # with params.json all that the report reads

# The user's own files that are copied from.
SOURCE = SETTINGS.data.source


def original_shard(shard):
    """The user's own file that a shard is copied from; None if it comes from elsewhere."""
    return f"{expanded(SOURCE.path)}/{shard}.parquet" if SOURCE.kind == "local" else None


ORIGINAL_SHARD = original_shard("{shard}") or []
TOKENIZER_SOURCE = SETTINGS.data.tokenizer
ORIGINAL_TOKENIZER = expanded(TOKENIZER_SOURCE.path) if TOKENIZER_SOURCE.kind == "local" else []

# A corpus on the hub: its listing pins commit and hashes; its raw shards are deleted once they are prepared.
LISTING = [f"{LAYOUT.data}/{listing_name(SOURCE)}"] if SOURCE.kind == "hub" else []
RAW = LAYOUT.raw("{shard}")

LAUNCHER = "tokencodes"
if SETTINGS.train.n_gpus > 1:
    LAUNCHER = f"torchrun --standalone --nproc-per-node {SETTINGS.train.n_gpus} -m -- tokencodes.cli"


def one_of(names):
    """A wildcard's constraint."""
    return "|".join(re.escape(str(name)) for name in names) or "none"


def codes_of(wildcards):
    """The code book of a model's interface; none if its input is trained."""
    return LAYOUT.codes(wildcards.interface) if wildcards.interface in FIXED else []


def codes_option(wildcards):
    """The same as an option of a stage."""
    return ["--codes", codes_of(wildcards)] if codes_of(wildcards) else []


def spelling(wildcards):
    """The tokenizer, for codes that are made from the tokens' bytes."""
    return f"{LAYOUT.tokenizer}/tokenizer.json" if SETTINGS.interfaces[wildcards.interface].codebook.spelled else []


def code_files(wildcards):
    """The user's own files that a code book is made from."""
    return SETTINGS.interfaces[wildcards.interface].codebook.files


wildcard_constraints:
    interface=one_of(SETTINGS.interfaces),
    seed=one_of(SETTINGS.seeds),
    shard=one_of(SHARDS),
    task=one_of(task.name for task in SETTINGS.evaluate.tasks),
    shots=r"\d+",


guards.put_stages_on_path()

# Each shell has `logged LOG COMMAND`, which keeps what a stage prints and how it ended.
shell.prefix(f"set -euo pipefail; source {LOGGED}; ")
