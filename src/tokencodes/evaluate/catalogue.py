"""Facts about each benchmark that tables need, without lm-eval or torch: its name and the paper's metric.

The paper's figures themselves are in report/published.csv.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass

CORPUS_TASK = "corpus_validation"  # not an lm-eval task: the corpus' own held-out documents


@dataclass(frozen=True)
class Benchmark:
    """One benchmark. `metric` is the one that the paper reports (for the corpus: ours), `shots` its settings."""

    task: str
    name: str
    metric: str
    shots: tuple[int, ...] = (0,)
    letters: bool = False  # the model is asked for a letter, not for the answer's text: small models stay at chance


BENCHMARKS = {
    benchmark.task: benchmark
    for benchmark in (
        Benchmark("hellaswag", "HellaSwag", "acc_norm"),
        Benchmark("piqa", "PIQA", "acc"),
        Benchmark("lambada_openai", "LAMBADA", "acc"),
        Benchmark("arc_easy", "ARC-Easy", "acc_norm"),
        Benchmark("arc_challenge", "ARC-Challenge", "acc_norm"),
        Benchmark("winogrande", "WinoGrande", "acc"),
        Benchmark("openbookqa", "OpenBookQA", "acc_norm"),
        Benchmark("wikitext", "WikiText", "word_perplexity"),
        Benchmark("commonsense_qa", "CommonsenseQA", "acc", letters=True),
        Benchmark("mmlu", "MMLU", "acc", shots=(0, 5), letters=True),
        Benchmark("commonsense_qa_cloze", "CommonsenseQA, cloze (not the paper's)", "acc_norm"),
        Benchmark("mmlu_continuation", "MMLU, cloze (not the paper's)", "acc"),
        Benchmark(CORPUS_TASK, "Corpus, held-out documents", "bits_per_byte"),
    )
}

# How a packaged copy differs from the harness' own data, where it does.
PACKAGED_NOTE = {"lambada_openai": "white space collapsed"}


def benchmark(task: str) -> Benchmark:
    """The benchmark of a task; one that is not listed has its lm-eval name and accuracy as its metric."""
    return BENCHMARKS.get(task, Benchmark(task, task, "acc"))


def label(task: str, data: str) -> str:
    """The name in tables of a task on this kind of data (`pypi` or `hub`)."""
    name = benchmark(task).name
    note = PACKAGED_NOTE.get(task) if data == "pypi" else None
    return f"{name} ({note})" if note else name


def letters_note(tasks: Iterable[str]) -> str | None:
    """The note below a table with tasks that ask for a letter; None if none does."""
    names = [benchmark(task).name for task in dict.fromkeys(tasks) if benchmark(task).letters]
    if not names:
        return None
    verb = "asks" if len(names) == 1 else "ask"
    return (
        f"{' and '.join(names)} {verb} for the letter of an answer, as the harness has it: "
        "models of this size stay at chance there. Rows marked cloze score the answers' texts, and are not the paper's."
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message about an unknown task name."""
    names = list(dict.fromkeys(known))
    close = difflib.get_close_matches(word, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else f"; known: {', '.join(sorted(names))}"
