"""What the jobs of config/paper.yaml ask of Slurm, on stand-ins: the real sbatch takes it, and one task runs it."""

import re
import shlex

import pytest
from trial import QUICK, slurm

from project import copy_of
from tokencodes import config
from tokencodes.planning import resources

# Comment of a job -> the stage under `resources` of the config, how many of its jobs go together, and its GPUs.
JOBS = {
    "shards_prepare": ("prepare", 2, None),
    "rule_index": ("prepare", 1, None),
    "rule_train": ("train", 1, "gpu:2"),
    "rule_export": ("export", 1, None),
    "rule_evaluate": ("evaluate", 1, "gpu:1"),
}


@pytest.fixture(scope="module")
def submitted(root, tiny, tmp_path_factory):
    """One chain of the paper's jobs, on two shards, with sbatch's command lines and torchrun's calls written down."""
    project = copy_of(root, tiny, tmp_path_factory.mktemp("paper") / "project", stand_ins=True)
    project.edit("config/paper.yaml", "n_shards: 234", "n_shards: 2")
    project.edit("slurm/config.yaml", "# gres: gpu:h100:2", "gres: gpu:2")
    project.edit("slurm/config.yaml", "# slurm_partition: gpu  # for work on GPUs", "slurm_partition: low")
    project.put_first(
        "sbatch", '#!/bin/bash\nprintf "%q " "$@" >> sbatch.log; echo >> sbatch.log; exec /usr/bin/sbatch "$@"\n'
    )
    project.put_first(
        "torchrun",
        "#!/bin/bash\n"
        'echo "${*:1:6} tasks=$SLURM_NTASKS/$SLURM_STEP_NUM_TASKS gpus=$CUDA_VISIBLE_DEVICES" >> torchrun.log\n'
        'shift 6; exec tokencodes "$@"\n',
    )
    project.snakemake(
        *("results/paper/eval/gf2-s0/mmlu-5shot.json", *QUICK), config="config/paper.yaml", profile="slurm"
    )
    lines = [shlex.split(line) for line in (project.folder / "sbatch.log").read_text().splitlines()]
    return project, {line[line.index("--comment") + 1]: line for line in lines}


def option(line, name):
    """The value of an option, in either of its forms."""
    joined = [part.split("=", 1)[1] for part in line if part.startswith(f"{name}=")]
    return joined[0] if joined else line[line.index(name) + 1] if name in line else None


@pytest.mark.parametrize("job", JOBS)
def test_a_job_asks_for_what_the_config_comes_to(submitted, job):
    project, lines = submitted
    stage, together, gres = JOBS[job]
    request = getattr(resources.filled(config.load(project.folder / "config/paper.yaml")), stage)
    (line,) = (line for comment, line in lines.items() if job in comment)
    assert option(line, "--mem") == str(request.mem_mb * together)
    assert option(line, "--cpus-per-task") == str(request.cpus * together)
    assert option(line, "-t") == str(request.runtime_min)
    assert option(line, "--gres") == gres
    assert option(line, "-p") == ("low" if job == "rule_train" else "main")
    assert not [part for part in line if part.startswith("--gpus")]  # must not be mixed with --gres
    assert "--requeue" in line


def test_a_training_job_is_one_task_with_one_torchrun_that_sees_both_gpus(submitted):
    project, lines = submitted
    (line,) = (line for comment, line in lines.items() if "rule_train" in comment)
    assert "--signal=TERM@300" in line and "--open-mode=append" in line
    (run,) = (project.folder / "torchrun.log").read_text().splitlines()
    assert re.fullmatch(r"--standalone --nproc-per-node 2 -m -- tokencodes\.cli tasks=1?/1 gpus=\d,\d", run)
    assert project.calls().count("train gf2-s0") == 1


def test_slurm_has_understood_it(submitted):
    jobs = slurm("scontrol", "show", "job", "--oneliner").splitlines()
    (job,) = (job for job in jobs if "Comment=rule_train_wildcards_gf2_0" in job and str(submitted[0].folder) in job)
    for words in ("NumTasks=1 ", "CPUs/Task=16 ", "TimeLimit=2-00:00:00 ", "Partition=low ", "gpu:2", "Requeue=1 "):
        assert words in job, job
