"""What a user calls: which config counts, what a mistake says, and what the paper's config comes to."""

import re
import subprocess
import sys

import pytest
import yaml

pytestmark = pytest.mark.workflow


def test_without_a_config_file_it_is_the_quickstart_and_config_overrides_it(fresh):
    output = fresh.snakemake("--dry-run", config=None)
    assert "quickstart is complete" in output
    assert fresh.planned(config=None)["train"] == 3
    output = fresh.snakemake("--dry-run", "--config", "name=x", "seeds=[3,4]", config=None)
    assert "x is complete" in output
    assert "train: gf2, seed 4" in output
    assert "seed 0" not in output


def test_a_config_file_stands_alone(fresh):
    """The quickstart's interfaces must not leak into another config, as Snakemake's own merging would have it."""
    output = fresh.snakemake("--dry-run")
    assert "tiny is complete" in output
    assert "binary12" not in output


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("train", "max_stepz"), 5, "train.max_stepz: unknown key; did you mean 'max_steps'?"),
        (("train", "peak_lr"), -1, "train.peak_lr: "),
        (("model", "n_heads"), 3, "d_model 32 is not divisible by n_heads 3"),
        (("data", "source", "path"), "nowhere", "data.source.path: nowhere is not a folder"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(fresh, path, value, message):
    config = fresh.config
    section = config
    for key in path[:-1]:
        section = section[key]
    section[path[-1]] = value
    fresh.configure(config)
    output = fresh.snakemake("--dry-run", code=2)
    lines = [line for line in output.splitlines() if line.startswith("tokencodes: error: ")]
    assert len(lines) == 1 and message in lines[0]
    assert "Traceback" not in output and "File " not in output


def test_a_key_that_stands_twice(fresh):
    text = (fresh.folder / "config/quickstart.yaml").read_text()
    (fresh.folder / "twice.yaml").write_text(text + "\nname: other\n")
    output = fresh.snakemake("--dry-run", config="twice.yaml", code=2)
    assert re.search(r"tokencodes: error: twice\.yaml: line \d+, column 1: the key 'name' appears twice", output)


def test_lint_is_clean(fresh):
    assert "good condition" in fresh.snakemake("--lint", config=None)


@pytest.mark.parametrize("profile", ["local", "slurm"])
def test_the_papers_config_is_planned_whole(fresh, profile):
    output = fresh.snakemake("--dry-run", "--printshellcmds", config="config/paper.yaml", profile=profile)
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", output.split("Job stats:")[-1], re.MULTILINE))
    expected = {"download": 234, "prepare": 234, "index": 1, "train": 3, "export": 3, "validate": 3}
    expected |= {"reference": 3, "evaluate": 33 + 33}  # as many of the three SmolLM2 models
    assert {rule: int(jobs[rule]) for rule in expected} == expected
    assert output.count("torchrun --standalone --nproc-per-node 2 -m -- tokencodes.cli train --run") == 3
    assert output.count("--task mmlu --shots 5") == 3 + 3
    assert "shard-00233-of-00234" in output


def test_the_slurm_profile_is_found_by_its_name(fresh):
    """As `snakemake --profile slurm` from a fresh clone; what a training job asks for arrives."""
    call = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--configfile", "config/paper.yaml", "--dry-run"]
    command = [*call, "--quiet", "host", "--config", "seeds=[7]"]
    done = subprocess.run(command, cwd=fresh.folder, env=fresh.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "train: gf2, seed 7" in done.stdout + done.stderr
    profile = yaml.safe_load((fresh.folder / "slurm/config.yaml").read_text())
    assert profile["executor"] == "slurm" and profile["retries"] > 0
    rules = "".join(path.read_text() for path in (fresh.folder / "workflow/rules").glob("*.smk"))
    assert not re.search(r"^ *retries:", rules, re.MULTILINE)  # it would multiply through the Snakemakes of a job


def test_apptainer_runs_every_stage_in_the_image(fresh):
    """With a program in its place that says which image it was given, and runs the command here."""
    program = fresh.folder / "bin/apptainer"
    program.write_text(
        '#!/bin/bash\n[ "$1" = --version ] && { echo "apptainer version 1.3.0"; exit; }\n'
        'while [[ $1 != *.sif ]]; do [ "$1" = --nv ] && gpus=--nv; shift; done\n'
        'echo "$1 $gpus" >> images.log; shift; exec "$@"\n'
    )
    program.chmod(0o755)
    store = "results/tiny/data/store/manifest.json"
    fresh.snakemake(store, "--sdm", "apptainer", "--apptainer-args=--nv")
    images = (fresh.folder / "images.log").read_text().splitlines()
    assert set(images) == {"envs/tokencodes.sif --nv"}
    assert len(images) == len(fresh.calls())


def test_there_is_no_implicit_profile(root):
    """Snakemake would lay workflow/profiles/default under any other profile, key by key."""
    assert sorted(path.name for path in (root / "workflow/profiles").iterdir()) == ["local", "slurm"]
