"""Tables of differences against the documents, curves and figures that they are made from."""

import json

import numpy as np
import pytest
import simulate
from simulate import column, table_rows, write_json

from tokencodes import config
from tokencodes.analysis import paired, seeds
from tokencodes.errors import UserError
from tokencodes.evaluate.scores import write_documents
from tokencodes.report import differences, findings
from tokencodes.report.results import read
from tokencodes.spec import parse


def test_one_seed_is_bootstrap_and_mcnemar_over_documents(settings, folder):
    table = differences.differences(read(settings, folder, with_curves=False))
    (row,) = table_rows(table, task="piqa", interface="gf2")
    expected = paired.difference(*(column(folder, name, 0, "piqa", "acc") for name in ("gf2", "learned")))
    for key in ("a", "b", "difference", "low", "high", "p", "only_a", "only_b", "n"):
        assert row[key] == getattr(expected, key)
    p = [row["p"] for row in table.records]
    assert [row["p_holm"] for row in table.records] == pytest.approx(list(paired.holm(p)))
    assert len(p) == len(settings.evaluate.tasks) * (len(settings.interfaces) - 1)
    assert not table_rows(table, interface="learned")


def test_several_seeds_count_beside_documents_and_a_seed_that_one_lacks_is_left_out(three_seeds, tmp_path):
    folder = simulate.results(three_seeds, tmp_path / "run")
    (folder / "eval/learned-s1/piqa-0shot.json").unlink()
    results = read(three_seeds, folder, with_curves=False)
    (row,) = table_rows(differences.differences(results), task="winogrande", interface="gf2")
    a, b = (
        np.stack([column(folder, name, seed, "winogrande", "acc") for seed in (0, 1, 2)]) for name in ("gf2", "learned")
    )
    expected = seeds.over_seeds(a, b)
    for key in ("difference", "low", "high", "p", "from_seeds", "from_documents"):
        assert row[key] == getattr(expected, key)
    (row,) = table_rows(differences.differences(results), task="piqa", interface="gf2")
    assert row["seeds"] == 2
    cells = next(row for row in differences.differences(results).rows if row[:2] == ("PIQA, acc", "gf2"))
    assert cells[2] == "100 [2 of 3]"


def test_gaps_nan_and_refusals_are_seen(settings, folder):
    (folder / "eval/gf2-s0/piqa-0shot.parquet").unlink()
    path = folder / "eval/binary12-s0/winogrande-0shot.json"
    write_json(path, json.loads(path.read_text()) | {"task_version": 2.0})
    table = differences.differences(read(settings, folder, with_curves=False))
    cells = {row[:2]: row[2:] for row in table.rows}
    assert set(cells["PIQA, acc", "gf2"]) == {"–"}
    assert set(cells["WinoGrande, acc", "binary12"]) == {"–"}
    assert any("the task version is 2.0 there and 1.0 here" in note for note in table.notes)
    assert cells["LAMBADA (white space collapsed), acc", "gf2"][2] == "–"
    (row,) = table_rows(table, task="piqa", interface="gf2")
    assert row["difference"] is row["p"] is None


@pytest.mark.parametrize("gap", [0, 30])
def test_what_is_shown_is_better_or_worse_by_the_metrics_own_direction(settings, folder, gap):
    """Every document right against `gap` of 100 wrong; a likelihood that is less by a nat per document."""
    for interface in ("learned", "gf2"):
        worse = interface == "gf2"
        for task, columns in (
            ("piqa", {"acc": [float(n >= gap * worse) for n in range(100)]}),
            (
                "corpus_validation",
                {"loglikelihood": [-500.0 - n - worse * gap for n in range(100)], "bytes": [400.0] * 100},
            ),
        ):
            stem = folder / f"eval/{interface}-s0/{task}-0shot"
            result = json.loads(stem.with_suffix(".json").read_text())
            if task == "piqa":
                result["metrics"] = {"acc": result["metrics"]["acc"] | {"value": 1 - gap * worse / 100}}
            n = len(next(iter(columns.values())))
            ids = {"doc_id": list(range(n)), "doc_sha256": [str(i) for i in range(n)]}
            write_documents(stem.with_suffix(".parquet"), ids | columns)
            write_json(stem.with_suffix(".json"), result)
    cells = {row[:2]: row for row in differences.differences(read(settings, folder, with_curves=False)).rows}
    said = "worse" if gap else "no"
    assert cells["PIQA, acc", "gf2"][-1] == said
    assert cells["Corpus, held-out documents, bits_per_byte", "gf2"][-1] == said


def test_on_par_is_two_one_sided_tests_and_not_a_large_p(settings, tmp_path):
    value = settings.model_dump(mode="json")
    value["evaluate"]["tasks"] = [{"name": "openbookqa", "shots": 0, "limit": None}]
    chosen = parse(config.Config, value, "openbookqa")
    folder = simulate.results(chosen, tmp_path / "run")
    table = differences.differences(read(chosen, folder, with_curves=False))
    (row,) = table_rows(table, task="openbookqa", interface="gf2")
    gap = column(folder, "gf2", 0, "openbookqa", "acc_norm") - column(folder, "learned", 0, "openbookqa", "acc_norm")
    assert row["equivalence_p"] == pytest.approx(
        seeds.equivalence(paired.difference(gap + 0.0, 0 * gap), 0.02), rel=0.01
    )
    words = "shown" if row["equivalence_p"] <= 0.05 else "not shown"
    assert any(f"gf2 on par with learned within 2 points: {words}" in note for note in table.notes)


def test_losses_are_those_of_the_curves(three_seeds, tmp_path):
    folder = simulate.results(three_seeds, tmp_path / "run")
    table = differences.losses(read(three_seeds, folder, with_curves=False))
    whole = differences.losses(read(three_seeds, folder))
    assert whole.records == table.records, "training losses change nothing"
    ends = {
        name: [json.loads((folder / f"runs/{name}-s{seed}/final.json").read_text())["val_loss"] for seed in (0, 1, 2)]
        for name in ("learned", "gf2")
    }
    (row,) = table_rows(table, interface="gf2")
    assert row["gap"] == pytest.approx(np.mean(ends["gf2"]) - np.mean(ends["learned"]))
    assert row["seed_sd"] == pytest.approx(np.std(ends["gf2"], ddof=1))
    assert row["low"] < row["gap"] < row["high"]
    assert row["tokens_ratio"] > 1
    (row,) = table_rows(table, interface="learned")
    assert row["gap"] is None
    assert (
        f"gf2 is {np.mean(ends['gf2']) - np.mean(ends['learned']):.2f} nats behind"
        in findings.sentences(read(three_seeds, folder))[1]
    )


def test_a_last_loss_that_is_no_number_is_refused(settings, folder):
    path = folder / "runs/gf2-s0/final.json"
    write_json(path, json.loads(path.read_text()) | {"val_loss": None})
    with pytest.raises(UserError, match=r"gf2-s0/final.json: .*val_loss"):
        read(settings, folder)


@pytest.mark.parametrize("baseline", ["binary12", "gf2"])
def test_any_interface_can_be_the_baseline(settings, folder, baseline):
    value = settings.model_dump(mode="json") | {"display": {"baseline": baseline}}
    chosen = parse(config.Config, value, "baseline")
    results = read(chosen, folder, with_curves=False)
    table = differences.differences(results)
    assert {row["against"] for row in table.records} == {baseline}
    assert {row["interface"] for row in table.records} == set(settings.interfaces) - {baseline}
    assert baseline in table.caption
    usual = differences.differences(read(settings, folder, with_curves=False))
    (here,) = table_rows(table, task="piqa", interface="learned")
    (there,) = table_rows(usual, task="piqa", interface=baseline)
    assert here["difference"] == -there["difference"] and here["p"] == there["p"]
    losses = differences.losses(results)
    assert baseline in losses.caption
    ends = [row["val_loss"] for row in losses.records]
    assert ends == sorted(ends), "ranked by loss"
    assert findings.sentences(results)


def test_who_lacks_scores_is_named(three_seeds, tmp_path):
    folder = simulate.results(three_seeds, tmp_path / "run")
    (folder / "eval/gf2-s1/piqa-0shot.parquet").unlink()
    table = differences.differences(read(three_seeds, folder, with_curves=False))
    assert "PIQA, acc, gf2: no scores by document of gf2-s1." in table.notes
    (row,) = (row for row in table.rows if row[:2] == ("PIQA, acc", "gf2"))
    assert row[2].endswith("[2 of 3]")


def test_a_unit_that_the_metric_does_not_name_is_named(settings, tmp_path):
    """A difference of word perplexities is one of nats per word."""
    chosen = simulate.paper_size(settings)
    folder = tmp_path / "run"
    task = next(task for task in chosen.evaluate.tasks if task.name == "wikitext")
    for position, interface in enumerate(("learned", "gf2")):
        columns = simulate.documents(task, np.random.default_rng(0), position, 50)
        path = folder / f"eval/{interface}-s0/wikitext-0shot.json"
        write_documents(path.with_suffix(".parquet"), columns)
        write_json(path, simulate.evaluation(interface, 0, task, columns))
    rows = {row[:2]: row for row in differences.differences(read(chosen, folder, with_curves=False)).rows}
    assert rows["WikiText, word_perplexity (nats per word)", "gf2"][3] != "–"
