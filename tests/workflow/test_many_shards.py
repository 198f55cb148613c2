"""Many jobs: what the workflow does, so that Snakemake's own work for a job does not grow with their number."""

import re
import shutil

import pytest

pytestmark = pytest.mark.workflow

SHARDS = 12


def test_ready_jobs_are_looked_at_when_a_job_ends_and_not_all_the_time(fresh):
    """With Snakemake's limit on jobs per second, each job that ended has them looked at once more each second."""
    shutil.copy(fresh.folder / "corpus/part-0.parquet", fresh.folder / "part.parquet")
    for number in range(SHARDS):
        shutil.copy(fresh.folder / "part.parquet", fresh.folder / f"corpus/part-{number}.parquet")
    output = fresh.snakemake("results/tiny/data/store/manifest.json", "--verbose")
    # No shard is prepared without the tokenizer, and raw shards would lie about meanwhile.
    assert "tokenizer" in (fresh.folder / "calls.log").read_text().splitlines()[:2]  # on two cores
    looks = len(re.findall(r"^Ready jobs: \d+$", output, re.MULTILINE))
    assert fresh.planned("results/tiny/data/store/manifest.json") == {}
    jobs = 2 * SHARDS + 2  # downloads and prepares, the tokenizer, the index
    assert jobs / 2 <= looks <= 2 * jobs + 4
