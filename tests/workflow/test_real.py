"""The stages themselves, from a folder of documents to the report, on a model that trains for seconds."""

import json
import os
import signal
import zipfile

import pytest

from project import HELD, PATIENCE

pytestmark = pytest.mark.workflow


def test_two_runs_side_by_side_one_of_them_killed_end_with_the_same_bits(real):
    """`straight` is trained through; `cut` loses its power in the middle of training, and goes on to the report."""
    real.run_stages_with(HELD)
    run = real.folder / "results/cut/runs/binary9-s0"
    run.mkdir(parents=True)
    (run / "hold").write_text("deaf")
    final = "results/straight/runs/binary9-s0/final.json"
    straight = real.start(final, "--config", "name=straight", log="straight.log")
    cut = real.start("--config", "name=cut", log="cut.log")
    real.wait_for(cut, real.folder / "cut.log", (run / "held").exists)
    os.killpg(cut.pid, signal.SIGKILL)
    cut.wait()
    assert not (run / "final.json").exists()
    assert straight.wait(PATIENCE) == 0, (real.folder / "straight.log").read_text()
    assert "step 300/300  loss " in (real.folder / "straight.log").read_text()

    output = real.snakemake("--config", "name=cut")
    assert "train binary9-s0: again after step 100," in output
    straight, cut = (real.folder / "results" / name / "runs/binary9-s0" for name in ("straight", "cut"))
    assert (straight / "metrics.jsonl").read_bytes() == (cut / "metrics.jsonl").read_bytes()
    hashes = [json.loads((run / "final.json").read_text())["model_sha256"] for run in (straight, cut)]
    assert hashes[0] == hashes[1]

    assert real.planned("--config", "name=cut") == {}
    results = real.folder / "results/cut"
    assert json.loads((results / "validation/binary9-s0.json").read_text())["passed"] is True
    assert "binary9" in (results / "tables/summary.txt").read_text()
    real.snakemake("--report", "report.zip", "--config", "name=cut")
    with zipfile.ZipFile(real.folder / "report.zip") as archive:
        names = archive.namelist()
    assert any(name.endswith("report.html") for name in names)
    assert any(name.endswith("loss.png") for name in names)


def test_training_on_two_ranks_goes_through_torchrun(real):
    value = real.config
    value["train"] |= {"n_gpus": 2, "micro_batch_size": 1, "max_steps": 4}
    real.configure(value)
    final = "results/tiny/runs/binary9-s0/final.json"
    output = real.snakemake(final)
    assert output.count("train binary9-s0: from the start") == 1
    assert json.loads((real.folder / final).read_text())["hardware"]["ranks"] == 2
