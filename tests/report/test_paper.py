"""This run beside the paper: z and verdict by hand, and what is not comparable."""

import math

import numpy as np
import pytest
import simulate
from simulate import column, table_rows, write_json

from tokencodes import config
from tokencodes.analysis import paired
from tokencodes.report import paper
from tokencodes.report.results import read
from tokencodes.spec import parse


@pytest.fixture
def paper_run(settings, tmp_path):
    """A run of the paper's size, corpus and budget that has its accounting and one score."""
    value = simulate.paper_size(settings).model_dump(mode="json")

    def make(score, stderr=0.005, **changes):
        chosen = parse(config.Config, value | changes, "paper")
        simulate.write_params(tmp_path / "params.json", simulate.parameters(chosen))
        task = next(task for task in chosen.evaluate.tasks if task.name == "hellaswag")
        columns = simulate.documents(task, np.random.default_rng(0), 0, 50)
        for seed, shift in zip(chosen.seeds, (0.0, -0.001, 0.001), strict=False):
            result = simulate.evaluation("binary16", seed, task, columns)
            result["metrics"]["acc_norm"] |= {"value": score + shift, "stderr": stderr}
            write_json(tmp_path / f"eval/binary16-s{seed}/hellaswag-0shot.json", result)
        results = read(chosen, tmp_path, with_curves=False)
        rows = table_rows(paper.against(results), task="hellaswag", metric="acc_norm")
        return {row["interface"]: row for row in rows}

    return make


def test_z_and_verdict_by_hand(paper_run):
    """Published 52.40 +- 0.50; ours +- 0.50: their root of squares is 0.7071."""
    row = paper_run(0.535)["binary16"]
    assert row["difference"] == pytest.approx(1.1) and row["z"] == pytest.approx(1.1 / 0.5**0.5)
    assert row["verdict"] == "agrees (one run)"
    assert paper_run(0.54)["binary16"]["verdict"] == "differs (one run)"
    row = paper_run(0.54, seeds=[0, 1, 2])["binary16"]
    assert row["seed_sd"] == pytest.approx(0.1)
    assert row["z"] == pytest.approx(1.6 / math.hypot(0.5, 0.5, 0.1 * math.sqrt(4 / 3)))
    assert row["verdict"] == "differs"


def test_what_is_not_there_is_empty(paper_run):
    row = paper_run(0.54)["gf2"]
    assert (row["value"], row["difference"], row["z"], row["verdict"]) == (None,) * 4
    assert row["paper: value"] == 51.44


def test_other_sizes_budgets_and_data_are_named(paper_run, settings, folder, tmp_path):
    assert paper_run(0.5, stderr=None)["binary16"]["verdict"] == "not tested: no standard error"
    table = paper.against(read(settings, folder, with_curves=False))
    assert {row["verdict"] for row in table.records} == {"not comparable: size, budget, data"}
    assert all(row["z"] is None for row in table.records)
    rows = paper.against(read(simulate.controls(settings), tmp_path, with_curves=False)).rows
    (row,) = (row for row in rows if row[0].startswith("OpenBookQA") and row[1] == "gf2")
    assert row[3:] == ("", "", "", ""), "the paper does not give OpenBookQA of GF2"


def test_power_is_that_of_the_papers_difference(settings, folder):
    table = paper.power(read(settings, folder, with_curves=False))
    (row,) = table_rows(table, task="piqa", interface="gf2")
    a, b = (column(folder, name, 0, "piqa", "acc") for name in ("gf2", "learned"))
    assert row["paper: difference"] == pytest.approx(71.16 - 72.69)
    assert row["documents_needed"] == paired.documents_needed(float(np.mean(a != b)), (71.16 - 72.69) / 100)
    assert row["seeds_needed"] is None, "one seed does not show what another would change"


def test_an_approximate_figure_is_not_tested(settings, tmp_path):
    chosen = simulate.paper_size(settings)
    folder = tmp_path / "run"
    simulate.write_params(folder / "params.json", simulate.parameters(chosen))
    task = next(task for task in chosen.evaluate.tasks if task.name == "mmlu")
    columns = simulate.documents(task, np.random.default_rng(0), 0, 50)
    write_json(folder / "eval/learned-s0/mmlu-0shot.json", simulate.evaluation("learned", 0, task, columns))
    rows = table_rows(paper.against(read(chosen, folder, with_curves=False)), task="mmlu", interface="learned")
    (row,) = (row for row in rows if row["paper: value"] is not None)
    assert (row["verdict"], row["z"], row["difference"]) == ("not tested: approximate", None, None)


def test_few_seeds_agree_further(paper_run):
    """Two seeds say little of their spread: Student's t of one degree of freedom is 12.7, not 1.96."""
    row = paper_run(0.538, stderr=0.0001, seeds=[0, 1])["binary16"]
    assert row["z"] > 1.96 and row["verdict"] == "agrees"
