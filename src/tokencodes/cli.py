"""`tokencodes STAGE ...`: one subcommand per rule. Arguments in, one call, an exit code out; no logic here.

Each function below is one subcommand: its signature is the command line, its docstring the help, its body the call.
A body imports the modules that it needs, so tables and checks start without torch.
"""

import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Typer

from tokencodes.commandline import Terminal, flag, minutes, of_the_system, option, parse_line, share
from tokencodes.errors import EXIT_DONE, EXIT_STOPPED_EARLY, EXIT_USER_ERROR, StoppedEarly, UserError, lines

if TYPE_CHECKING:
    from tokencodes.config import Config

app = Typer(
    help="One subcommand per stage of the workflow. `tokencodes STAGE --help` names the files of a stage.",
    subcommand_metavar="STAGE [OPTIONS]",
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    rich_markup_mode=None,  # plain text, and no import of rich
)


# Options that several stages share.
ConfigFile = Annotated[Path, option("FILE", "the run's config (YAML)")]
Json = Annotated[bool, flag("--json", "print JSON")]
Shard = Annotated[str, option("NAME", "the shard's name, as `tokencodes plan` lists it")]
Store = Annotated[Path, option("DIR", "the store that `tokencodes index` completed")]
TokenizerDir = Annotated[Path, option("DIR", "what `tokencodes tokenizer` wrote")]
ModelDir = Annotated[Path, option("DIR", "a Transformers model directory")]
ModelOut = Annotated[Path, option("DIR", "the model directory to write: a new or empty folder, or a model of ours")]
Results = Annotated[Path, option("DIR", "the run's folder, results/<name>")]
COMPARED = "results/NAME, or one model in it: its folder in eval/ or models/; without -sSEED all its seeds"


def _load(config: Path) -> "Config":
    from tokencodes.config import load

    return load(config)


# --------------------------------------------------------------- before a run


@app.command()
def check(
    *,
    config: Annotated[Path | None, option("FILE", "the config to check (YAML)")] = None,
    schema: Annotated[bool, flag("--schema", "print the JSON schema of a config instead")] = False,
) -> None:
    """Validate a config; one line for each error."""
    if schema == (config is not None):
        raise UserError("check: give either --config FILE or --schema")
    if config is None:
        from tokencodes.config import schema_text

        print(schema_text())
        return
    from tokencodes.config import check

    settings = _load(config)
    check(settings)
    print(f"{config}: valid; {len(settings.interfaces)} interfaces x {len(settings.seeds)} seeds")


@app.command()
def resolve(
    *,
    config: Annotated[str, option("FILE", "the run's config (YAML)")],  # not a path: with --json, "//" must stay
    as_json: Annotated[bool, flag("--json", "--config is JSON text itself, not a file")] = False,
    interface: Annotated[str | None, option("NAME", "with --seed: write this model's run file")] = None,
    seed: Annotated[int | None, option("SEED", "with --interface: the model's seed", min=0, max=2**63 - 1)] = None,
    out: Annotated[Path, option("FILE", "the YAML file to write")],
) -> None:
    """Write a config, or one model's part of it, with every key."""
    from tokencodes.config import resolve

    resolve(config, out, interface=interface, seed=seed, as_json=as_json)


@app.command()
def params(
    *,
    config: ConfigFile,
    as_json: Json = False,
    out: Annotated[Path | None, option("FILE", "write the JSON here")] = None,
) -> None:
    """Count the parameters of each interface.

    On the meta device: no memory is taken."""
    from tokencodes.model import accounting

    settings = _load(config)
    accounting.command(settings.interfaces, settings.model, as_json=as_json, out=out)


@app.command()
def plan(
    *,
    config: ConfigFile,
    as_json: Json = False,
    mfu: Annotated[float, option("SHARE", "share of a GPU's peak that training reaches", parser=share)] = 0.4,
) -> None:
    """Estimate what a config takes, before any job.

    Parameters, memory per GPU, FLOPs, tokens, disk, hours and days, epochs, and the number of jobs."""
    from tokencodes.planning import plan

    plan.command(_load(config), as_json=as_json, mfu=mfu)


@app.command()
def codes(
    *,
    config: ConfigFile,
    interface: Annotated[str, option("NAME", "an interface of the config")],
    tokenizer: Annotated[
        Path | None, option("DIR", "what `tokencodes tokenizer` wrote; for codes made from the tokens' bytes")
    ] = None,
    out: Annotated[Path, option("FILE.npy", "the code book to write; its record goes beside it, as FILE.json")],
) -> None:
    """Write the V x K code book of an interface."""
    from tokencodes.train import codebook

    settings = _load(config)
    codebook.make(interface, settings.interface(interface), settings.model.vocab_size, tokenizer, out)


# ----------------------------------------------------------------------- data


@app.command("list")
def list_shards(
    *,
    config: ConfigFile,
    out: Annotated[Path, option("FILE.json", "the listing to write")],
) -> None:
    """List the raw shards on the hub.

    Asks the hub once for the commit, and for size and hash of each shard."""
    from tokencodes.data import source

    source.write_listing(_load(config).data.source, out)


@app.command()
def download(
    *,
    config: ConfigFile,
    shard: Shard,
    listing: Annotated[Path | None, option("FILE.json", "what `tokencodes list` wrote")] = None,
    out: Annotated[Path, option("FILE.parquet", "the raw shard to write")],
) -> None:
    """Download one raw shard of the corpus, as Parquet."""
    from tokencodes.data import source

    settings = _load(config)
    source.download(settings.data.source, shard, out, cache=settings.cache, pinned=listing)


@app.command()
def tokenizer(
    *,
    config: ConfigFile,
    out: Annotated[Path, option("DIR", "the folder to write: tokenizer.json and manifest.json")],
) -> None:
    """Write tokenizer.json and its hash."""
    from tokencodes.data import tokenizer

    settings = _load(config)
    tokenizer.build(settings.data.tokenizer, settings.model.vocab_size, out, cache=settings.cache)


@app.command()
def prepare(
    *,
    config: Annotated[Path | None, option("FILE", "the run's config (YAML)")] = None,
    shard: Annotated[str | None, option("NAME", "the shard's name")] = None,
    raw: Annotated[Path | None, option("FILE.parquet", "what `tokencodes download` wrote")] = None,
    tokenizer: Annotated[Path | None, option("DIR", "what `tokencodes tokenizer` wrote")] = None,
    out: Annotated[Path, option("DIR", "the shard's store to write; with --verify: the store to check")],
    verify: Annotated[bool, flag("--verify", "check every byte of the store at --out instead")] = False,
) -> None:
    """Filter, tokenise and split a shard; or verify a store."""
    from tokencodes.data import store

    if verify:
        store.verify(out)
        return
    given = {"config": config, "shard": shard, "raw": raw, "tokenizer": tokenizer}
    if missing := [f"--{name}" for name, value in given.items() if value is None]:
        raise UserError(f"prepare: {', '.join(missing)} missing; give them, or --verify to check the store at --out")
    from tokencodes.data.prepare import prepare_shard

    settings = _load(config)
    prepare_shard(settings.data, settings.model.vocab_size, shard, raw, tokenizer, out)


@app.command()
def index(
    *,
    config: ConfigFile,
    shards: Annotated[list[Path], option("DIR...", "what `tokencodes prepare` wrote, all shards in order")],
    out: Annotated[Path, option("FILE", "the manifest.json of the store to write")],
) -> None:
    """Join prepared shards into one store.

    Writes its manifest: counts, hashes, unigram entropy."""
    from tokencodes.data import indexing

    settings = _load(config)
    indexing.index(settings.data, settings.model.vocab_size, shards, out)


# --------------------------------------------------------------------- models


@app.command()
def train(
    *,
    run: Annotated[Path, option("RUN.yaml", "what `tokencodes resolve` wrote for one model")],
    store: Store,
    codes: Annotated[
        Path | None, option("FILE.npy", "what `tokencodes codes` wrote; without it the code book is built anew")
    ] = None,
    out: Annotated[Path, option("DIR", "the run folder to write: metrics, checkpoints, last final.json")],
    time_budget: Annotated[
        float | None, option("MIN", "save and exit 75 after this many minutes", parser=minutes)
    ] = None,
) -> None:
    """Train one model.

    Alone or under torchrun. Started again, it continues from the newest checkpoint."""
    from tokencodes.train import loop
    from tokencodes.train.spec import load_run

    loop.train(load_run(run), store, out, codes_file=codes, time_budget_min=time_budget)


@app.command()
def export(
    *,
    run_dir: Annotated[Path, option("DIR", "what `tokencodes train` wrote")],
    tokenizer: TokenizerDir,
    codes: Annotated[Path | None, option("FILE.npy", "the code book that the run must have been trained with")] = None,
    out: ModelOut,
) -> None:
    """Export the final checkpoint for Transformers.

    Writes a model directory that Transformers loads."""
    from tokencodes.train.export import export

    export(run_dir, tokenizer, out, codes_file=codes)


@app.command("import")
def import_model(
    *,
    config: ConfigFile,
    interface: Annotated[str, option("NAME", "the interface of the config that the checkpoint has")],
    weights: Annotated[Path, option("DIR", "the checkpoint's files, or one of them")],
    map: Annotated[
        Path | None, option("FILE.yaml", "names of its tensors; without it those of Transformers' Llama")
    ] = None,
    tokenizer: Annotated[Path | None, option("DIR", "what `tokencodes tokenizer` wrote")] = None,
    out: ModelOut,
) -> None:
    """Import a published checkpoint of the config's shape.

    Writes a model directory, as `tokencodes export` does."""
    from tokencodes.train import importing

    importing.import_checkpoint(_load(config), interface, weights, map, tokenizer, out)


@app.command()
def validate(
    *,
    model: Annotated[Path, option("DIR", "what `tokencodes export` or `tokencodes import` wrote")],
    run_dir: Annotated[Path | None, option("DIR", "the folder that it was trained in")] = None,
    config: Annotated[Path | None, option("FILE", "of an imported model: the config (YAML)")] = None,
    store: Store,
    codes: Annotated[Path | None, option("FILE.npy", "the code book that the model must have")] = None,
    out: Annotated[Path, option("FILE", "the JSON file to write: what was checked, and whether it passed")],
) -> None:
    """Check an exported model against its run, bit for bit."""
    from tokencodes.validate import checks

    checks.validate(model, run_dir, store, out, _load(config) if config else None, codes)


@app.command()
def reference(
    *,
    config: ConfigFile,
    name: Annotated[str, option("NAME", "the model's name under `references` of the config")],
    tokenizer: Annotated[Path | None, option("DIR", "what `tokencodes tokenizer` wrote (for kind: import)")] = None,
    out: ModelOut,
) -> None:
    """Download a published model, as a model directory."""
    from tokencodes.evaluate import references

    references.fetch(_load(config), name, out, tokenizer)


# ----------------------------------------------------------------- evaluation


@app.command()
def benchmarks(
    *,
    config: ConfigFile,
    task: Annotated[str | None, option("NAME", "the data of this task of the config alone")] = None,
    out: Annotated[Path, option("DIR", "the folder to write: data and manifest.json")],
) -> None:
    """Download the benchmark data."""
    from tokencodes.evaluate import benchmarks

    settings = _load(config)
    benchmarks.fetch(settings.evaluate, settings.cache, out, task)


@app.command()
def evaluate(
    *,
    config: ConfigFile,
    model: ModelDir,
    task: Annotated[str, option("NAME", "a task of the config")],
    shots: Annotated[int, option("N", "solved examples before each question", min=0, max=1000)] = 0,
    benchmarks: Annotated[Path | None, option("DIR", "what `tokencodes benchmarks` wrote")] = None,
    store: Annotated[Path | None, option("DIR", "for corpus_validation: the store")] = None,
    out: Annotated[
        Path, option("FILE.json", "the scores to write; scores by document go into a .parquet file beside it")
    ],
) -> None:
    """Score one model on one benchmark."""
    from tokencodes.evaluate import run

    run.evaluate(_load(config).evaluate, model, task, shots, benchmarks, store, out)


@app.command()
def compare(
    a: Annotated[Path, Argument(metavar="A", help=COMPARED)],
    b: Annotated[Path, Argument(metavar="B", help="the same; the table gives A - B")],
    *,
    as_json: Json = False,
) -> None:
    """Compare the stored results of two models.

    Task by task on the same documents, with intervals and tests."""
    from tokencodes.report import compare

    compare.command(a, b, as_json=as_json)


# --------------------------------------------------------------------- report


@app.command()
def tables(*, config: ConfigFile, results: Results) -> None:
    """Write the tables of a run.

    From its stored results alone, into tables/ in the run's folder."""
    from tokencodes.report import tables

    tables.write(_load(config), results)


@app.command()
def others(
    *,
    config: ConfigFile,
    results: Results,
    out: Annotated[Path, option("DIR", "the folder to write the tables into")],
) -> None:
    """Write the table of our models beside those of others.

    From stored results alone."""
    from tokencodes.report import others

    others.write(_load(config), results, out)


@app.command()
def figures(*, config: ConfigFile, results: Results) -> None:
    """Draw the figures of a run.

    From its stored results alone, into figures/ in the run's folder."""
    from tokencodes.report import figures

    figures.write(_load(config), results)


@app.command()
def report(
    *,
    config: ConfigFile,
    results: Results,
    out: Annotated[Path, option("FILE.html", "the page to write")],
) -> None:
    """Write the self-contained report page of a run."""
    from tokencodes.report import page

    page.write(_load(config), results, out)


# ------------------------------------------------------------------ the program


def main(argv: Sequence[str] | None = None) -> int:
    """Run one stage; return the exit code: 0 done, 2 wrong input, 75 start me again (1, a traceback: our fault)."""
    # Pydantic would read the metadata of every installed package in search of plugins: a tenth of a short stage's time.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    arguments = sys.argv[1:] if argv is None else argv
    try:
        with contextlib.redirect_stdout(Terminal(sys.stdout)):
            context = parse_line(app, arguments)
            context.command.invoke(context)
            sys.stdout.flush()
    except Exit as end:
        return end.exit_code  # --help was printed
    except UserError as error:
        return _refuse(error)
    except StoppedEarly as stop:
        print(f"tokencodes: {stop}", file=sys.stderr)
        return EXIT_STOPPED_EARLY
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader went away, as `| head` does
    except (OSError, MemoryError) as error:
        if (refusal := of_the_system(error, arguments)) is None:
            raise
        return _refuse(refusal)
    return EXIT_DONE


def _refuse(error: UserError) -> int:
    for line in lines(error):
        print(f"tokencodes: error: {line}", file=sys.stderr)
    return EXIT_USER_ERROR


if __name__ == "__main__":
    raise SystemExit(main())
