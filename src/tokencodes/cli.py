"""`tokencodes STAGE ...`: one subcommand a rule. Arguments in, one call, an exit code out; no logic here.

Modules are imported inside the subcommand that needs them: tables and checks start without torch.
"""

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tokencodes import config
from tokencodes.errors import EXIT_DONE, EXIT_STOPPED_EARLY, EXIT_USER_ERROR, StoppedEarly, UserError
from tokencodes.files import DISK_FULL, sha256_file

# What the operating system says of a path that the user named and that cannot serve.
UNUSABLE = (PermissionError, FileExistsError, IsADirectoryError, NotADirectoryError)


def _minutes(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"a number of minutes above 0 is expected, not {text!r}")


def _check(args: argparse.Namespace) -> None:
    if args.schema:
        print(config.schema_text())
        return
    from tokencodes.evaluate import benchmarks

    settings = config.load(args.config)
    benchmarks.check(settings)
    print(f"{args.config}: valid; {len(settings.interfaces)} interfaces x {len(settings.seeds)} seeds")


def _resolve(args: argparse.Namespace) -> None:
    config.resolve(args.config, args.out, interface=args.interface, seed=args.seed, as_json=args.json)


def _params(args: argparse.Namespace) -> None:
    from tokencodes.model import accounting

    accounting.command(config.load(args.config), as_json=args.json, out=args.out)


def _plan(args: argparse.Namespace) -> None:
    from tokencodes.planning import plan

    plan.command(config.load(args.config), as_json=args.json, mfu=args.mfu)


def _codes(args: argparse.Namespace) -> None:
    from tokencodes.data import tokenizer
    from tokencodes.interfaces import codes
    from tokencodes.interfaces.vocabulary import Vocabulary

    settings = config.load(args.config)
    spelled, tokenizer_sha256 = None, None
    if args.tokenizer is not None:
        spelled = tuple(tokenizer.token_bytes(args.tokenizer))
        tokenizer_sha256 = sha256_file(args.tokenizer / "tokenizer.json")
    vocabulary = Vocabulary(settings.model.vocab_size, spelled)
    record = codes.write(args.interface, settings.interface(args.interface), vocabulary, tokenizer_sha256, args.out)
    size = f"{record.vocab_size} x {record.width} {record.dtype}"
    print(f"{args.out}: {size}, {record.distinct} distinct, rank {record.rank}")


def _list(args: argparse.Namespace) -> None:
    from tokencodes.data import source

    source.write_listing(config.load(args.config), args.out)


def _download(args: argparse.Namespace) -> None:
    from tokencodes.data import source

    source.download(config.load(args.config), args.shard, args.out, args.listing)


def _tokenizer(args: argparse.Namespace) -> None:
    from tokencodes.data import tokenizer

    tokenizer.build(config.load(args.config), args.out)


def _prepare(args: argparse.Namespace) -> None:
    from tokencodes.data import prepare, store

    if args.verify:
        store.verify(args.out)
        return
    if missing := [f"--{name}" for name in ("config", "shard", "raw", "tokenizer") if getattr(args, name) is None]:
        raise UserError(f"prepare: {', '.join(missing)} missing; give them, or --verify to check the store at --out")
    prepare.prepare_shard(config.load(args.config), args.shard, args.raw, args.tokenizer, args.out)


def _index(args: argparse.Namespace) -> None:
    from tokencodes.data import store

    store.index(config.load(args.config), args.shards, args.out)


def _train(args: argparse.Namespace) -> None:
    from tokencodes.train import loop

    run = config.load_run(args.run)
    loop.train(run, args.store, args.out, codes_file=args.codes, time_budget_min=args.time_budget)


def _export(args: argparse.Namespace) -> None:
    from tokencodes.train import export

    export.export(args.run_dir, args.tokenizer, args.out, codes_file=args.codes)


def _import(args: argparse.Namespace) -> None:
    from tokencodes.train import importing

    settings = config.load(args.config)
    importing.import_checkpoint(settings, args.interface, args.weights, args.map, args.tokenizer, args.out)


def _validate(args: argparse.Namespace) -> None:
    from tokencodes.validate import checks

    settings = config.load(args.config) if args.config else None
    checks.validate(args.model, args.run_dir, args.store, args.out, settings, args.codes)


def _benchmarks(args: argparse.Namespace) -> None:
    from tokencodes.evaluate import benchmarks

    benchmarks.fetch(config.load(args.config), args.out, args.task)


def _reference(args: argparse.Namespace) -> None:
    from tokencodes.evaluate import references

    references.fetch(config.load(args.config), args.name, args.out, args.tokenizer)


def _evaluate(args: argparse.Namespace) -> None:
    from tokencodes.evaluate import run

    run.evaluate(config.load(args.config), args.model, args.task, args.shots, args.benchmarks, args.store, args.out)


def _compare(args: argparse.Namespace) -> None:
    from tokencodes.report import compare

    compare.command(args.a, args.b, as_json=args.json)


def _tables(args: argparse.Namespace) -> None:
    from tokencodes.report import tables

    tables.write(config.load(args.config), args.results)


def _others(args: argparse.Namespace) -> None:
    from tokencodes.report import others

    others.write(config.load(args.config), args.results, args.out)


def _figures(args: argparse.Namespace) -> None:
    from tokencodes.report import figures

    figures.write(config.load(args.config), args.results)


def _report(args: argparse.Namespace) -> None:
    from tokencodes.report import page

    page.write(config.load(args.config), args.results, args.out)


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    top = argparse.ArgumentParser(prog="tokencodes", description=__doc__.splitlines()[0], allow_abbrev=False)
    stages = top.add_subparsers(title="stages", metavar="STAGE", required=True)

    def stage(name: str, call, help: str) -> argparse.ArgumentParser:
        sub = stages.add_parser(name, help=help, description=help, allow_abbrev=False)
        sub.set_defaults(call=call)
        return sub

    def config_file(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--config", type=Path, required=True, metavar="FILE", help="the run's config (YAML)")

    sub = stage("check", _check, "validate a config; one line for each error")
    group = sub.add_mutually_exclusive_group(required=True)
    group.add_argument("--config", type=Path, metavar="FILE", help="the config to check")
    group.add_argument("--schema", action="store_true", help="print the JSON schema of a config instead")

    sub = stage("resolve", _resolve, "write a config, or the part of it that decides one model, with every key")
    config_file(sub)
    sub.add_argument("--json", action="store_true", help="--config is JSON text itself, not a file")
    sub.add_argument("--interface", help="with --seed: write this model's run file")
    sub.add_argument("--seed", type=int)
    sub.add_argument("--out", type=Path, required=True, metavar="FILE")

    sub = stage("params", _params, "parameter accounting of each interface, from the meta device")
    config_file(sub)
    sub.add_argument("--json", action="store_true")
    sub.add_argument("--out", type=Path, metavar="FILE", help="write the JSON here")

    sub = stage("plan", _plan, "what a config will ask for: parameters, memory, FLOPs, tokens, disk, jobs")
    config_file(sub)
    sub.add_argument("--json", action="store_true")
    sub.add_argument("--mfu", type=float, default=0.4, help="share of a GPU's peak that training reaches (0.4)")

    sub = stage("codes", _codes, "write the V x K code book of an interface")
    config_file(sub)
    sub.add_argument("--interface", required=True)
    sub.add_argument("--tokenizer", type=Path, metavar="DIR", help="for codes that are made from the tokens' bytes")
    sub.add_argument(
        "--out", type=Path, required=True, metavar="FILE.npy", help="the code book; its record goes beside it"
    )

    sub = stage("list", _list, "ask the hub once for the commit, and for size and hash of each raw shard")
    config_file(sub)
    sub.add_argument("--out", type=Path, required=True, metavar="FILE.json")

    sub = stage("download", _download, "bring one raw shard of the corpus here, as Parquet")
    config_file(sub)
    sub.add_argument("--shard", required=True, help="the shard's name, as `tokencodes plan` lists it")
    sub.add_argument("--listing", type=Path, metavar="FILE.json", help="what `tokencodes list` wrote")
    sub.add_argument("--out", type=Path, required=True, metavar="FILE.parquet")

    sub = stage("tokenizer", _tokenizer, "write tokenizer.json and its hash")
    config_file(sub)
    sub.add_argument("--out", type=Path, required=True, metavar="DIR")

    sub = stage("prepare", _prepare, "filter, tokenise and split one shard into a store; or verify a whole store")
    sub.add_argument("--config", type=Path, metavar="FILE", help="the run's config (YAML)")
    sub.add_argument("--shard", help="the shard's name")
    sub.add_argument("--raw", type=Path, metavar="FILE.parquet", help="the raw shard")
    sub.add_argument("--tokenizer", type=Path, metavar="DIR", help="what `tokencodes tokenizer` wrote")
    sub.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="the shard's store (with --verify: a store)"
    )
    sub.add_argument("--verify", action="store_true", help="check every byte of the store at --out instead")

    sub = stage("index", _index, "join prepared shards into one store: counts, hashes, unigram entropy")
    config_file(sub)
    sub.add_argument("--shards", type=Path, nargs="+", required=True, metavar="DIR")
    sub.add_argument("--out", type=Path, required=True, metavar="FILE", help="the store's manifest.json")

    sub = stage("train", _train, "train one model; alone or under torchrun; started again, it continues")
    sub.add_argument("--run", type=Path, required=True, metavar="RUN.yaml", help="what `tokencodes resolve` wrote")
    sub.add_argument("--store", type=Path, required=True, metavar="DIR")
    sub.add_argument("--codes", type=Path, metavar="FILE.npy", help="what `tokencodes codes` wrote for the interface")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR")
    sub.add_argument("--time-budget", type=_minutes, metavar="MIN", help="save and exit 75 after this many minutes")

    sub = stage("export", _export, "write the final checkpoint as a Transformers model directory")
    sub.add_argument("--run-dir", type=Path, required=True, metavar="DIR", help="what `tokencodes train` wrote")
    sub.add_argument("--codes", type=Path, metavar="FILE.npy", help="the code book that it was trained with")
    sub.add_argument("--tokenizer", type=Path, required=True, metavar="DIR")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR")

    sub = stage("import", _import, "write a published checkpoint of the config's shape as a model directory of ours")
    config_file(sub)
    sub.add_argument("--interface", required=True, help="the interface of the config that it has")
    sub.add_argument("--weights", type=Path, required=True, metavar="DIR", help="its files, or one of them")
    sub.add_argument(
        "--map", type=Path, metavar="FILE.yaml", help="names of its tensors (those of Transformers' Llama)"
    )
    sub.add_argument("--tokenizer", type=Path, metavar="DIR", help="what `tokencodes tokenizer` wrote")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR")

    sub = stage("validate", _validate, "check an exported model against its run, bit for bit")
    sub.add_argument("--model", type=Path, required=True, metavar="DIR")
    sub.add_argument("--run-dir", type=Path, metavar="DIR", help="what it was trained in")
    sub.add_argument("--config", type=Path, metavar="FILE", help="of an imported model: the config (YAML)")
    sub.add_argument("--codes", type=Path, metavar="FILE.npy", help="the code book that it must have")
    sub.add_argument("--store", type=Path, required=True, metavar="DIR")
    sub.add_argument("--out", type=Path, required=True, metavar="FILE")

    sub = stage("benchmarks", _benchmarks, "bring the benchmark data here")
    config_file(sub)
    sub.add_argument("--task", help="the data of this task of the config alone")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR")

    sub = stage("reference", _reference, "bring a published model of the config here, as a model directory")
    config_file(sub)
    sub.add_argument("--name", required=True, help="its name under `references`")
    sub.add_argument(
        "--tokenizer", type=Path, metavar="DIR", help="what `tokencodes tokenizer` wrote (for kind: import)"
    )
    sub.add_argument("--out", type=Path, required=True, metavar="DIR")

    sub = stage("evaluate", _evaluate, "score one model on one benchmark")
    config_file(sub)
    sub.add_argument("--model", type=Path, required=True, metavar="DIR", help="a Transformers model directory")
    sub.add_argument("--task", required=True, help="a task of the config")
    sub.add_argument("--shots", type=int, default=0)
    sub.add_argument("--benchmarks", type=Path, metavar="DIR", help="what `tokencodes benchmarks` wrote")
    sub.add_argument("--store", type=Path, metavar="DIR", help="for corpus_validation")
    sub.add_argument("--out", type=Path, required=True, metavar="FILE.json")

    sub = stage("compare", _compare, "what differences between two models' stored results are worth, task by task")
    place = "results/NAME, or one model in it: its folder in eval/ or models/; without -sSEED all its seeds"
    sub.add_argument("a", type=Path, metavar="A", help=place)
    sub.add_argument("b", type=Path, metavar="B", help="the same; the table gives A - B")
    sub.add_argument("--json", action="store_true")

    for name, call, help in (
        ("tables", _tables, "write the tables of a run from its stored results"),
        ("figures", _figures, "draw the figures of a run from its stored results"),
    ):
        sub = stage(name, call, help)
        config_file(sub)
        sub.add_argument("--results", type=Path, required=True, metavar="DIR", help="results/<name>")

    sub = stage("others", _others, "write the table of our models beside those of others from stored results")
    config_file(sub)
    sub.add_argument("--results", type=Path, required=True, metavar="DIR", help="results/<name>")
    sub.add_argument("--out", type=Path, required=True, metavar="DIR")

    sub = stage("report", _report, "write the self-contained report page of a run")
    config_file(sub)
    sub.add_argument("--results", type=Path, required=True, metavar="DIR", help="results/<name>")
    sub.add_argument("--out", type=Path, required=True, metavar="FILE.html")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one stage; return the exit code: 0 done, 2 wrong input, 75 start me again (1, a traceback: our fault)."""
    args = parser().parse_args(argv)
    try:
        args.call(args)
        sys.stdout.flush()
    except UserError as error:
        for line in str(error).splitlines():
            print(f"tokencodes: error: {line}", file=sys.stderr)
        return EXIT_USER_ERROR
    except StoppedEarly as stop:
        print(f"tokencodes: {stop}", file=sys.stderr)
        return EXIT_STOPPED_EARLY
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away, as `| head` does
    except OSError as error:
        if isinstance(error, UNUSABLE) and error.filename:
            said = f"{error.filename}: {os.strerror(error.errno).lower()}; name another path, or mend this one"
            print(f"tokencodes: error: {said}", file=sys.stderr)
            return EXIT_USER_ERROR
        if error.errno not in DISK_FULL:
            raise
        where = error.filename or "a file of this stage"
        said = f"{where}: the disk is full ({os.strerror(error.errno)}); free some space and start again"
        print(f"tokencodes: error: {said}", file=sys.stderr)
        return EXIT_USER_ERROR
    return EXIT_DONE


if __name__ == "__main__":
    raise SystemExit(main())
