"""One failed stage: the others go on, the end says what failed, and the next call runs that and what depends on it."""

import re

import pyarrow as pa
import pyarrow.parquet as pq

from conftest import QUICK

INDEX = "results/tiny/data/store/manifest.json"


def test_a_failed_shard_among_twelve_in_two_queue_entries(staged):
    (staged.folder / "corpus/part-0.parquet").unlink()
    (staged.folder / "corpus/part-1.parquet").unlink()
    for number in range(12):
        pq.write_table(pa.table({"text": ["a"], "id": ["b"]}), staged.folder / f"corpus/part-{number:02d}.parquet")
    said = staged.snakemake(*(INDEX, *QUICK), code=1, profile="slurm", env={"STAND_IN_FAILS": "prepare part-05"})
    assert said.count("has been submitted with SLURM jobid") == 2  # a mistake is not repeated, nor is its group
    assert re.search(r"^tokencodes: failed: prepare part-05: error: prepare part-05 fails$", said, re.MULTILINE)
    told = re.findall(r"^tokencodes: failed: prepare (part-\d\d)", said, re.MULTILINE)
    begun = {call.split()[1] for call in staged.calls() if call.startswith("prepare")}
    there = {path.parent.name for path in (staged.folder / "results/tiny/data/store").glob("part-*/manifest.json")}
    assert there == begun - {"part-05"}  # what the failed group has finished is kept
    assert sorted([*told, *there]) == [f"part-{number:02d}" for number in range(12)]

    staged.snakemake(INDEX, *QUICK, profile="slurm")
    missing = [f"prepare part-{number:02d}" for number in range(12) if f"part-{number:02d}" not in there]
    assert staged.calls() == ["index 12", *missing]
    assert staged.planned(INDEX, profile="slurm") == {}


def test_a_failed_evaluation(staged):
    models = [f"results/tiny/models/{name}-s0/model.safetensors" for name in ("learned", "binary9")]
    staged.snakemake(*models)
    staged.calls()
    scores = [f"results/tiny/eval/{name}-s0/corpus_validation-0shot.json" for name in ("learned", "binary9")]
    failing = "evaluate binary9-s0 corpus_validation"
    said = staged.snakemake(*(*scores, *QUICK), code=1, profile="slurm", env={"STAND_IN_FAILS": failing})
    assert (staged.folder / scores[0]).exists() and not (staged.folder / scores[1]).exists()
    assert staged.calls().count(failing) == 1  # exit code 2 is not tried again
    told = [line.removeprefix("tokencodes: ") for line in said.splitlines() if line.startswith("tokencodes: ")]
    about = told.index(f"failed: evaluate binary9 0 corpus_validation 0: error: {failing} fails")
    assert told[about + 1] == "  its log: results/tiny/logs/evaluate/binary9-s0/corpus_validation-0shot.log"
    assert told[about + 2].startswith(f"  again:   snakemake {scores[1]} --slurm-init-seconds")
    assert "--profile slurm --configfile tiny.yaml" in told[about + 2]

    staged.snakemake(*scores, *QUICK, profile="slurm")
    assert staged.calls() == [failing]
