"""Tables of a run from its stored results: what `tokencodes tables` writes to results/<name>/tables/.

accounting (the paper's Table 1), results (its Table 2: ours beside the paper's, each in its own columns), what
differences between interfaces are worth (differences, paper, power, losses), training, data (in total and by shard) and
lengths (of documents), each as CSV (full precision), Markdown and LaTeX;
results_by_seed.csv with a row a model; summary.txt for a terminal.
"""

import math
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from tokencodes.config import Config
from tokencodes.evaluate.catalogue import letters_note
from tokencodes.evaluate.spec import Task
from tokencodes.files import write_text
from tokencodes.layout import model_name
from tokencodes.report import differences, findings, render
from tokencodes.report.render import GAP, Table
from tokencodes.report.results import PARAMETERS, REFERENCE, Published, Results, paper_count, published, read

NAMES = ("accounting", "results", "differences", "paper", "power", "losses", "training", "data", "lengths")
FORMATS: dict[str, Callable[[Table], str]] = {
    "csv": render.to_csv,
    "md": render.to_markdown,
    "tex": render.to_latex,
}
SUMMARY_WIDTH = 100  # columns of summary.txt


def write(settings: Config, results_dir: Path | str) -> None:
    """Write every table below `results_dir`/tables/. Raises UserError naming a damaged result file."""
    results = read(settings, results_dir, with_curves=False)
    folder = Path(results_dir) / "tables"
    for table in all_tables(results).values():
        for suffix, notation in FORMATS.items():
            write_text(folder / f"{table.name}.{suffix}", notation(table))
    write_text(folder / "results_by_seed.csv", render.to_csv(by_seed(results)))
    write_text(folder / "summary.txt", summary(results))


def all_tables(results: Results) -> dict[str, Table]:
    """The tables by name."""
    return {
        "accounting": accounting(results),
        "results": comparison(results),
        "differences": differences.differences(results),
        "paper": differences.against_paper(results),
        "power": differences.power(results),
        "losses": differences.losses(results),
        "training": training(results),
        "data": data(results),
        "lengths": lengths(results),
    }


# ---------------------------------------------------------------- accounting


def accounting(results: Results) -> Table:
    """Table 1: parameters by part, stored values, and the difference to the baseline."""
    counts = {row["interface"]: row for row in results.params.to_dict("records")}
    baseline = results.baseline()
    whole = counts[baseline]["trainable"] if baseline in counts else None
    rows, records, sources = [], [], []
    for interface in results.settings.interfaces:
        row = counts.get(interface)
        model = results.paper_model(interface)
        difference = row["trainable"] - whole if row and whole is not None else None
        percent = 100 * difference / whole if difference is not None else None
        rows.append(
            (
                interface,
                *(render.count(row[part] if row else None) for part in PARAMETERS),
                render.signed(difference),
                GAP if percent is None else f"{render.decimal(percent, 2)} %",
            )
        )
        records.append(
            {"interface": interface}
            | {part: row[part] if row else None for part in PARAMETERS}
            | {"difference": difference, "difference_percent": percent, "paper: model": model}
            | {f"paper: {part}": paper_count(model, part) for part in PARAMETERS}
        )
        sources.append("params.json" if row else "")
    totals = {model: paper_count(model, "trainable") for model in _paper_models(results)}
    paper = "; ".join(f"{model} {total:,}" for model, total in totals.items() if total is not None)
    notes = ["Stored values are buffers (the code book of a fixed interface): kept with the model, never trained."]
    if paper:
        notes.append(f"Trainable parameters of the paper's models, at its size: {paper}.")
    return Table(
        name="accounting",
        caption="Parameters by interface: trainable, and of these input, head and backbone; values stored untrained.",
        header=(
            "Interface",
            "Trainable",
            "Input",
            "Head",
            "Backbone",
            "Stored values",
            f"Against {baseline}",
            "In percent",
        ),
        rows=tuple(rows),
        records=tuple(records),
        notes=tuple(notes),
        sources=tuple(sources),
    )


def _paper_models(results: Results) -> list[str]:
    """The paper's models that the config names, in the order of its interfaces."""
    named = (results.paper_model(interface) for interface in results.settings.interfaces)
    return list(dict.fromkeys(model for model in named if model))


# ------------------------------------------------------------------- results


def comparison(results: Results, *, brief: bool = False) -> Table:
    """Table 2: each metric by interface, its baseline, and the paper's figure in columns of its own.

    `brief`: only the metric of each benchmark that the paper reports.
    """
    interfaces, models = list(results.settings.interfaces), _paper_models(results)
    rows, records, sources = [], [], []
    for task in results.settings.evaluate.tasks:
        for metric in results.metrics(task)[: 1 if brief else None]:
            scored = {name: results.score(task, metric, name) for name in interfaces}
            n = sorted({int(v) for rows_ in scored.values() for v in rows_.n})
            chances = [float(v) for rows_ in scored.values() for v in rows_.chance if not math.isnan(v)]
            printed = {model: published().get((task.name, metric, task.shots, model)) for model in models}
            rows.append(
                (
                    f"{results.label(task)}, {metric}",
                    GAP if not n else f"{n[0]:,}" if len(n) == 1 else f"{n[0]:,}–{n[-1]:,}",
                    render.metric_format(metric, chances[0], n[-1])(chances[0]) if chances else "",
                    *(_cell(results, metric, list(scored[name].itertuples())) for name in interfaces),
                    *(_printed(printed[model]) for model in models),
                )
            )
            for name in interfaces:
                records.append(_record(results, task, metric, name, list(scored[name].itertuples())))
            sources.append(pattern(results, (path for rows_ in scored.values() for path in rows_.path)))
    for title, metric, transform in LOSSES[: 1 if brief else None]:
        rows_, records_, source = _loss_row(results, title, metric, transform)
        rows.append((*rows_, *(GAP for _ in models)))
        records += records_
        sources.append(source)
    return Table(
        name="results",
        caption=(
            "Results by interface. Accuracies in percent. "
            + (
                f"Mean and range over {len(results.settings.seeds)} seeds."
                if len(results.settings.seeds) > 1
                else "± is the standard error over documents."
            )
            + (" Columns marked paper are the published results, not ours." if models else "")
        ),
        header=("Benchmark, metric", "n", "Baseline", *interfaces, *(f"paper: {model}" for model in models)),
        rows=tuple(rows),
        records=tuple(records),
        notes=tuple(_comparison_notes(results, models)),
        sources=tuple(sources),
        aside=3 + len(interfaces) if models else None,
    )


LOSSES: tuple[tuple[str, str, Callable[[float], float]], ...] = (
    ("Held-out windows, loss (nats a token)", "validation_loss", lambda loss: loss),
    ("Held-out windows, perplexity a token", "validation_perplexity", math.exp),
)


def _comparison_notes(results: Results, models: list[str]) -> list[str]:
    notes = [
        f"n: documents scored. Baseline: chance for a benchmark, a unigram model for a loss. {GAP}: no such result."
    ]
    if unigram := results.unigram():
        notes.append(
            f"Unigram model of the training split: entropy {render.decimal(unigram['unigram_entropy'], 3)}, "
            f"cross entropy on the held-out split {render.decimal(unigram['unigram_cross_entropy'], 3)} nats a token."
        )
    if models:
        notes.append(
            "Published results: Bochkov (2026), models of 1.7 billion parameters after 100 billion tokens, whole test "
            f"sets; each with its source in {REFERENCE}. {findings.comparability(results)}"
        )
    if cut := truncated(results):
        notes.append(cut)
    if letters := letters_note(task.name for task in results.settings.evaluate.tasks):
        notes.append(letters)
    return notes


def truncated(results: Results) -> str:
    """On which benchmarks contexts were cut, and in how many documents; nothing if on none."""
    said = []
    for task in results.settings.evaluate.tasks:
        rows = results.evaluations
        rows = rows[(rows.task == task.name) & (rows.shots == task.shots)]
        if len(rows) and rows.truncated.notna().any() and (most := int(rows.truncated.max())):
            said.append(f"{results.label(task)} ({most:,} of {int(rows.n.max()):,} documents)")
    return f"Contexts longer than the model's were cut from the left: {', '.join(said)}." if said else ""


def _cell(results: Results, metric: str, rows: list[Any]) -> str:
    """value +- standard error for one seed; mean (least-greatest) for several, and how many of them are there."""
    if not rows:
        return GAP
    values = [float(row.value) for row in rows]
    show = render.metric_format(metric, values[0], int(rows[0].n))
    expected = len(results.settings.seeds)
    if expected == 1:
        stderr = float(rows[0].stderr)
        return show(values[0]) if math.isnan(stderr) else f"{show(values[0])} ± {show(stderr)}"
    return _over_seeds(values, expected, show)


def _over_seeds(values: list[float], expected: int, show: Callable[[float], str]) -> str:
    mean = math.fsum(values) / len(values)
    text = show(mean)
    if len(values) > 1 and not math.isnan(mean):
        text += f" ({show(min(values))}–{show(max(values))})"
    return text if len(values) == expected else f"{text} [{len(values)} of {expected}]"


def _printed(figure: Published | None) -> str:
    if figure is None:
        return GAP
    return figure.text if figure.stderr is None else f"{figure.text} ± {figure.stderr:.2f}"


def _record(results: Results, task: Task, metric: str, interface: str, rows: list[Any]) -> dict[str, Any]:
    values = [float(row.value) for row in rows]
    model = results.paper_model(interface)
    figure = published().get((task.name, metric, task.shots, model or ""))
    chance = float(rows[0].chance) if rows and not math.isnan(rows[0].chance) else None
    return {
        "task": task.name,
        "shots": task.shots,
        "label": results.label(task),
        "metric": metric,
        "interface": interface,
        "seeds": len(rows),
        "value": math.fsum(values) / len(values) if values else None,
        "least": min(values) if values and not any(map(math.isnan, values)) else None,
        "greatest": max(values) if values and not any(map(math.isnan, values)) else None,
        "stderr": float(rows[0].stderr) if len(rows) == 1 else None,
        "n": int(rows[0].n) if rows else None,
        "baseline": chance,
        "baseline_kind": "chance" if chance is not None else None,
        "unit": "fraction" if render.is_proportion(metric) else metric,
        "paper: model": model if figure else None,
        "paper: value": figure.value if figure else None,
        "paper: stderr": figure.stderr if figure else None,
        "paper: unit": figure.unit if figure else None,
        "paper: note": figure.note or None if figure else None,
        "files": pattern(results, (row.path for row in rows)) or None,
    }


def _loss_row(
    results: Results, title: str, metric: str, transform: Callable[[float], float]
) -> tuple[tuple[str, ...], list[dict[str, Any]], str]:
    line = results.unigram().get("unigram_cross_entropy")
    baseline = None if line is None else transform(line)
    expected = len(results.settings.seeds)
    cells, records, paths = [], [], []
    for interface in results.settings.interfaces:
        runs = results.runs[results.runs.interface == interface]
        values = [transform(float(loss)) for loss in runs.val_loss]
        cells.append(_over_seeds(values, expected, render.metric_format(metric, values[0], 0)) if values else GAP)
        paths += list(runs.path)
        records.append(
            {
                "task": metric,
                "label": title,
                "metric": metric,
                "interface": interface,
                "seeds": len(values),
                "value": math.fsum(values) / len(values) if values else None,
                "least": min(values) if values and not any(map(math.isnan, values)) else None,
                "greatest": max(values) if values and not any(map(math.isnan, values)) else None,
                "baseline": baseline,
                "baseline_kind": "unigram cross entropy" if baseline is not None else None,
                "unit": "nats a token" if metric == "validation_loss" else "perplexity a token",
                "files": pattern(results, runs.path) or None,
            }
        )
    shown = GAP if baseline is None else render.metric_format(metric, baseline, 0)(baseline)
    return (title, "", shown, *cells), records, pattern(results, paths)


def by_seed(results: Results) -> Table:
    """Every score of every model, a row each, with its file; an expected one that is missing is a row without value."""
    records = []
    for task in results.settings.evaluate.tasks:
        for metric in results.metrics(task):
            scored = {
                (interface, row["seed"]): row
                for interface in results.settings.interfaces
                for row in results.score(task, metric, interface).to_dict("records")
            }
            for interface, seed in results.models():
                row = scored.get((interface, seed), {})
                chance = row.get("chance")
                records.append(
                    {"task": task.name, "shots": task.shots, "label": results.label(task), "metric": metric}
                    | {"interface": interface, "seed": seed, "value": row.get("value"), "stderr": row.get("stderr")}
                    | {"chance": None if chance is None or math.isnan(chance) else chance, "n": row.get("n")}
                    | {"higher_is_better": row.get("higher_is_better"), "file": row.get("path")}
                )
    return Table(name="results_by_seed", caption="", header=(), rows=(), records=tuple(records))


def pattern(results: Results, paths: Iterable[str]) -> str:
    """Paths that differ in the model alone as one: eval/{learned,gf2}-s{0,1}/piqa-0shot.json; a * stands for all."""
    paths = list(dict.fromkeys(paths))
    if len(paths) < 2:
        return paths[0] if paths else ""
    split = [path.split("/") for path in paths]
    differing = [level for level in range(len(split[0])) if len({tuple(p)[level] for p in split}) > 1]
    assert len(differing) == 1, "paths of one row differ in one folder"
    level = differing[0]
    ends = "." + split[0][level].rsplit(".", 1)[1] if level == len(split[0]) - 1 else ""
    models = [p[level].removesuffix(ends).rsplit("-s", 1) for p in split]
    interfaces = list(dict.fromkeys(interface for interface, _ in models))
    seeds = list(dict.fromkeys(seed for _, seed in models))
    if len(interfaces) * len(seeds) == len(models):
        every = interfaces == list(results.settings.interfaces) and len(interfaces) > 1
        all_seeds = seeds == [str(seed) for seed in results.settings.seeds] and len(seeds) > 1
        names = [("*" if every else _braces(interfaces)) + "-s" + ("*" if all_seeds else _braces(seeds))]
    else:
        names = [_braces([f"{interface}-s{seed}" for interface, seed in models])]
    return "/".join([*split[0][:level], names[0] + ends, *split[0][level + 1 :]])


def _braces(names: list[str]) -> str:
    return names[0] if len(names) == 1 else "{" + ",".join(names) + "}"


# ------------------------------------------------------------ data, training


def data(results: Results, *, timed: bool = False) -> Table:
    """What came in and what was kept: documents by fate, tokens, the split; in total, then a row a shard.

    `timed`: the pace of preparing them too. It is no part of the files, which are the same for the same data.
    """
    store = results.store if results.store is not None else {"dropped": {}, "shards": []}
    reasons = {reason: f"dropped: {reason}" for reason in store["dropped"]}
    names = [shard["name"] for shard in store["shards"]]
    records, paces = [], []
    for name, entry, of in [("total", store, names), *((s["name"], s, [s["name"]]) for s in store["shards"])]:
        timings = [results.timings[shard] for shard in of if shard in results.timings]
        whole = len(timings) == len(of) > 0  # a part would pass for the whole
        record = {"shard": name, "rows_in": entry.get("rows_in"), "kept": entry.get("kept")}
        record |= {key: entry.get("dropped", {}).get(reason) for reason, key in reasons.items()}
        record["tokens"] = entry.get("tokens")
        for part in ("train", "validation"):
            record |= {f"{part}_{what}": entry.get(part, {}).get(what) for what in ("documents", "tokens")}
        record |= {key: entry.get(key) for key in ("characters", "bytes")}
        record |= {key: sum(int(t[key]) for t in timings) if whole else None for key in ENCODED}
        records.append(record)
        paces.append(_pace(timings))
    shown_reasons = [reason for reason, n in store["dropped"].items() if n]
    shown = ("rows_in", "kept", *(reasons[reason] for reason in shown_reasons), "encoded_tokens", "tokens", *SPLIT)
    rows = [
        (record["shard"], *(render.count(record[key]) for key in shown), *(pace if timed else ()))
        for record, pace in zip(records, paces, strict=True)
    ]
    notes = [
        f"A document is kept from {results.settings.data.min_tokens:,} tokens on; held out by a seeded hash of its "
        f"id, {results.settings.data.split.threshold * 100:g} % of them. Tokens encoded: of documents kept and of "
        "those with too few tokens; others are dropped before."
    ]
    if timed:
        notes.append(
            "The pace is that of the jobs that prepared the shards, reading and writing included: tokens encoded by "
            "their wall time, bytes of text encoded by their CPU time (timing.json beside each shard)."
        )
        if names and len(results.timings) < len(names):
            notes[-1] += f" {len(results.timings)} of {len(names)} shards have a record of it."
    return Table(
        name="data",
        caption=(
            "Data: documents in, kept and dropped by reason; tokens encoded and kept; and the split; "
            f"{len(names) or 'no'} shards."
        ),
        header=(
            *("Shard", "Documents in", "Kept"),
            *(f"Dropped: {reason.replace('_', ' ')}" for reason in shown_reasons),
            *("Tokens encoded", "Tokens kept"),
            *("Train documents", "Train tokens", "Held-out documents", "Held-out tokens"),
            *(("Tokens a second", "MB a CPU second") if timed else ()),
        ),
        rows=tuple(rows),
        records=tuple(records),
        notes=tuple(notes),
        sources=("data/store/manifest.json" if results.store is not None else "",) * len(rows),
    )


SPLIT = ("train_documents", "train_tokens", "validation_documents", "validation_tokens")
ENCODED = ("encoded_bytes", "encoded_tokens")


def _pace(timings: list[dict[str, float]]) -> tuple[str, str]:
    """Tokens a second of a job, and megabytes of text a CPU second; over those jobs that have a record."""
    n_bytes, tokens, wall, cpu = (math.fsum(t[key] for t in timings) for key in (*ENCODED, "wall_s", "cpu_s"))
    return (
        render.decimal(tokens / wall if wall else None, 0),
        render.decimal(n_bytes / 1e6 / cpu if cpu else None, 2),
    )


def lengths(results: Results) -> Table:
    """How long documents are: those kept and those dropped for too few tokens, by number of tokens."""
    found = results.store["lengths"] if results.store is not None else None
    records = [
        {"from_tokens": low, "below_tokens": high, "kept": kept, "too_few_tokens": short}
        for low, high, kept, short in results.bins()
    ]
    whole = sum(record["kept"] for record in records)
    rows = [
        (
            f"{record['from_tokens']:,}–{record['below_tokens'] - 1:,}",
            render.count(record["too_few_tokens"]),
            render.count(record["kept"]),
            f"{render.decimal(100 * record['kept'] / whole, 2)} %" if whole else GAP,
        )
        for record in records
    ]
    return Table(
        name="lengths",
        caption="Lengths of the documents that were encoded.",
        header=("Tokens", "Dropped: too few tokens", "Kept", "Of those kept"),
        rows=tuple(rows) or ((GAP,) * 4,),
        records=tuple(records),
        notes=(f"Kept from {results.settings.data.min_tokens:,} tokens on.",),
        sources=("data/store/manifest.json" if found else "",) * max(len(rows), 1),
    )


def training(results: Results) -> Table:
    """Where each run ended, and whether it ended below the unigram lines."""
    rows, records, sources = [], [], []
    finals = {(row["interface"], row["seed"]): row for row in results.runs.to_dict("records")}
    for interface, seed in results.models():
        run = finals.get((interface, seed))
        below = None if run is None else findings.below_unigram(run)
        losses = [None if run is None else run[key] for key in _LOSS_COLUMNS]
        rows.append(
            (
                model_name(interface, seed),
                render.count(run["step"] if run else None),
                render.count(int(run["tokens"]) if run else None),
                *(render.decimal(loss, 3) for loss in losses),
                GAP if below is None else "yes" if below else "no",
            )
        )
        records.append(
            {"interface": interface, "seed": seed}
            | {"steps": run["step"] if run else None, "tokens": int(run["tokens"]) if run else None}
            | dict(zip(_LOSS_COLUMNS, losses, strict=True))
            | {"below_unigram": below, "file": run["path"] if run else None}
        )
        sources.append(run["path"] if run else "")
    return Table(
        name="training",
        caption="Training: where each run ended; losses in nats a token.",
        header=(
            "Model",
            "Steps",
            "Tokens",
            "Train loss",
            "Held-out loss",
            "Unigram entropy",
            "Unigram cross entropy",
            "Below both",
        ),
        rows=tuple(rows),
        records=tuple(records),
        notes=(
            f"Train loss: mean over the last {results.settings.train.validate_every} steps. Unigram entropy: of the "
            "training split's token frequencies; cross entropy: of that model on the held-out split.",
        ),
        sources=tuple(sources),
    )


_LOSS_COLUMNS = ("train_loss", "val_loss", "unigram_entropy", "unigram_cross_entropy")


# ------------------------------------------------------------------- summary


def summary(results: Results) -> str:
    """The run on one screen: findings, Table 1, Table 2, and whether the checks passed; at most 100 columns."""
    settings = results.settings
    seeds = ", ".join(map(str, settings.seeds))
    blocks = [
        f"Token Codes: run {settings.name}, {len(settings.interfaces)} interfaces; "
        f"{'seed' if len(settings.seeds) == 1 else 'seeds'} {seeds}.",
        *findings.sentences(results),
    ]
    tables = (accounting(results), comparison(results, brief=True))
    text = ["\n".join(textwrap.wrap(block, SUMMARY_WIDTH)) for block in blocks]
    text += [render.to_text(table, SUMMARY_WIDTH).rstrip() for table in tables]
    text += ["\n".join(textwrap.wrap(note, SUMMARY_WIDTH)) for note in tables[1].notes[-1:]]
    text.append("\n".join(textwrap.wrap(findings.checks(results), SUMMARY_WIDTH)))
    return "\n\n".join(text) + "\n"
