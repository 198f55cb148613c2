"""One failed stage: the others continue, the end names it, and the next call runs it and what depends on it."""

import re

import pyarrow as pa
import pyarrow.parquet as pq
from trial import QUICK

INDEX = "results/tiny/data/store/manifest.json"


def test_a_failed_shard_among_twelve_in_two_queue_entries(staged):
    (staged.folder / "corpus/part-0.parquet").unlink()
    (staged.folder / "corpus/part-1.parquet").unlink()
    for number in range(12):
        pq.write_table(pa.table({"text": ["a"], "id": ["b"]}), staged.folder / f"corpus/part-{number:02d}.parquet")
    output = staged.snakemake(*(INDEX, *QUICK), code=1, profile="slurm", env={"STAND_IN_FAILS": "prepare part-05"})
    assert output.count("has been submitted with SLURM jobid") == 2  # a mistake is not repeated, nor is its group
    assert re.search(r"^tokencodes: failed: prepare part-05: error: prepare part-05 fails$", output, re.MULTILINE)
    failed = re.findall(r"^tokencodes: failed: prepare (part-\d\d)", output, re.MULTILINE)
    started = {call.split()[1] for call in staged.calls() if call.startswith("prepare")}
    complete = {path.parent.name for path in (staged.folder / "results/tiny/data/store").glob("part-*/manifest.json")}
    assert complete == started - {"part-05"}  # what the failed group has finished is kept
    assert sorted([*failed, *complete]) == [f"part-{number:02d}" for number in range(12)]

    staged.snakemake(INDEX, *QUICK, profile="slurm")
    missing = [f"prepare part-{number:02d}" for number in range(12) if f"part-{number:02d}" not in complete]
    assert staged.calls() == ["index 12", *missing]
    assert staged.planned(INDEX, profile="slurm") == {}


def test_a_failed_evaluation_and_a_validation_without_progress(staged):
    models = [f"results/tiny/models/{name}-s0/model.safetensors" for name in ("learned", "binary9")]
    staged.snakemake(*models)
    staged.calls()
    scores = [f"results/tiny/eval/{name}-s0/corpus_validation-0shot.json" for name in ("learned", "binary9")]
    failing, stopping = "evaluate binary9-s0 corpus_validation", "validate learned-s0"
    targets = [*scores, "results/tiny/validation/learned-s0.json"]
    output = staged.snakemake(
        *(*targets, *QUICK, "--retries", "1"),
        code=1,
        profile="slurm",
        env={"STAND_IN_FAILS": failing, "STAND_IN_STOPS": stopping},
    )
    assert (staged.folder / scores[0]).exists() and not (staged.folder / scores[1]).exists()
    calls = staged.calls()
    assert calls.count(failing) == 1  # exit code 2 is not repeated
    assert calls.count(stopping) == 2  # what is stopped each time is repeated as often as `retries` says
    lines = [line.removeprefix("tokencodes: ") for line in output.splitlines() if line.startswith("tokencodes: ")]
    first = lines.index(f"failed: evaluate binary9-s0 corpus_validation 0: error: {failing} fails")
    assert lines[first + 1] == "  its log: results/tiny/logs/evaluate/binary9-s0/corpus_validation-0shot.log"
    assert lines[first + 2].startswith(f"  again:   snakemake {scores[1]} --slurm-init-seconds")
    assert "--profile slurm --configfile tiny.yaml" in lines[first + 2]
    assert any(line.startswith("failed: validate learned 0: interrupted 2 times in a row without") for line in lines)

    staged.snakemake(*targets, *QUICK, profile="slurm")
    assert staged.calls() == [failing, stopping]


def test_success_is_a_complete_record_whatever_slurm_says(staged):
    """With a Slurm that calls every job completed."""
    staged.snakemake(INDEX)
    staged.put_first("squeue", '#!/bin/bash\n/usr/bin/squeue "$@" | sed "s/FAILED/COMPLETED/"\n')
    output = staged.snakemake(
        *("results/tiny/models/binary9-s0/model.safetensors", *QUICK, "--latency-wait", "3"),
        code=1,
        profile="slurm",
        env={"STAND_IN_FAILS": "train binary9-s0"},
    )
    assert "failed: train binary9 0: error: train binary9-s0 fails" in output
    assert not any(call.startswith("export") for call in staged.calls())
    assert not (staged.folder / "results/tiny/runs/binary9-s0/final.json").exists()
