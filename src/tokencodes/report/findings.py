"""What a run's numbers say, in sentences made from them by stated rules, and what they cannot say.

Rules. Near chance: a score is near chance if it is within CHANCE_STDERRS standard errors of it. Paper's size: the same
architecture as the paper's (its trainable parameters, for each interface that stands for one of its models) and about
its training tokens (paper.BUDGET); only then, and on its data, do its figures enter a plot beside ours. Below unigram:
a held-out loss below both unigram lines, the entropy and the cross entropy. Toy: less than paper.TOY of the paper's
parameters or tokens.
"""

import math

from tokencodes.evaluate.catalogue import benchmark
from tokencodes.layout import model_name
from tokencodes.report import differences, paper, render
from tokencodes.report.render import Record
from tokencodes.report.results import Results
from tokencodes.train.final import Final

CHANCE_STDERRS = 2.0
OUTSIDE_BY_LUCK = 0.0455  # two-sided normal probability beyond CHANCE_STDERRS
MANY = 5  # a sentence does not list more interfaces than this one by one
RULES = (
    f"near chance means within {CHANCE_STDERRS:g} standard errors of it; a toy has less than {paper.TOY:.0%} of the "
    "paper's parameters or tokens; below a unigram model means below both its entropy and its cross entropy."
)


def below_unigram(run: Final) -> bool:
    """Whether a run's held-out loss is below both unigram lines."""
    return run.val_loss < min(run.unigram_entropy, run.unigram_cross_entropy)


def words(number: float) -> str:
    """A count as people say it: 1.57 million, 100 billion; three significant digits."""
    for size, name in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million"), (1e3, " thousand")):
        if number >= size:
            scaled = number / size
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{name}"
    return f"{number:g}"


def comparability(results: Results) -> str:
    """One sentence on whether the paper's figures are comparable with this run's."""
    if paper.unlike(results):
        return "They are no target for this run, which has another size or budget."
    few, many = paper.comparable(results)
    if few == many:
        return "This run has their size, budget and data."
    return f"This run has their size and budget, and their data on {few} of {many} benchmarks; others are no target."


def headline(results: Results) -> list[Record]:
    """The score of each model on each benchmark, in the metric that the paper reports."""
    return [row for row in results.scores.to_dict("records") if benchmark(row["task"]).metric == row["metric"]]


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
    means = ((render.mean(results.losses(interface)), f"({interface})") for interface in settings.interfaces)
    losses = [(loss, name) for loss, name in means if loss is not None]
    if not losses:
        return "Trained: no run has ended yet."
    if len(losses) > MANY:
        shown = " to ".join(f"{render.decimal(loss, 2)} {name}" for loss, name in (min(losses), max(losses)))
    else:
        shown = _list([f"{render.decimal(loss, 2)} {name}" for loss, name in losses])
    below = [below_unigram(final) for final in results.finals.values()]
    unigram = results.unigram()
    lines = " and ".join(
        f"{name} {render.decimal(unigram[key], 2)}"
        for key, name in (("unigram_entropy", "entropy"), ("unigram_cross_entropy", "cross entropy"))
    )
    each = "each" if all(below) else f"{sum(below)} of {len(below)}"
    over = ", mean over seeds" if len(settings.seeds) > 1 else ""
    missing = len(results.models()) - len(below)
    late = _behind(results)
    gap = f" {missing} of {len(results.models())} runs are missing." if missing else ""
    return (
        f"Trained: after {words(paper.tokens(results))} tokens the held-out loss is {shown} nats per token"
        f"{over}, {each} below a unigram model ({lines}){late}.{gap}"
    )


def _behind(results: Results) -> str:
    """How far the other interfaces end behind the baseline; nothing for many, or where it is not known."""
    parts = []
    rows = {row["interface"]: row for row in differences.loss_frame(results).to_dict("records")}
    for interface in results.settings.interfaces:
        gap, low, high = (rows[interface][key] for key in ("gap", "low", "high"))
        if gap is None or math.isnan(gap):
            continue
        interval = "" if math.isnan(low) else f" (95 %: {low:.2f} to {high:.2f})".replace("-", "−")
        parts.append(f"{interface} is {abs(gap):.2f} nats {'behind' if gap >= 0 else 'ahead'}{interval}")
    return f"; {_list(parts)}" if 0 < len(parts) <= MANY else ""


def _scored(results: Results) -> str:
    every = [row for row in headline(results) if not math.isnan(row["chance"])]
    # A standard error of 0 measures no distance: such a score counts only where it is chance itself.
    scores = [row for row in every if row["stderr"] > 0 or (row["stderr"] == 0 and row["value"] == row["chance"])]
    scores = [row for row in scores if not math.isnan(row["value"])]
    outside = [row for row in scores if abs(row["value"] - row["chance"]) > CHANCE_STDERRS * row["stderr"]]
    above = sum(row["value"] > row["chance"] for row in outside)
    count = f"{len(scores)} benchmark scores with a chance level"
    if not scores:
        text = "Scored: no benchmark with a chance level has been scored yet."
    elif not outside:
        text = f"Scored: all {count} are within {CHANCE_STDERRS:g} standard errors of it"
    else:
        text = (
            f"Scored: of {count}, {above} above and {len(outside) - above} below are more than {CHANCE_STDERRS:g} "
            f"standard errors away from it (luck alone would put about {OUTSIDE_BY_LUCK * len(scores):.1f} there)"
        )
    left_out = len(every) - len(scores)
    if scores:
        text += f"; {left_out} more have no value or no standard error." if left_out else "."
    return " ".join(part for part in (text, differences.sentence(results), _size(results)) if part)


def _size(results: Results) -> str:
    few, many = paper.comparable(results)
    if not paper.unlike(results):
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
    ours = f"{words(max(results.params.trainable))} parameters and " if len(results.params) else ""
    parameters, budget = map(words, paper.size())
    sizes = f"{ours}{words(paper.tokens(results))} training tokens, where the paper has {parameters} and {budget}"
    if paper.is_toy(results):
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
        text += f" FAILED: {model_name(row['interface'], row['seed'])}: {render.clean(row['name'])}."
    return text


def alternatives(results: Results) -> dict[str, str]:
    """A text alternative for each figure: what it shows, with the numbers that matter."""
    ends = [
        f"{interface} {render.decimal(render.mean(results.losses(interface)), 2)}"
        for interface in results.settings.interfaces
    ]
    unigram = results.unigram().get("unigram_entropy")
    scores = []
    for task in results.settings.evaluate.tasks:
        metric = results.metrics(task)[0]
        for interface in results.settings.interfaces:
            values = [render.percent(metric) * float(value) for value in results.score(task, metric, interface).value]
            shown = render.decimal(render.mean(values), 2)
            scores.append(f"{results.label(task)} {metric} {interface} {shown}")
    counts = [f"{row['interface']} {row['trainable']:,}" for row in results.params.to_dict("records")]
    return {
        "loss": (
            f"Line plot of training and held-out loss by step. Held-out loss at the end: {', '.join(ends)}; "
            f"unigram entropy {render.decimal(unigram, 2)} nats per token."
        ),
        "benchmarks": f"Dot plots of benchmark scores with 95 % intervals and chance levels: {'; '.join(scores)}.",
        "differences": _differences(results),
        "data": _data(results),
        "accounting": f"Stacked bars of trainable parameters by interface: {'; '.join(counts) or 'no result'}.",
    }


def _differences(results: Results) -> str:
    gaps = [
        f"{row['interface']} {row['label']} {render.decimal(100 * row['difference'], 1)}"
        for row in differences.paired_rows(results)
        if row["difference"] is not None and render.is_proportion(row["metric"])
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
    spread = f", from {min(kept):,} to {max(kept):,} tokens per shard" if len(kept) > 1 else ""
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
