"""The benchmarks still run: the quick ones in small, the others as far as their help."""

import subprocess
import sys

import pytest

SMALL = {
    "checkpoint": ["--mib", "48", "--rounds", "1"],
    "coverage": ["--runs", "2", "--resamples", "99"],
    "sampler": ["--shards", "2", "--documents", "20", "--context", "64", "--seconds", "0.01"],
    "train_step_gpu": ["--device", "cpu", "--tiny", "--no-compile", "--steps", "1", "--interfaces", "gf2"],
}
HELP = ["encode", "evaluate", "many_shards", "soak", "tables", "train_step", "whole_task"]


def run(root, name, *arguments):
    command = [sys.executable, str(root / "benchmarks" / f"{name}.py"), *arguments]
    return subprocess.run(command, cwd=root, capture_output=True, text=True)


def test_each_benchmark_is_tried(root):
    scripts = {path.stem for path in (root / "benchmarks").glob("*.py")}
    assert scripts == {*SMALL, *HELP, "facts", "plan_memory"}  # these two have tests of their own


@pytest.mark.parametrize("name", SMALL)
def test_it_runs_in_small(root, name):
    result = run(root, name, *SMALL[name])
    assert result.returncode == 0, result.stderr
    assert "Error" not in result.stdout, result.stdout


@pytest.mark.parametrize("name", HELP)
def test_it_starts(root, name):
    result = run(root, name, "--help")
    assert result.returncode == 0 and f"{name}.py" in result.stdout, result.stderr
