"""The report page of a run: one HTML file that holds all it shows, needs no network and no script.

Made from stored results alone, by the page.html template and page.css: first what was asked and found, in sentences
made from the numbers, then tables, figures, data, training, validation, provenance, and how to run each part again.
Each number's file is named.
"""

import base64
import re
import shlex
from collections import Counter
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from tokencodes.config import Config
from tokencodes.data import listing
from tokencodes.errors import UserError
from tokencodes.files import write_text
from tokencodes.interfaces.spec import is_fixed
from tokencodes.layout import Layout, model_name
from tokencodes.report import differences, findings, paper, render, tables
from tokencodes.report.render import GAP, Table
from tokencodes.report.results import STORE, Results, read
from tokencodes.train.final import Final
from tokencodes.yamlfile import dump

SECTIONS = (
    ("found", "What was asked and found"),
    ("parameters", "Parameters"),
    ("results", "Results"),
    ("differences", "Differences"),
    ("paper", "Against the paper"),
    ("training", "Training"),
    ("data", "Data"),
    ("validation", "Validation"),
    ("provenance", "Provenance"),
    ("rerun", "Run a part again"),
)
PX_PER_PT = 96 / 72
SHARDS_SHOWN = 12  # so many stand in the table of the data; more are folded away below it
SHORT_HASH = 12  # hex digits shown in a table; the whole hash is in the file that is named


def write(settings: Config, results_dir: Path | str, out_html: Path | str) -> None:
    """Write the page. Raises UserError naming a damaged result file, or a figure that has not been drawn."""
    write_text(out_html, html(read(settings, results_dir, with_curves=False)))


def html(results: Results) -> str:
    """The page's text."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["breakable"] = breakable
    template = environment.from_string(_template("page.html"))
    settings = results.settings
    return template.render(
        name=settings.name,
        style=_template("page.css").strip(),
        setting=setting(results),
        sections=SECTIONS,
        notice=notice(results),
        sentences=findings.sentences(results),
        rules=findings.RULES,
        gap=GAP,
        tables={table.name: _shown(table, f"Table {number}") for number, table in enumerate(numbered(results), start=1)}
        | {"shards": _shown(shards(results), "Data by shard")},
        figures=pictures(results),
        checks=findings.checks(results),
        versions=versions(results),
        hashes=hashes(results),
        config=dump(settings).strip(),
        files=results.files,
        example=model_name(*results.models()[0]),
        commands=commands(results),
    )


def numbered(results: Results) -> list[Table]:
    """The page's tables in their order."""
    return [
        tables.accounting(results),
        tables.comparison(results),
        differences.differences(results),
        paper.power(results),
        paper.against(results),
        differences.losses(results),
        tables.training(results),
        data_in_short(results),
        tables.lengths(results),
        checks(results),
        details(results),
        models(results),
        evaluations(results),
    ]


def breakable(text: str) -> Markup:
    """Names with underscores may be broken after one, and paths after a slash."""
    return Markup(re.sub("([_/])", r"\1<wbr>", str(escape(text))))  # noqa: S704  escaped


def setting(results: Results) -> str:
    """The run in one line: models, seeds, size, corpus."""
    settings = results.settings
    model, source = settings.model, settings.data.source
    corpus = {
        "pypi": lambda: f"{source.package} {source.version}",
        "hub": lambda: f"{source.repo} at {_commit(results) or source.revision}",
        "local": lambda: source.path,
    }[source.kind]()
    seeds = ", ".join(map(str, settings.seeds))
    return (
        f"Interfaces {', '.join(settings.interfaces)}; {'seeds' if len(settings.seeds) > 1 else 'seed'} {seeds}; "
        f"{model.n_layers} layers, width {model.d_model:,}, vocabulary {model.vocab_size:,}, context "
        f"{model.context_length:,}; {settings.train.max_steps:,} steps of {settings.train.tokens_per_step:,} tokens; "
        f"corpus {corpus}."
    )


def _commit(results: Results) -> str | None:
    """The commit that all shards of a corpus on the hub came from; None if its listing is not there."""
    source = results.settings.data.source
    path = results.root / "data" / listing.listing_name(source)
    return f"commit {listing.read(path, source).commit}" if path.is_file() else None


def notice(results: Results) -> str:
    """What a reader must know before the first number; nothing for a run of the paper's size and data."""
    if not paper.unlike(results):
        few, many = paper.comparable(results)
        return (
            "" if few == many else f"{findings.comparability(results)} What is no target stands for orientation only."
        )
    if paper.is_toy(results):
        return (
            "A toy run, far smaller than the paper's: benchmark scores near chance are to be expected, and they rank "
            "nothing. It shows that each part works; the paper's figures stand beside for orientation only."
        )
    return "Another size or budget than the paper's: its figures stand beside for orientation only."


# -------------------------------------------------------------------- tables


def _shown(table: Table, title: str) -> dict[str, Any]:
    """A table as the template takes it; where rows share a folder, it is named once, in the caption."""
    sources = table.sources or ("",) * len(table.rows)
    folders = Counter(source.rpartition("/")[0] for source in sources if source)
    origin = ""
    if len(set(sources)) == 1:
        origin = sources[0]
    elif folders and (top := folders.most_common(1)[0])[1] > 1:
        origin = top[0] + "/"

    def below(source: str) -> str:
        return source.removeprefix(origin) if origin else source

    return {
        "name": table.name,
        "title": title,
        "caption": table.caption,
        "header": table.header,
        "rows": [{"cells": row, "origin": below(source)} for row, source in zip(table.rows, sources, strict=True)],
        "notes": table.notes,
        "aside": table.aside,
        "origin": origin,
    }


def data_in_short(results: Results) -> Table:
    """The table of the data: with its shards if they are few, else the total alone."""
    table = tables.data(results, timed=True)
    if len(table.rows) <= SHARDS_SHOWN + 1:
        return table
    return replace(table, rows=table.rows[:1], sources=table.sources[:1])


def shards(results: Results) -> Table:
    """The rows that `data_in_short` leaves out."""
    table = tables.data(results, timed=True)
    left_out = slice(len(data_in_short(results).rows), None)
    rows, sources = table.rows[left_out], table.sources[left_out]
    return replace(table, name="shards", caption="Data by shard.", rows=rows, sources=sources, notes=())


def checks(results: Results) -> Table:
    """Checkpoint checks by model."""
    rows = results.checks
    names = list(dict.fromkeys(rows.name))
    interfaces = list(results.settings.interfaces)

    def outcome(name: str, interface: str) -> str:
        each = rows[(rows.name == name) & (rows.interface == interface)]
        if not len(each):
            return GAP
        if len(failed := each[each.passed.ne(True)]):
            return "FAILED" + ("" if len(results.settings.seeds) == 1 else f" (seed {_distinct(failed.seed)})")
        missing = len(each) < len(results.settings.seeds)
        return f"passed [{len(each)} of {len(results.settings.seeds)}]" if missing else "passed"

    return Table(
        name="checks",
        caption="Checks of the exported models against their runs.",
        header=("Check", *interfaces),
        rows=tuple((name, *(outcome(name, interface) for interface in interfaces)) for name in names),
        records=(),
        notes=(f"{GAP}: the check does not apply to that interface, or has not run.",),
        sources=tuple(tables.pattern(results, rows.path) for _ in names),
    )


def details(results: Results) -> Table:
    """What each check says it found."""
    return Table.of(
        results.checks.to_dict("records"),
        {
            "Model": lambda row: model_name(row["interface"], row["seed"]),
            "Check": lambda row: row["name"],
            "Outcome": lambda row: "passed" if row["passed"] else "FAILED",
            "Detail": lambda row: render.clean(row["detail"]),
        },
        name="details",
        caption="What each check found.",
    )


def models(results: Results) -> Table:
    """Where and how long each model was trained, and what identifies it."""

    def of(final: Final | None, key: str) -> Any:
        return getattr(final, key, None)

    return Table.of(
        [{"model": model_name(*model), "final": results.finals.get(model)} for model in results.models()],
        {
            "Model": lambda row: row["model"],
            "Training time": lambda row: duration(of(row["final"], "wall_s")),
            "Energy": lambda row: energy(of(row["final"], "energy_j")),
            "Hardware": lambda row: plain(of(row["final"], "hardware")),
        }
        | {
            title: lambda row, key=key: str(of(row["final"], key) or GAP)[:SHORT_HASH]
            for title, key in (("Weights", "model_sha256"), ("Run settings", "run_sha256"), ("Code", "code"))
        },
        source=lambda row: f"runs/{row['model']}/final.json" if row["final"] else "",
        name="models",
        caption=f"Trained models. Hashes are cut. Energy: of the GPUs, by their counters; {GAP}: not measured.",
    )


def evaluations(results: Results) -> Table:
    """How each benchmark was scored, over all models."""
    rows, sources = [], []
    for task in results.settings.evaluate.tasks:
        scored = results.evaluations
        scored = scored[(scored.task == task.name) & (scored.shots == task.shots)]
        rows.append(
            (
                results.label(task),
                *(
                    _distinct(scored[column]) if len(scored) else GAP
                    for column in ("task_version", "n", "data", "truncated", "harness", "engine")
                ),
                duration(float(scored.wall_s.fillna(0).sum()) if len(scored) else None),
            )
        )
        sources.append(tables.pattern(results, scored.path))
    return Table(
        name="evaluations",
        caption="Scoring. Time is summed over models; truncated: documents whose context was cut to fit.",
        header=("Benchmark", "Version", "n", "Data", "Truncated", "Harness", "Engine", "Time"),
        rows=tuple(rows),
        records=(),
        sources=tuple(sources),
    )


def _distinct(values: Any) -> str:
    return ", ".join(dict.fromkeys(plain(value) for value in values))


def plain(value: Any) -> str:
    """A value of a result file in words."""
    if value is None or value != value:
        return GAP
    if isinstance(value, dict):
        return ", ".join(f"{key.replace('_', ' ')} {plain(inner)}" for key, inner in value.items()) or GAP
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return render.clean(str(value))


def energy(joules: float | None) -> str:
    """1.25 kWh; below one, 12.5 Wh."""
    if joules is None:
        return GAP
    hours = joules / 3600
    return f"{hours / 1000:,.2f}\u00a0kWh" if hours >= 1000 else f"{hours:.1f}\u00a0Wh"


def duration(seconds: float | None) -> str:
    """12.3 s, 4 min 10 s, 3 h 20 min, 5 d 2 h."""
    if seconds is None:
        return GAP
    if seconds < 60:
        return f"{seconds:.1f}\u00a0s"
    whole = round(seconds)
    for size, name, smaller, inner in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size}\u00a0{name} {whole % size // smaller}\u00a0{inner}"
    raise AssertionError("a minute and more is covered above")


# ------------------------------------------------------------------- figures

ENLARGED = 1.4  # a figure may be shown so much larger than in print


def captions(results: Results) -> dict[str, tuple[str, str, str]]:
    """Title, caption and origin of each figure."""
    settings = results.settings
    several = len(settings.seeds) > 1
    scores = "Benchmark scores: mark and 95 % interval (1.96 standard errors over documents); dashed: chance."
    losses = "Loss by step: marks are the held-out loss; thin lines, with few interfaces, the training loss, smoothed."
    if several:
        scores += " Marks are means over seeds, ticks the seeds, intervals of the mean standard error."
        losses += " Means over seeds; bands: range of the held-out loss."
    losses += " Middle: the end of the run, larger. Right: the final losses, the least on top."
    if paper.comparable(results)[0]:
        scores += " Hollow diamonds: the paper's published results."
    bars = "Trainable parameters by interface; beside each bar the total and the difference to the learned table."
    gaps = (
        f"Accuracy minus that of {results.baseline()} on the same documents, with 95 % intervals. "
        "Filled: beyond chance after Holm's correction; hollow: not. All panels have one axis; an interval that is "
        "longer ends in an arrow."
    )
    corpus = (
        "Lengths of the encoded documents (dashed: the least that is kept); what became of all documents; "
        "tokens kept by shard."
    )
    return {
        "accounting": ("Figure 1", bars, "params.json"),
        "benchmarks": ("Figure 2", scores, "eval/"),
        "differences": ("Figure 3", gaps, "eval/*/*.parquet"),
        "loss": ("Figure 4", losses, "runs/*/metrics.jsonl"),
        "data": ("Figure 5", corpus, STORE),
    }


def pictures(results: Results) -> dict[str, dict[str, Any]]:
    """The drawn figures as data URIs, with their text alternatives and natural sizes in CSS pixels."""
    alternatives = findings.alternatives(results)
    shown = {}
    for name, (title, caption, origin) in captions(results).items():
        path = results.root / "figures" / f"{name}.svg"
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; run `tokencodes figures` first") from None
        size = re.search(rb'<svg [^>]*?width="([\d.]+)pt" height="([\d.]+)pt"', content)
        if size is None:
            raise UserError(f"{path}: not a figure of this project; run `tokencodes figures` again")
        width, height = (round(float(size[side]) * PX_PER_PT) for side in (1, 2))
        shown[name] = {
            "title": title,
            "caption": caption,
            "origin": origin,
            "alternative": alternatives[name],
            "source": "data:image/svg+xml;base64," + base64.b64encode(content).decode(),
            "width": width,
            "height": height,
            "largest": round(ENLARGED * width),
        }
    return shown


# ---------------------------------------------------------------- provenance


def versions(results: Results) -> str:
    """Versions of the packages that made the models; where models differ, all of them."""
    versions: dict[str, dict[str, None]] = {}
    for final in results.finals.values():
        for package, version in final.versions.items():
            versions.setdefault(package, {})[version] = None
    return ", ".join(f"{package} {' and '.join(seen)}" for package, seen in sorted(versions.items()))


def hashes(results: Results) -> list[tuple[str, str]]:
    """What identifies the data that all models share."""
    store = results.store or {}
    names = [("store manifest", results.files.get(STORE))]
    names += [("tokenizer", store.get("tokenizer_sha256")), ("data settings", store.get("data_sha256"))]
    return [(name, value or GAP) for name, value in names]


# --------------------------------------------------------------------- rerun


def commands(results: Results) -> list[tuple[str, list[str]]]:
    """Command lines, by part, that make each part of this run again: rerun.txt, with each value quoted for a shell."""
    settings = results.settings
    interface, seed = results.models()[0]
    text = jinja2.Environment(  # noqa: S701  no HTML
        undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=lambda value: shlex.quote(str(value))
    )
    shown = text.from_string(_template("rerun.txt")).render(
        layout=Layout(f"{settings.results}/{settings.name}"),
        interface=interface,
        fixed=is_fixed(settings.interfaces[interface]),
        model=model_name(interface, seed),
        last=model_name(*results.models()[-1]),
        shard=((results.store or {}).get("shards") or [{"name": "SHARD"}])[0]["name"],
        tasks=settings.evaluate.tasks[:1],
    )
    _, *parts = re.split(r"^# (.*)\n", shown, flags=re.MULTILINE)
    return [(title, lines.splitlines()) for title, lines in zip(parts[::2], parts[1::2], strict=True)]


def _template(name: str) -> str:
    return resources.files("tokencodes.report").joinpath(name).read_text(encoding="utf-8")
