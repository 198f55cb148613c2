"""From documents to the report through Slurm; and what a success is."""

import json

from conftest import MODEL, QUICK, shim


def test_the_tiny_config_from_documents_to_the_report(whole):
    """`snakemake --profile slurm`, as in a fresh clone: preparing, training, scoring are Slurm's, the rest is here."""
    project, said = whole
    results = project.folder / "results/straight"
    assert json.loads((results / "validation" / f"{MODEL}.json").read_text())["passed"] is True
    assert "binary9" in (results / "tables/summary.txt").read_text() and (results / "report.html").exists()
    assert said.count("has been submitted with SLURM jobid") == 6  # two shards together, index, and four of the model
    assert "Trying to restart job" not in said
    assert project.planned(config="straight.yaml", profile="slurm") == {}
    assert project.planned(config="straight.yaml") == {}  # nor does it matter where it was made


def test_a_log_says_where_it_was_made_and_survives(whole):
    project, _ = whole
    for stage in ("prepare/part-0", f"train/{MODEL}", f"evaluate/{MODEL}/corpus_validation-0shot"):
        first, *_, last = (project.folder / f"results/straight/logs/{stage}.log").read_text().splitlines()
        assert first.startswith("=== ") and ", Slurm job " in first and ", GPUs " in first and "; tokencodes " in first
        assert last.startswith("=== exit code 0 after ")


def test_success_is_a_file_that_is_there_not_what_slurm_says(staged):
    """A Slurm that calls every job completed is not believed."""
    staged.snakemake("results/tiny/data/store/manifest.json")
    shim(staged, "squeue", '/usr/bin/squeue "$@" | sed "s/FAILED/COMPLETED/"')
    said = staged.snakemake(
        *("results/tiny/models/binary9-s0/model.safetensors", *QUICK, "--latency-wait", "3"),
        code=1,
        profile="slurm",
        env={"STAND_IN_FAILS": "train binary9-s0"},
    )
    assert "failed: train binary9 0: error: train binary9-s0 fails" in said
    assert not any(call.startswith("export") for call in staged.calls())
    assert not (staged.folder / "results/tiny/runs/binary9-s0/final.json").exists()
