"""Stands in for `tokencodes`: reads the real command line and writes in no time what the stage declares.

STAND_IN_FAILS: stages (with what they work on) that end in an error. STAND_IN_STOPS: stages that ask to be started
again. STAND_IN_WAITS: training takes its lock, writes `waits` into its folder, and waits until a file of this
name exists in the working directory.
"""

import fcntl
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import made_up

from tokencodes import cli, codeversion
from tokencodes.commandline import parse_line
from tokencodes.data import store
from tokencodes.errors import EXIT_STOPPED_EARLY, EXIT_USER_ERROR
from tokencodes.files import digest, write_json, write_text
from tokencodes.train.spec import load_run

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")

context = parse_line(cli.app, sys.argv[1:])
stage = context.info_name
args = SimpleNamespace(**context.params)


def about() -> str:
    """What a job is about, from its arguments."""
    given = vars(args)
    parts = [getattr(given[key], "name", given[key]) for key in ("shard", "task", "interface") if given.get(key)]
    if stage == "index":
        parts = [str(len(args.shards))]
    elif stage in ("export", "validate"):
        parts = [args.run_dir.name]
    elif stage == "evaluate":
        parts = [args.model.name, args.task]
    elif stage == "train":
        parts = [args.out.name]
    return " ".join([stage, *parts])


def train() -> None:
    run = load_run(args.run)
    code = codeversion.digest("tokencodes.train.loop")
    with open(args.out / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if name := os.environ.get("STAND_IN_WAITS"):
            (args.out / "waits").touch()
            while Path.cwd().exists() and not Path(name).exists():
                time.sleep(0.05)
        (args.out / "checkpoints/step_0000002").mkdir(parents=True, exist_ok=True)
        record = made_up.final(
            interface=run.interface_name, seed=run.seed, run_sha256=digest(run.identity()), code=code
        )
        record.write(args.out / "final.json")


def all_of(*paths: Path) -> None:
    for path in paths:
        write_text(path, f"{path.name} {time.time_ns()}\n")


with open("calls.log", "a") as log:
    log.write(about() + "\n")
print(f"{stage} is at work", file=sys.stderr)
if about() in os.environ.get("STAND_IN_FAILS", "").split(","):
    print(f"tokencodes: error: {about()} fails", file=sys.stderr)
    raise SystemExit(EXIT_USER_ERROR)
if about() in os.environ.get("STAND_IN_STOPS", "").split(","):
    raise SystemExit(EXIT_STOPPED_EARLY)

match stage:
    case "resolve" | "params":
        context.command.invoke(context)
    case "list" | "download" | "validate" | "report":
        all_of(args.out)
    case "index":
        write_json(args.out, {"shards": [{"name": shard.name} for shard in args.shards], "time": time.time_ns()})
    case "codes":
        all_of(args.out, args.out.with_suffix(".json"))
    case "tokenizer":
        all_of(*(args.out / name for name in (*TOKENIZER, "manifest.json")))
    case "prepare":
        all_of(*(args.out / name for name in (*store.FILES, "manifest.json")))
    case "train":
        train()
    case "export":
        all_of(*(args.out / f for f in ("model.safetensors", "config.json", *TOKENIZER, "tokencodes.json")))
    case "benchmarks":
        all_of(args.out / "manifest.json")
    case "evaluate":
        all_of(args.out, args.out.with_suffix(".parquet"))
    case "tables":
        tables = args.results / "tables"
        titles = ("accounting", "results", "differences", "paper", "power", "losses", "training", "data", "lengths")
        names = [f"{name}.{kind}" for name in titles for kind in ("csv", "md", "tex")]
        all_of(*(tables / name for name in (*names, "results_by_seed.csv", "summary.txt")))
    case "figures":
        titles = ("loss", "benchmarks", "differences", "accounting", "data")
        names = [f"{name}.{kind}" for name in titles for kind in ("png", "svg", "pdf")]
        all_of(*(args.results / "figures" / name for name in names))
