# What all rules share: the validated config, the names of what they make, and how a stage is called.
import os
import re
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from snakemake.jobs import GroupJob, Job
from tokencodes import codeversion
from tokencodes import config as schema  # `config` and `workflow` are Snakemake's own names
from tokencodes import guards
from tokencodes.data.spec import data_digest
from tokencodes.data import store
from tokencodes.data.hub import listing_name
from tokencodes.data.source import shard_names
from tokencodes.evaluate import benchmarks
from tokencodes.errors import EXIT_USER_ERROR, UserError
from tokencodes.files import write_text
from tokencodes.planning.resources import asked
from tokencodes import spec  # its `parse` would hide a name that Snakemake looks up here
from tokencodes.spec import section_digest


def fail(error):
    """The user's mistake: its lines, and no traceback."""
    for line in str(error).splitlines():
        print(f"tokencodes: error: {line}", file=sys.stderr)
    raise SystemExit(EXIT_USER_ERROR)


def read_settings():
    """The config that Snakemake has put together (files, then --config), validated; and the names of the shards."""
    files = [os.path.relpath(path) for path in workflow.configfiles]
    try:
        for path in files:
            schema.read_yaml(path)  # names the place of a mistake, and a key that stands twice
        where = ", ".join([*files, *(["--config"] if workflow.config_settings.config else [])])
        settings = spec.parse(schema.Config, config, where)
        benchmarks.check(settings)
        return settings, shard_names(settings)
    except UserError as error:
        fail(error)


SETTINGS, SHARDS = read_settings()
ASKED = asked(SETTINGS)
OUT = os.path.expanduser(f"{SETTINGS.results}/{SETTINGS.name}")
CONFIG = f"{OUT}/config.yaml"
ENVIRONMENT = "../../envs/environment.yaml"

# Beside Snakemake, for the nodes of a cluster often see no network, unless the profile names a partition for them.
DOWNLOADS_HERE = "slurm_partition" not in workflow.resource_settings.overwrite_resources.get("download", {})

PLACES = dict(interface=list(SETTINGS.interfaces), seed=SETTINGS.seeds)  # one model each
RUNS = expand(f"{OUT}/runs/{{interface}}-s{{seed}}/final.json", **PLACES)
VALIDATIONS = expand(f"{OUT}/validation/{{interface}}-s{{seed}}.json", **PLACES)
EVALUATIONS = [
    f"{OUT}/eval/{interface}-s{seed}/{task.name}-{task.shots}shot.{kind}"
    for interface in SETTINGS.interfaces
    for seed in SETTINGS.seeds
    for task in SETTINGS.evaluate.tasks
    for kind in ("json", "parquet")
]
STORE = [
    f"{OUT}/data/store/manifest.json",
    *expand(f"{OUT}/data/store/{{shard}}/{{file}}", shard=SHARDS, file=[*store.FILES, store.MANIFEST]),
]
RESULTS = [STORE[0], *RUNS, *VALIDATIONS, *EVALUATIONS]  # with params.json all that tables and figures read

# Files of the user's own that are copied from.
ORIGINAL_SHARD, ORIGINAL_TOKENIZER = [], []
if SETTINGS.data.source.kind == "local":
    ORIGINAL_SHARD = os.path.expanduser(f"{SETTINGS.data.source.path}/{{shard}}.parquet")
if SETTINGS.data.tokenizer.kind == "local":
    ORIGINAL_TOKENIZER = os.path.expanduser(SETTINGS.data.tokenizer.path)

# Raw shards of the hub are dropped when they are prepared, unless the config keeps them.
SOURCE = SETTINGS.data.source.model_dump(mode="json", exclude={"keep_raw"})
RAW = f"{OUT}/data/raw/{{shard}}.parquet"
PINNED = [f"{OUT}/data/{listing_name(SETTINGS.data.source)}"] if SETTINGS.data.source.kind == "hub" else []
if SETTINGS.data.source.kind == "hub" and not SETTINGS.data.source.keep_raw:
    RAW = temp(RAW)

N_RANKS = SETTINGS.train.n_gpus
TORCHRUN = f"torchrun --standalone --nproc-per-node {N_RANKS} -m -- tokencodes.cli"
LAUNCHER = "tokencodes" if N_RANKS == 1 else TORCHRUN
UNSEEN = {"results": True, "cache": True, "resources": True, "data": {"expected"}}
SHOWN = section_digest(SETTINGS.model_dump(mode="json", exclude=UNSEEN))


wildcard_constraints:
    interface="|".join(map(re.escape, SETTINGS.interfaces)),
    seed="|".join(map(str, SETTINGS.seeds)),
    shard="|".join(map(re.escape, SHARDS)),
    task="|".join(re.escape(task.name) for task in SETTINGS.evaluate.tasks) or "none",
    shots=r"\d+",


# Stages are looked for beside the Python that runs Snakemake, also where its environment was not activated.
if str(Path(sys.executable).parent) not in os.get_exec_path():
    os.environ.update(PATH=os.pathsep.join([str(Path(sys.executable).parent), *os.get_exec_path()]))

# Beside `logged LOG COMMAND`, which keeps what a stage says and how it ended.
LOGGED = shlex.quote(str(Path(workflow.current_basedir) / "../scripts/logged.sh")).replace("{", "{{").replace("}", "}}")
shell.prefix(f"set -euo pipefail; source {LOGGED}; ")


def ask(stage):
    """What a job asks the scheduler for. `gpus` is for the limit of a local run, `gres` for Slurm."""
    wanted = getattr(ASKED, stage)
    gres = {"gres": f"gpu:{wanted.gpus}"} if wanted.gpus else {}
    return dict(mem_mb=wanted.mem_mb, runtime=wanted.runtime_min, cpus_per_task=wanted.cpus, gpus=wanted.gpus, **gres)


def cpus(stage):
    """Threads of a job of a stage."""
    return getattr(ASKED, stage).cpus


def reference_settings(wildcards):
    """What decides a model of others."""
    spec = SETTINGS.references[wildcards.reference]
    ours = [SETTINGS.model, SETTINGS.interfaces[spec.interface]] if spec.kind == "import" else []
    return section_digest(spec, *ours)


def task_settings(wildcards):
    """What decides a score beside the model; how the work is batched and on what device it runs does not."""
    shots = int(wildcards.shots)
    (task,) = (task for task in SETTINGS.evaluate.tasks if (task.name, task.shots) == (wildcards.task, shots))
    ways = SETTINGS.evaluate.model_dump(mode="json", include={"data", "wheel", "precision", "bootstrap_iters"})
    return section_digest(task, ways, SETTINGS.evaluate.revisions.get(task.name), version("lm_eval"))


def training_code(wildcards):
    """Digest of the code that decides whether a model is trained again."""
    run_dir = Path(f"{OUT}/runs/{wildcards.interface}-s{wildcards.seed}")
    return guards.training_code(run_dir, SETTINGS.train.on_code_change)


HELD = []  # open files, and with them locks, of this process


onstart:
    if workflow.is_main_process:
        try:
            HELD.append(guards.hold(Path(OUT)))
            guards.refuse_other_configs(
                (Path(f"{OUT}/runs/{interface}-s{seed}"), SETTINGS.run(interface, seed))
                for interface in SETTINGS.interfaces
                for seed in SETTINGS.seeds
            )
            needed = [job for job in workflow.dag.needrun_jobs() if job.rule.name == "train"]
            guards.refuse_to_train_anew(Path(job.output[0]).parent for job in needed)
            # No input of the rules: each has the digest of its own part, and a key elsewhere is no reason to run.
            write_text(CONFIG, schema.dump(SETTINGS))
            # Whose jobs may still be at work. The name of all Slurm jobs of this call comes from its executor.
            run_id = getattr(workflow.scheduler._executor, "run_uuid", None)
            if workflow.local_exec:
                guards.wait_for_orphans(Path(path).parent for path in RUNS)
            waited = bool(run_id) and guards.wait_for_jobs(Path(OUT), run_id)
        except UserError as error:
            fail(error)
        except KeyboardInterrupt:
            fail("stopped while waiting for jobs of a call before; they go on")
        # Snakemake's limit of 100 jobs a second starts a timer at each look at the ready jobs, to look again when it ends:
        # with hundreds of jobs, hundreds of looks a second. No executor comes near that limit.
        workflow.scheduler.job_rate_limiter = None
        if waited:
            # What is to be made was looked up before the wait; what those jobs have made would be made again.
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


onerror:
    if workflow.is_main_process:
        failed = [
            job
            for each in workflow.scheduler.failed
            for job in (each.jobs if each.is_group() else [each])
            if not (each.is_group() and all(map(os.path.exists, job.output)))  # what the group has finished
        ]
        guards.say_what_failed(
            [(job.rule.name, dict(job.wildcards_dict), list(job.log), list(job.output)) for job in failed],
            [argument for argument in sys.argv[1:] if argument not in workflow.dag_settings.targets],
            Path(OUT),
        )


if workflow.is_main_process:
    # Snakemake repeats whatever failed, up to a number of times. A user's mistake, or ours, would be the same again, and
    # so would what gets no further; a training of many jobs has no such number.
    def repeats(job):
        allowed = workflow.execution_settings.retries
        return job.attempt if guards.again(map(Path, job.log), job.attempt, allowed, Path(OUT)) else 0

    Job.restart_times = GroupJob.restart_times = property(repeats)
    if guards.triggered_by_code(sys.argv[1:]):
        guards.warn_of_other_code([Path(path).parent for path in RUNS], SETTINGS.train.on_code_change)
