"""Sentences follow from numbers by their rules."""

import json

import pytest
import simulate
from simulate import write_json

from tokencodes import config
from tokencodes.report import findings, page, paper
from tokencodes.report.results import read
from tokencodes.spec import parse


def set_scores(folder, share: float) -> None:
    """Put every accuracy at its chance level plus `share` standard errors; no scores by document contradict it."""
    for path in (folder / "eval").rglob("*.json"):
        path.with_suffix(".parquet").unlink()
        content = json.loads(path.read_text())
        for numbers in content["metrics"].values():
            if numbers["chance"] is not None:
                numbers["stderr"] = 0.05
                numbers["value"] = numbers["chance"] + share * 0.05
        write_json(path, content)


def test_all_near_chance(settings, folder):
    set_scores(folder, 1.99)
    (asked, trained, scored) = findings.sentences(read(settings, folder))
    assert asked.startswith("Asked: does a language model need a trainable input row for each token? 3 models differ")
    assert "524,288 of 1,573,504 trainable parameters (33.32%)" in asked
    assert "each below a unigram model (entropy 6.79 and cross entropy 6.84)" in trained
    assert "all 15 benchmark scores with a chance level are within 2 standard errors of it" in scored
    assert "toy run of 1.57 million parameters and 614 thousand training tokens" in scored
    assert "the paper has 1.81 billion and 100 billion" in scored


def test_one_score_above_and_one_below(settings, folder):
    set_scores(folder, 0.0)
    for name, share in (("piqa", 2.01), ("winogrande", -2.01)):
        path = folder / f"eval/gf2-s0/{name}-0shot.json"
        content = json.loads(path.read_text())
        content["metrics"]["acc"]["value"] += share * 0.05
        write_json(path, content)
    scored = findings.sentences(read(settings, folder))[2]
    assert "of 15 benchmark scores with a chance level, 1 above and 1 below are more than 2 standard errors" in scored
    assert "luck alone would put about 0.7 there" in scored


def test_a_run_above_the_unigram_lines_says_so(settings, folder):
    path = folder / "runs/gf2-s0/final.json"
    content = json.loads(path.read_text())
    content["val_loss"] = 6.8  # above the entropy, 6.7934, and below the cross entropy, 6.8412
    write_json(path, content)
    assert "2 of 3 below a unigram model" in findings.sentences(read(settings, folder))[1]


def test_missing_runs_are_counted(settings, folder):
    (folder / "runs/gf2-s0/final.json").unlink()
    trained = findings.sentences(read(settings, folder))[1]
    assert "gf2" not in trained
    assert "1 of 3 runs are missing" in trained


def test_only_the_papers_size_may_be_compared(settings, tmp_path):
    chosen = simulate.paper_size(settings)
    simulate.write_params(tmp_path / "params.json", simulate.parameters(chosen))
    results = read(chosen, tmp_path)
    assert not paper.unlike(results) and not paper.is_toy(results)
    assert "This run has their size, budget and data." in findings.comparability(results)
    assert "may be set beside the paper's" in findings.sentences(results)[2] and not page.notice(results)

    value = chosen.model_dump(mode="json")
    value["evaluate"]["tasks"][0]["limit"] = 100
    results = read(parse(config.Config, value, "a limit"), tmp_path)
    assert "its data on 9 of 10 benchmarks: only these may be set beside" in findings.sentences(results)[2]
    assert "their data on 9 of 10 benchmarks" in page.notice(results)

    value = chosen.model_dump(mode="json")
    value["data"]["source"] = settings.model_dump(mode="json")["data"]["source"]
    results = read(parse(config.Config, value, "another corpus"), tmp_path)
    assert "but other data: it is not to be set against" in findings.sentences(results)[2]
    assert page.notice(results)

    value = chosen.model_dump(mode="json")
    value["train"]["max_steps"] = 300_000  # 78.6 B tokens: no toy, and not the paper's budget
    results = read(parse(config.Config, value, "short"), tmp_path)
    assert paper.unlike(results) and not paper.is_toy(results)
    assert "not to be set against the paper's figures" in findings.sentences(results)[2]

    content = simulate.parameters(chosen)
    content["gf2"]["trainable"] += 1
    simulate.write_params(tmp_path / "params.json", content)
    assert paper.unlike(read(chosen, tmp_path))


def test_nothing_yet(settings, tmp_path):
    asked, trained, scored = findings.sentences(read(settings, tmp_path))
    assert "trainable parameters" not in asked
    assert trained == "Trained: no run has ended yet."
    assert scored.startswith("Scored: no benchmark with a chance level has been scored yet.")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1_812_039_680, "1.81 billion"),
        (100e9, "100 billion"),
        (614_400, "614 thousand"),
        (1_098_368, "1.10 million"),
        (12_345, "12.3 thousand"),
        (999, "999"),
    ],
)
def test_words(number, text):
    assert findings.words(number) == text


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_standard_error_of_zero_puts_no_score_far_from_chance(settings, folder, value):
    before = findings.sentences(read(settings, folder))[2]
    for path in folder.glob("eval/*/winogrande-0shot.*"):
        if path.suffix == ".parquet":
            path.unlink()
            continue
        content = json.loads(path.read_text())
        content["metrics"]["acc"] |= {"value": value, "stderr": 0.0}
        write_json(path, content)
    scored = findings.sentences(read(settings, folder))[2]
    assert "15 benchmark scores" in before and "12 benchmark scores" in scored
    assert "; 3 more have no value or no standard error." in scored
