"""Tables of a run from its stored results: what `tokencodes tables` writes to results/<name>/tables/.

accounting (the paper's Table 1), results (its Table 2: ours beside the paper's, each in its own columns), what
differences between interfaces are worth (differences, paper, power, losses), training, data (in total and by shard) and
lengths (of documents), each as CSV (full precision), Markdown and LaTeX; results_by_seed.csv with one row per model;
summary.txt for a terminal.
"""

import math
import textwrap
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from tokencodes.config import Config
from tokencodes.evaluate.catalogue import letters_note
from tokencodes.evaluate.spec import Task
from tokencodes.files import write_text
from tokencodes.layout import model_name, parse_model_name
from tokencodes.report import differences, findings, paper, render
from tokencodes.report.published import REFERENCE, paper_count
from tokencodes.report.render import GAP, Record, Table
from tokencodes.report.results import ENDS, MEASURED, PARAMETERS, STORE, Results, read

SUMMARY_WIDTH = 100  # columns of summary.txt


def write(settings: Config, results_dir: Path | str) -> None:
    """Write every table below `results_dir`/tables/. Raises UserError naming a damaged result file."""
    results = read(settings, results_dir, with_curves=False)
    folder = Path(results_dir) / "tables"
    for name, table in TABLES.items():
        made = table(results)
        for suffix, notation in render.FILES.items():
            write_text(folder / f"{name}.{suffix}", notation(made))
    write_text(folder / "results_by_seed.csv", render.to_csv(by_seed(results)))
    write_text(folder / "summary.txt", summary(results))


# ---------------------------------------------------------------- accounting


def accounting(results: Results) -> Table:
    """Table 1: parameters by part, stored values, and the difference to the baseline."""
    counts = {row["interface"]: row for row in results.params.to_dict("records")}
    baseline, nothing = results.baseline(), dict.fromkeys(PARAMETERS)
    whole = counts.get(baseline, nothing)["trainable"]
    rows = []
    for interface in results.settings.interfaces:
        row = nothing | counts.get(interface, {}) | {"interface": interface, "difference": None}
        if row["trainable"] is not None and whole is not None:
            row["difference"] = row["trainable"] - whole
        row["difference_percent"] = None if row["difference"] is None else 100 * row["difference"] / whole
        row["paper: model"] = model = results.paper_model(interface)
        rows.append(row | {f"paper: {part}": paper_count(model, part) for part in PARAMETERS})
    totals = {model: paper_count(model, "trainable") for model in _paper_models(results)}
    published = "; ".join(f"{model} {total:,}" for model, total in totals.items() if total is not None)
    notes = ["Stored values are buffers (the code book of a fixed interface): kept with the model, never trained."]
    if published:
        notes.append(f"Trainable parameters of the paper's models, at its size: {published}.")

    def percent(row: Record) -> str:
        share = row["difference_percent"]
        return GAP if share is None else f"{render.decimal(share, 2)} %"

    titles = ("Trainable", "Input", "Head", "Backbone", "Stored values")
    return Table.of(
        rows,
        {"Interface": lambda row: row["interface"]}
        | {title: partial(_count, key=part) for title, part in zip(titles, PARAMETERS, strict=True)}
        | {f"Against {baseline}": lambda row: render.signed(row["difference"]), "In percent": percent},
        (
            *("interface", *PARAMETERS, "difference", "difference_percent", "paper: model"),
            *(f"paper: {part}" for part in PARAMETERS),
        ),
        source=lambda row: "" if row["trainable"] is None else "params.json",
        name="accounting",
        caption="Parameters by interface: trainable, and of these input, head and backbone; values stored untrained.",
        notes=tuple(notes),
    )


def _count(row: Record, key: str) -> str:
    return render.count(row[key])


def _paper_models(results: Results) -> list[str]:
    """The paper's models that the config names, in the order of its interfaces."""
    named = (results.paper_model(interface) for interface in results.settings.interfaces)
    return list(dict.fromkeys(model for model in named if model))


# ------------------------------------------------------------------- results

LOSSES: tuple[tuple[str, str, str, Callable[[float], float]], ...] = (
    ("Held-out windows, loss (nats per token)", "validation_loss", "nats per token", lambda loss: loss),
    ("Held-out windows, perplexity per token", "validation_perplexity", "perplexity per token", math.exp),
)
RESULT_FIELDS = (
    *("task", "shots", "label", "metric", "interface", "seeds", "value", "least", "greatest", "stderr", "n"),
    *("baseline", "baseline_kind", "unit", "paper: model", "paper: value", "paper: stderr", "paper: unit"),
    *("paper: note", "files"),
)


def comparison(results: Results, *, brief: bool = False) -> Table:
    """Table 2: each metric by interface, its baseline, and the paper's figure in columns of its own.

    `brief`: only the metric of each benchmark that the paper reports.
    """
    interfaces, models = list(results.settings.interfaces), _paper_models(results)
    seeds = len(results.settings.seeds)
    rows, records, sources = [], [], []

    def add(title: str, n: str, baseline: str, group: list[Record]) -> None:
        printed = {row["paper: model"]: row["printed"] for row in group}
        rows.append((title, n, baseline, *(_cell(row, seeds) for row in group), *(printed.get(m, GAP) for m in models)))
        records.extend({field: row.get(field) for field in RESULT_FIELDS} for row in group)
        sources.append(pattern(results, (path for row in group for path in row["paths"])))

    for task in results.settings.evaluate.tasks:
        for metric in results.metrics(task)[: 1 if brief else None]:
            group = [_score(results, task, metric, name) for name in interfaces]
            n = sorted(n for row in group for n in row["all n"])
            chance = next((row["baseline"] for row in group if row["baseline"] is not None), None)
            shown = "" if chance is None else render.score_format(metric, n[-1], chance)(chance)
            add(f"{results.label(task)}, {metric}", render.span(n), shown, group)
    for title, metric, unit, transform in LOSSES[: 1 if brief else None]:
        group = [_loss(results, (title, metric, unit), transform, name) for name in interfaces]
        baseline = group[0]["baseline"]
        shown = GAP if baseline is None else render.score_format(metric, 0, baseline)(baseline)
        add(title, "", shown, group)
    spread = f"Mean and range over {seeds} seeds." if seeds > 1 else "± is the standard error over documents."
    return Table(
        name="results",
        caption=(
            f"Results by interface. Accuracies in percent. {spread}"
            + (" Columns marked paper are the published results, not ours." if models else "")
        ),
        header=("Benchmark, metric", "n", "Baseline", *interfaces, *(f"paper: {model}" for model in models)),
        rows=tuple(rows),
        records=tuple(records),
        notes=tuple(_comparison_notes(results, models)),
        sources=tuple(sources),
        aside=3 + len(interfaces) if models else None,
    )


def _comparison_notes(results: Results, models: list[str]) -> list[str]:
    notes = [
        f"n: documents scored. Baseline: chance for a benchmark, a unigram model for a loss. {GAP}: no such result."
    ]
    if unigram := results.unigram():
        notes.append(
            f"Unigram model of the training split: entropy {render.decimal(unigram['unigram_entropy'], 3)}, "
            f"cross entropy on the held-out split {render.decimal(unigram['unigram_cross_entropy'], 3)} nats per token."
        )
    if models:
        notes.append(
            "Published results: Bochkov (2026), models of 1.7 billion parameters after 100 billion tokens, whole test "
            f"sets; each with its source in {REFERENCE}. {findings.comparability(results)}"
        )
    letters = letters_note(task.name for task in results.settings.evaluate.tasks)
    return [*notes, *(note for note in (truncated(results), letters) if note)]


def truncated(results: Results) -> str:
    """On which benchmarks contexts were cut, and in how many documents; nothing if on none."""
    cut = []
    for task in results.settings.evaluate.tasks:
        rows = results.evaluations
        rows = rows[(rows.task == task.name) & (rows.shots == task.shots)]
        if len(rows) and (most := int(rows.truncated.max())):
            cut.append(f"{results.label(task)} ({most:,} of {int(rows.n.max()):,} documents)")
    return f"Contexts longer than the model's were cut from the left: {', '.join(cut)}." if cut else ""


def _cell(row: Record, expected: int) -> str:
    """value ± standard error for one seed; mean (least–greatest) for several, and how many of them have a result."""
    values = row["values"]
    if not values:
        return GAP
    show = render.score_format(row["metric"], row["n"] or 0, values[0])
    text = show(row["value"])
    if expected == 1:
        stderr = row.get("stderr")
        return text if stderr is None or math.isnan(stderr) else f"{text} ± {show(stderr)}"
    if len(values) > 1 and not math.isnan(row["value"]):
        text += f" ({show(min(values))}–{show(max(values))})"
    return text if len(values) == expected else f"{text} [{len(values)} of {expected}]"


def _over_seeds(values: list[float]) -> Record:
    """Mean and range of the values of one interface; None if there are none, and no range if one is NaN."""
    known = bool(values) and not any(map(math.isnan, values))
    least, greatest = (min(values), max(values)) if known else (None, None)
    return {"seeds": len(values), "value": render.mean(values), "values": values, "least": least, "greatest": greatest}


def _score(results: Results, task: Task, metric: str, interface: str) -> Record:
    """One metric of one interface: the fields of results.csv, and what the table shows of it."""
    scores, figure = results.score(task, metric, interface), paper.figure(results, task, metric, interface)
    chances = scores.chance.dropna()
    row = _over_seeds([float(value) for value in scores.value])
    row |= {"task": task.name, "shots": task.shots, "label": results.label(task), "metric": metric}
    row |= {"interface": interface, "stderr": float(scores.stderr.iloc[0]) if len(scores) == 1 else None}
    row |= {"n": int(scores.n.iloc[0]) if len(scores) else None, "unit": metric, "files": None}
    row |= {"baseline": float(chances.iloc[0]), "baseline_kind": "chance"} if len(chances) else {"baseline": None}
    if render.is_proportion(metric):
        row["unit"] = "fraction"
    if figure:
        row |= {"paper: model": results.paper_model(interface), "paper: value": figure.value, "printed": figure.shown}
        row |= {"paper: stderr": figure.stderr, "paper: unit": figure.unit, "paper: note": figure.note or None}
    paths = list(scores.path)
    row |= {"files": pattern(results, paths) or None, "paths": paths, "all n": list(map(int, scores.n))}
    return {"paper: model": None, "printed": GAP} | row


def _loss(results: Results, names: tuple[str, str, str], transform: Callable[[float], float], interface: str) -> Record:
    """The held-out loss of one interface, transformed: what `_score` has of a metric. `names`: title, metric, unit."""
    paths, lines = list(results.runs[results.runs.interface == interface].path), results.unigram()
    row = _over_seeds([transform(loss) for loss in results.losses(interface)])
    row |= {
        "task": names[1],
        "label": names[0],
        "metric": names[1],
        "interface": interface,
        "unit": names[2],
        "n": None,
    }
    row |= {"baseline": transform(lines["unigram_cross_entropy"]) if lines else None}
    row |= {"baseline_kind": "unigram cross entropy" if lines else None, "paper: model": None, "printed": GAP}
    return row | {"files": pattern(results, paths) or None, "paths": paths}


def by_seed(results: Results) -> Table:
    """Every score of every model, one row each, with its file; an expected one that is missing has no value."""
    keys = ("task", "shots", "metric", "interface", "seed")
    scores = {tuple(row[key] for key in keys): row for row in results.scores.to_dict("records")}
    rows = []
    for task in results.settings.evaluate.tasks:
        for metric in results.metrics(task):
            for interface, seed in results.models():
                key = (task.name, task.shots, metric, interface, seed)
                row = dict(zip(keys, key, strict=True)) | scores.get(key, {}) | {"label": results.label(task)}
                chance = row.get("chance")
                rows.append(row | {"chance": None if chance is None or math.isnan(chance) else chance})
    fields = ("task", "shots", "label", *keys[2:], *MEASURED, "n", "higher_is_better", "path")
    records = tuple({"file" if field == "path" else field: row.get(field) for field in fields} for row in rows)
    return Table(name="results_by_seed", caption="", header=(), rows=(), records=records)


def pattern(results: Results, paths: Iterable[str]) -> str:
    """Paths that differ in the model alone as one: eval/{learned,gf2}-s{0,1}/piqa-0shot.json; a * stands for all."""
    paths = list(dict.fromkeys(paths))
    if len(paths) < 2:
        return paths[0] if paths else ""
    split = [path.split("/") for path in paths]
    (level,) = [level for level in range(len(split[0])) if len({tuple(p)[level] for p in split}) > 1]
    ends = Path(split[0][level]).suffix if level == len(split[0]) - 1 else ""
    models = [parse_model_name(p[level].removesuffix(ends)) for p in split]
    interfaces, seeds = (list(dict.fromkeys(part)) for part in zip(*models, strict=True))
    if len(interfaces) * len(seeds) == len(models):
        every = interfaces == list(results.settings.interfaces) and len(interfaces) > 1
        all_seeds = seeds == results.settings.seeds and len(seeds) > 1
        name = model_name("*" if every else _braces(interfaces), "*" if all_seeds else _braces(list(map(str, seeds))))
    else:
        name = _braces([model_name(*model) for model in models])
    return "/".join([*split[0][:level], name + ends, *split[0][level + 1 :]])


def _braces(names: list[str]) -> str:
    return names[0] if len(names) == 1 else "{" + ",".join(names) + "}"


# ------------------------------------------------------------ data, training

SPLIT = ("train_documents", "train_tokens", "validation_documents", "validation_tokens")
ENCODED = ("encoded_bytes", "encoded_tokens")


def data(results: Results, *, timed: bool = False) -> Table:
    """What came in and what was kept: documents by fate, tokens, the split; in total, then one row per shard.

    `timed`: the pace of preparing them too. It is no part of the files, which are the same for the same data.
    """
    store = results.store if results.store is not None else {"dropped": {}, "shards": []}
    names = [shard["name"] for shard in store["shards"]]
    reasons = {reason: f"dropped: {reason}" for reason in store["dropped"]}
    rows = [_data_row(results, {**store, "name": "total"}, names)]
    rows += [_data_row(results, shard, [shard["name"]]) for shard in store["shards"]]
    columns = {"Shard": "shard", "Documents in": "rows_in", "Kept": "kept"}
    columns |= {f"Dropped: {reason.replace('_', ' ')}": reasons[reason] for reason, n in store["dropped"].items() if n}
    columns |= {"Tokens encoded": "encoded_tokens", "Tokens kept": "tokens"}
    columns |= dict(
        zip(("Train documents", "Train tokens", "Held-out documents", "Held-out tokens"), SPLIT, strict=True)
    )
    shows = {title: partial(_count, key=key) for title, key in columns.items()} | {"Shard": lambda row: row["shard"]}
    notes = [
        f"A document is kept from {results.settings.data.min_tokens:,} tokens on; held out by a seeded hash of its "
        f"id, {results.settings.data.split.threshold * 100:g} % of them. Tokens encoded: of documents kept and of "
        "those with too few tokens; others are dropped before."
    ]
    if timed:
        shows |= {title: lambda row, title=title: row[title] for title in PACE}
        notes.append(
            "The pace is that of the jobs that prepared the shards, reading and writing included: tokens encoded by "
            "their wall time, bytes of text encoded by their CPU time (timing.json beside each shard)."
        )
        if names and len(results.timings) < len(names):
            notes[-1] += f" {len(results.timings)} of {len(names)} shards have a record of it."
    return Table.of(
        rows,
        shows,
        (
            *("shard", "rows_in", "kept", *reasons.values(), "tokens", *SPLIT),
            *("characters", "bytes", *ENCODED),
        ),
        source=lambda row: "" if results.store is None else STORE,
        name="data",
        caption=(
            "Data: documents in, kept and dropped by reason; tokens encoded and kept; and the split; "
            f"{len(names) or 'no'} shards."
        ),
        notes=tuple(notes),
    )


PACE = ("Tokens per second", "MB per CPU second")


def _data_row(results: Results, entry: Record, shards: list[str]) -> Record:
    """The counts of a shard, or of all: an entry of the store's manifest and the timings of its shards."""
    timings = [results.timings[shard] for shard in shards if shard in results.timings]
    whole = len(timings) == len(shards) > 0  # a part would pass for the whole
    row = {"shard": entry["name"]} | {
        key: entry.get(key) for key in ("rows_in", "kept", "tokens", "characters", "bytes")
    }
    row |= {f"dropped: {reason}": n for reason, n in entry["dropped"].items()} if "dropped" in entry else {}
    for part in ("train", "validation"):
        row |= {f"{part}_{what}": entry.get(part, {}).get(what) for what in ("documents", "tokens")}
    row |= {key: sum(int(timing[key]) for timing in timings) if whole else None for key in ENCODED}
    n_bytes, tokens, wall, cpu = (math.fsum(t[key] for t in timings) for key in (*ENCODED, "wall_s", "cpu_s"))
    paces = (tokens / wall if wall else None, 0), (n_bytes / 1e6 / cpu if cpu else None, 2)
    return row | {title: render.decimal(*pace) for title, pace in zip(PACE, paces, strict=True)}


def lengths(results: Results) -> Table:
    """How long documents are: those kept and those dropped for too few tokens, by number of tokens."""
    fields = ("from_tokens", "below_tokens", "kept", "too_few_tokens")
    rows = [dict(zip(fields, each, strict=True)) for each in results.bins()]
    whole = sum(row["kept"] for row in rows)
    return Table.of(
        rows,
        {
            "Tokens": lambda row: f"{row['from_tokens']:,}–{row['below_tokens'] - 1:,}",
            "Dropped: too few tokens": partial(_count, key="too_few_tokens"),
            "Kept": partial(_count, key="kept"),
            "Of those kept": lambda row: f"{render.decimal(100 * row['kept'] / whole, 2)} %" if whole else GAP,
        },
        fields,
        source=lambda row: STORE,
        gaps=True,
        name="lengths",
        caption="Lengths of the documents that were encoded.",
        notes=(f"Kept from {results.settings.data.min_tokens:,} tokens on.",),
    )


def training(results: Results) -> Table:
    """Where each run ended, and whether it ended below the unigram lines."""
    rows = []
    for interface, seed in results.models():
        row = dict.fromkeys(("steps", "tokens", *ENDS, "below_unigram", "file"))
        if final := results.finals.get((interface, seed)):
            row |= {key: getattr(final, key) for key in ("tokens", *ENDS)} | {"steps": final.step}
            row |= {"below_unigram": findings.below_unigram(final)}
            row |= {"file": f"runs/{model_name(interface, seed)}/final.json"}
        rows.append({"interface": interface, "seed": seed} | row)
    titles = ("Train loss", "Held-out loss", "Unigram entropy", "Unigram cross entropy")
    return Table.of(
        rows,
        {
            "Model": lambda row: model_name(row["interface"], row["seed"]),
            "Steps": partial(_count, key="steps"),
            "Tokens": partial(_count, key="tokens"),
        }
        | {title: lambda row, key=key: render.decimal(row[key], 3) for title, key in zip(titles, ENDS, strict=True)}
        | {"Below both": lambda row: {None: GAP, True: "yes", False: "no"}[row["below_unigram"]]},
        ("interface", "seed", "steps", "tokens", *ENDS, "below_unigram", "file"),
        source=lambda row: row["file"] or "",
        name="training",
        caption="Training: where each run ended; losses in nats per token.",
        notes=(
            f"Train loss: mean over the last {results.settings.train.validate_every} steps. Unigram entropy: of the "
            "training split's token frequencies; cross entropy: of that model on the held-out split.",
        ),
    )


TABLES: dict[str, Callable[[Results], Table]] = {
    "accounting": accounting,
    "results": comparison,
    "differences": differences.differences,
    "paper": paper.against,
    "power": paper.power,
    "losses": differences.losses,
    "training": training,
    "data": data,
    "lengths": lengths,
}


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
