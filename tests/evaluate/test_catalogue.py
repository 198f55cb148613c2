"""Names and metrics of the benchmarks."""

import subprocess
import sys
from pathlib import Path

import lm_eval
import pytest
import yaml

from tokencodes.evaluate import catalogue, tasks


@pytest.mark.parametrize("task", tasks.FOLDERS)
def test_each_benchmark_is_one_of_the_harness_with_that_metric(task: str) -> None:
    """Read as text from lm-eval's own definition."""
    benchmark = catalogue.benchmark(task)
    folder = Path(lm_eval.__file__).parent / "tasks" / tasks.FOLDERS[task]
    definitions = [path.read_text() for path in folder.iterdir() if path.suffix == ".yaml" or "yaml" in path.name]
    assert any(f"metric: {benchmark.metric}\n" in text for text in definitions)
    assert any(f"\ntask: {task}\n" in f"\n{text}" or f"group: {task}\n" in text for text in definitions)
    asks_letters = any(set("ABCD") <= set(str(_choices(text))) for text in definitions)
    assert benchmark.letters == asks_letters


def _choices(text: str) -> object:
    lines = [line for line in text.splitlines() if line.startswith("doc_to_choice: [")]
    return yaml.safe_load(lines[0])["doc_to_choice"] if lines else None


def test_labels() -> None:
    assert catalogue.label("lambada_openai", "pypi") != catalogue.label("lambada_openai", "hub") == "LAMBADA"
    assert catalogue.label("hellaswag", "pypi") == "HellaSwag"
    assert "WikiText" not in catalogue.label("corpus_validation", "pypi")
    assert catalogue.benchmark("sciq") == catalogue.Benchmark("sciq", "sciq", "acc")


def test_tables_need_neither_torch_nor_the_harness() -> None:
    code = (
        "import sys, tokencodes.evaluate.catalogue; print(sorted({'torch', 'lm_eval', 'datasets'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
