"""What a run's numbers say, in sentences made from them by stated rules, and what they cannot say.

Rules. Near chance: a score is near chance if it is within CHANCE_STDERRS standard errors of it. Paper's size: the same
architecture as the paper's (its trainable parameters, for each interface that stands for one of its models) and about
its training tokens (PAPER_BUDGET); only then, and on its data, do its figures enter a plot beside ours. Below unigram:
a held-out loss below both unigram lines, the entropy and the cross entropy. Toy: less than TOY of the paper's
parameters or tokens.
"""

import math
from typing import Any

from tokencodes.evaluate.catalogue import benchmark
from tokencodes.report import differences, render
from tokencodes.report.results import PAPER_MODEL, Results, paper_count

CHANCE_STDERRS = 2.0
OUTSIDE_BY_LUCK = 0.0455  # two-sided normal probability beyond CHANCE_STDERRS
MANY = 5  # more interfaces than this are not told one by one in a sentence
TOY = 0.1  # a run below this share of the paper's parameters or tokens is called a toy
RULES = (
    f"near chance means within {CHANCE_STDERRS:g} standard errors of it; a toy has less than {TOY:.0%} of the paper's "
    "parameters or tokens; below a unigram model means below both its entropy and its cross entropy."
)


def below_unigram(run: dict[str, Any]) -> bool | None:
    """Whether a run's held-out loss is below both unigram lines; None if it has no such loss."""
    lines = [run["unigram_entropy"], run["unigram_cross_entropy"]]
    if math.isnan(run["val_loss"]) or any(map(math.isnan, lines)):
        return None
    return bool(run["val_loss"] < min(lines))


def is_paper_size(results: Results) -> bool:
    """Whether this run has the paper's size and about its budget; its data are another question."""
    return not results.unlike_paper()


def is_toy(results: Results) -> bool:
    """Whether the run has less than TOY of the paper's parameters or of its training tokens."""
    train = results.settings.train
    paper, budget = paper_count(PAPER_MODEL, "trainable"), paper_count(PAPER_MODEL, "target_tokens", task="training")
    assert paper is not None and budget is not None, "reference.csv has the paper's size"
    small = len(results.params) and max(results.params.trainable) < TOY * paper
    return bool(small or train.max_steps * train.tokens_per_step < TOY * budget)


def words(number: float) -> str:
    """A count as people say it: 1.57 million, 100 billion; three significant digits."""
    for size, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if number >= size:
            scaled = number / size
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{name}"
    return f"{number:g}"


def comparability(results: Results) -> str:
    """One sentence on whether the paper's figures are comparable with this run's."""
    if not is_paper_size(results):
        return "They are no target for this run, which has another size or budget."
    few, many = differences.comparable(results)
    if few == many:
        return "This run has their size, budget and data."
    return f"This run has their size and budget, and their data on {few} of {many} benchmarks; others are no target."


def headline(results: Results) -> list[dict[str, Any]]:
    """The score of each model on each benchmark, in the metric that the paper reports."""
    rows = results.scores
    chosen = [benchmark(task).metric == metric for task, metric in zip(rows.task, rows.metric, strict=True)]
    return rows[chosen].to_dict("records")


def sentences(results: Results) -> list[str]:
    """What was asked, how training ended, and what the benchmarks say: three sentences, the last one honest on size."""
    return [_asked(results), _trained(results), _scored(results)]


def _asked(results: Results) -> str:
    interfaces = list(results.settings.interfaces)
    baseline = results.baseline()
    counts = results.params.set_index("interface").trainable if len(results.params) else {}
    fixed = [name for name in interfaces if counts.get(name) is not None and name != baseline]
    seeds = len(results.settings.seeds)
    each = f"; each trained with {seeds} seeds" if seeds > 1 else ""
    less = ""
    if results.settings.interfaces[baseline].kind == "table" and counts.get(baseline) is not None and fixed:
        saved = counts[baseline] - min(counts[name] for name in fixed)
        less = (
            f"; without the table {saved:,} of {counts[baseline]:,} trainable parameters "
            f"({saved / counts[baseline]:.2%}) are gone"
        )
    return (
        f"Asked: does a language model need a trainable input row for each token? {len(interfaces)} "
        f"{'model differs' if len(interfaces) == 1 else 'models differ'} in the input interface alone "
        f"({_names(interfaces)}{each}){less}."
    )


def _trained(results: Results) -> str:
    settings = results.settings
    budget = settings.train.max_steps * settings.train.tokens_per_step
    losses = []
    for interface in settings.interfaces:
        values = [float(v) for v in results.runs[results.runs.interface == interface].val_loss]
        if values:
            losses.append((math.fsum(values) / len(values), f"({interface})"))
    if not losses:
        return "Trained: no run has ended yet."
    if len(losses) > MANY and not any(math.isnan(loss) for loss, _ in losses):
        shown = " to ".join(f"{render.decimal(loss, 2)} {name}" for loss, name in (min(losses), max(losses)))
    else:
        shown = _list([f"{render.decimal(loss, 2)} {name}" for loss, name in losses])
    runs = results.runs.to_dict("records")
    below = [below_unigram(run) for run in runs]
    unigram = results.unigram()
    lines = " and ".join(
        f"{name} {render.decimal(unigram[key], 2)}"
        for key, name in (("unigram_entropy", "entropy"), ("unigram_cross_entropy", "cross entropy"))
    )
    if all(below):
        verdict = "each below a unigram model"
    elif any(value is False for value in below):
        verdict = f"{sum(value is True for value in below)} of {len(below)} below a unigram model"
    else:
        verdict = "to be set against a unigram model"
    missing = len(results.models()) - len(runs)
    late = _behind(results)
    gap = f" {missing} of {len(results.models())} runs are missing." if missing else ""
    return (
        f"Trained: after {words(budget)} tokens the held-out loss is {shown} nats a token"
        f"{', mean over seeds' if len(settings.seeds) > 1 else ''}, {verdict} ({lines}){late}.{gap}"
    )


def _behind(results: Results) -> str:
    """How far the other interfaces end behind the baseline; nothing for many, or where it is not known."""
    parts = []
    for interface in results.settings.interfaces:
        found = differences.behind(results, interface)
        if found is None or math.isnan(found.gap):
            continue
        side = "behind" if found.gap >= 0 else "ahead"
        interval = "" if math.isnan(found.low) else f" (95 %: {found.low:.2f} to {found.high:.2f})".replace("-", "−")
        parts.append(f"{interface} is {abs(found.gap):.2f} nats {side}{interval}")
    return f"; {_list(parts)}" if 0 < len(parts) <= MANY else ""


def _scored(results: Results) -> str:
    every = [row for row in headline(results) if not math.isnan(row["chance"])]
    # A standard error of 0 measures no distance: such a score counts only where it is chance itself.
    scores = [row for row in every if row["stderr"] > 0 or (row["stderr"] == 0 and row["value"] == row["chance"])]
    scores = [row for row in scores if not math.isnan(row["value"])]
    if not scores:
        said = "Scored: no benchmark with a chance level has been scored yet."
    else:
        outside = [row for row in scores if abs(row["value"] - row["chance"]) > CHANCE_STDERRS * row["stderr"]]
        if not outside:
            said = (
                f"Scored: all {len(scores)} benchmark scores with a chance level are within {CHANCE_STDERRS:g} "
                "standard errors of it"
            )
        else:
            above = sum(row["value"] > row["chance"] for row in outside)
            said = (
                f"Scored: of {len(scores)} benchmark scores with a chance level, {above} above and "
                f"{len(outside) - above} below are more than {CHANCE_STDERRS:g} standard errors away from it (luck "
                f"alone would put about {OUTSIDE_BY_LUCK * len(scores):.1f} there)"
            )
        said += (
            f"; {len(every) - len(scores)} more have no value or no standard error."
            if len(every) > len(scores)
            else "."
        )
    return " ".join(part for part in (said, differences.sentence(results), _size(results)) if part)


def _size(results: Results) -> str:
    if is_paper_size(results):
        few, many = differences.comparable(results)
        if few == many:
            return "The run has the paper's size, budget and data, so its figures may be set beside the paper's."
        if few:
            return (
                f"The run has the paper's size and budget, and its data on {few} of {many} benchmarks: only these may "
                "be set beside the paper's figures."
            )
        return (
            "The run has the paper's size and budget but other data: it is not to be set against the paper's figures."
        )
    paper, budget = paper_count(PAPER_MODEL, "trainable"), paper_count(PAPER_MODEL, "target_tokens", task="training")
    tokens = results.settings.train.max_steps * results.settings.train.tokens_per_step
    largest = max(results.params.trainable) if len(results.params) else None
    assert paper is not None and budget is not None
    ours = f"{words(largest)} parameters and " if largest else ""
    sizes = f"{ours}{words(tokens)} training tokens, where the paper has {words(paper)} and {words(budget)}"
    if is_toy(results):
        return (
            f"This is a toy run of {sizes}: its benchmark scores show that the pipeline works, not which interface is "
            "better."
        )
    return f"The run has {sizes}: it is not to be set against the paper's figures."


def checks(results: Results) -> str:
    """How many checkpoint checks passed, and which did not."""
    rows = results.checks
    models = len(results.models())
    seen = len(rows[["interface", "seed"]].drop_duplicates())
    if not seen:
        return "Checkpoint checks: none has run yet."
    failed = rows[rows.passed.ne(True)]
    text = f"Checkpoint checks: {len(rows) - len(failed)} of {len(rows)} passed, for {seen} of {models} models."
    for row in failed.to_dict("records"):
        text += f" FAILED: {row['interface']}-s{row['seed']}: {render.clean(row['name'])}."
    return text


def alternatives(results: Results) -> dict[str, str]:
    """A text alternative for each figure: what it shows, with the numbers that matter."""
    runs = results.runs
    ends = []
    for interface in results.settings.interfaces:
        values = [float(v) for v in runs[runs.interface == interface].val_loss]
        ends.append(f"{interface} {render.decimal(math.fsum(values) / len(values) if values else None, 2)}")
    unigram = results.unigram().get("unigram_entropy")
    scores = []
    for task in results.settings.evaluate.tasks:
        metric = results.metrics(task)[0]
        factor = 100.0 if render.is_proportion(metric) else 1.0
        for interface in results.settings.interfaces:
            values = [factor * float(v) for v in results.score(task, metric, interface).value]
            shown = render.decimal(math.fsum(values) / len(values) if values else None, 2)
            scores.append(f"{results.label(task)} {metric} {interface} {shown}")
    counts = [f"{row['interface']} {row['trainable']:,}" for row in results.params.to_dict("records")]
    return {
        "loss": (
            f"Line plot of training and held-out loss by step. Held-out loss at the end: {', '.join(ends)}; "
            f"unigram entropy {render.decimal(unigram, 2)} nats a token."
        ),
        "benchmarks": f"Dot plots of benchmark scores with 95 % intervals and chance levels: {'; '.join(scores)}.",
        "differences": _differences(results),
        "data": _data(results),
        "accounting": f"Stacked bars of trainable parameters by interface: {'; '.join(counts) or 'no result'}.",
    }


def _differences(results: Results) -> str:
    gaps = [
        f"{each.interface} {results.label(each.task)} {render.decimal(100 * each.row.found.difference, 1)}"
        for each in differences.against_baseline(results)
        if each.row.found is not None and render.is_proportion(each.metric)
    ]
    return (
        f"Accuracy minus that of {results.baseline()} in points, with 95 % intervals: {'; '.join(gaps) or 'no result'}."
    )


def _data(results: Results) -> str:
    store = results.store
    if store is None:
        return "No data yet."
    dropped = "; ".join(f"dropped: {reason.replace('_', ' ')} {n:,}" for reason, n in store["dropped"].items() if n)
    kept = [shard["tokens"] for shard in store["shards"]]
    spread = f", from {min(kept):,} to {max(kept):,} tokens a shard" if len(kept) > 1 else ""
    middle = median(store["lengths"])
    return (
        "Histogram of the lengths of documents, bars of what became of them, and tokens kept by shard. "
        f"Documents in {store['rows_in']:,}; kept {store['kept']:,}{'; ' + dropped if dropped else ''}. "
        + (f"Half of those kept have {middle} tokens or more. " if middle else "")
        + f"{len(kept)} shards{spread}."
    )


def median(lengths: dict[str, list[int]] | None) -> str:
    """The bin in which the middle one of the kept documents lies, "2,048 to 2,895"; nothing if there is none."""
    documents = 0
    if lengths is not None:
        for low, high, n in zip(lengths["edges"][:-1], lengths["edges"][1:], lengths["kept"], strict=True):
            documents += n
            if n and 2 * documents >= sum(lengths["kept"]):
                return f"{low:,} to {high - 1:,}"
    return ""


def _names(names: list[str]) -> str:
    return _list(names if len(names) <= MANY else [*names[: MANY - 1], f"{len(names) - MANY + 1} more"])


def _list(items: list[str]) -> str:
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
