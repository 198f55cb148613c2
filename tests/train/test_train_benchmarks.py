"""The benchmark that needs a GPU: refused in one line without one, and a program that works in small."""

import subprocess
import sys

import pytest
import torch

from project import PATIENCE


def run(root, *arguments):
    line = [sys.executable, root / "benchmarks" / "train_step_gpu.py", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_in_one_line(root):
    done = run(root)
    assert done.returncode == 2 and len(done.stdout.splitlines()) == 1 and "no GPU" in done.stdout


def test_it_measures_each_row(root):
    done = run(root, "--device", "cpu", "--tiny", "--no-compile", "--steps", "1", "--interfaces", "gf2")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("gf2")]
    assert [row[1:3] for row in rows] == [["no", "no"], ["yes", "no"]]
    assert all(float(row[3].replace(",", "")) > 0 and row[4] == "-" for row in rows)
