"""`tokencodes compare` as a user calls it."""

import json
import math
import shutil

import pytest
import simulate
from scipy import stats

from tokencodes import cli
from tokencodes.analysis import paired


@pytest.fixture
def compare(capsys):
    """Run it; give exit code, stdout and stderr."""

    def run(*arguments):
        code = cli.main(["compare", *map(str, arguments)])
        out = capsys.readouterr()
        return code, out.out, out.err

    return run


def test_the_table_has_the_statistics_of_the_documents(compare, folder):
    import pyarrow.parquet as pq

    code, out, err = compare(folder / "eval/learned-s0", folder / "eval/gf2-s0", "--json")
    assert (code, err) == (0, "")
    (found,) = json.loads(out)
    rows = {(row["task"], row["metric"]): row for row in found["rows"]}
    a, b = (
        pq.read_table(folder / f"eval/{model}-s0/piqa-0shot.parquet")["acc"].to_numpy() for model in ("learned", "gf2")
    )
    expected = paired.difference(a, b)
    row = rows["piqa", "acc"]
    for key in ("a", "b", "difference", "low", "high", "p", "n", "only_a", "only_b"):
        assert row[key] == getattr(expected, key)
    loss = rows.pop(("held_out_loss", ""))
    p = [row["p"] for row in rows.values()]
    assert [row["holm"] for row in rows.values()] == pytest.approx(list(paired.holm(p)))
    ends = [
        json.loads((folder / f"runs/{model}-s0/final.json").read_text())["val_loss"] for model in ("learned", "gf2")
    ]
    assert [loss["a"], loss["b"], loss["difference"]] == pytest.approx([*ends, ends[0] - ends[1]])
    assert loss["p"] is None and loss["holm"] is None and loss["low"] is None, "one run shows no spread of seeds"
    assert rows["corpus_validation", "bits_per_byte"]["unit"] == "bits per byte"
    text = compare(folder / "eval/learned-s0", folder / "eval/gf2-s0")[1]
    (line,) = (line for line in text.splitlines() if line.startswith("PIQA, acc"))
    assert f"{100 * expected.a:.1f}" in line and f"{expected.only_a} : {expected.only_b}" in line
    assert max(map(len, text.splitlines())) <= 112
    assert "another seed is not counted" in " ".join(text.split())


def test_seeds_are_counted_where_there_are_several(compare, three_seeds, tmp_path):
    folder = simulate.results(three_seeds, tmp_path / "run")
    code, out, _ = compare(folder / "eval/learned", folder / "eval/gf2")
    assert code == 0
    assert "learned (3 seeds)" in out and "from seeds" in " ".join(out.split())
    rows = json.loads(compare(folder / "eval/learned", folder / "eval/gf2", "--json")[1])[0]["rows"]
    assert {row["seeds"] for row in rows} == {3}
    (loss,) = (row for row in rows if row["task"] == "held_out_loss")
    ends = [
        [json.loads((folder / f"runs/{model}-s{seed}/final.json").read_text())["val_loss"] for seed in (0, 1, 2)]
        for model in ("learned", "gf2")
    ]
    assert loss["p"] == pytest.approx(stats.ttest_rel(*ends).pvalue)
    p = [row["p"] for row in rows]
    assert [row["holm"] for row in rows] == pytest.approx(list(paired.holm(p))), "the family is the whole table"


def test_runs_without_tasks_are_compared_by_their_losses(compare, folder, tmp_path):
    shutil.rmtree(folder / "eval")
    for a, b in (("learned-s0", "gf2-s0"), ("binary12-s0", "gf2-s0")):
        for place in ("runs", "models", "eval"):
            code, out, err = compare(folder / place / a, folder / place / b, "--json")
            assert (code, err) == (0, "")
            assert [row["task"] for row in json.loads(out)[0]["rows"]] == ["held_out_loss"]
    assert "Held-out loss (nats per token)" in compare(folder / "runs/learned-s0", folder)[1]
    run = folder / "runs/gf2-s0/final.json"
    simulate.write_json(run, json.loads(run.read_text()) | {"store_sha256": "0" * 64})
    code, _, err = compare(folder / "runs/learned-s0", folder / "runs/gf2-s0")
    assert code == 2 and "no score in common" in err


def test_two_runs_meet_by_the_names_of_their_models(compare, folder, tmp_path):
    other = shutil.copytree(folder, tmp_path / "other")
    shutil.rmtree(other / "eval/gf2-s0")
    shutil.rmtree(other / "runs/gf2-s0")
    found = json.loads(compare(folder, other, "--json")[1])
    assert [[path.rpartition("/")[2] for path in each["a"] + each["b"]] for each in found] == [
        ["binary12-s0"] * 2,
        ["learned-s0"] * 2,
    ]
    assert all(row["difference"] in (0, None) for each in found for row in each["rows"])
    against = json.loads(compare(folder / "eval/learned-s0", folder, "--json")[1])
    assert [each["b"][0].rpartition("/")[2] for each in against] == ["binary12-s0", "gf2-s0"]


def test_refusals_are_lines_with_exit_code_2(compare, folder, tmp_path):
    for task in ("piqa", "hellaswag"):
        path = folder / f"eval/gf2-s0/{task}-0shot.json"
        simulate.write_json(path, json.loads(path.read_text()) | {"limit": 50})
    code, out, err = compare(folder / "eval/learned-s0", folder / "eval/gf2-s0")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 2
    assert all("the limit is 100 there and 50 here" in line for line in err.splitlines())
    code, _, err = compare(folder / "eval/learned-s0", tmp_path / "nothing")
    assert code == 2 and len(err.splitlines()) == 1


def test_gaps_and_nan_are_seen(compare, folder):
    (folder / "eval/gf2-s0/piqa-0shot.json").unlink()
    out = " ".join(compare(folder / "eval/learned-s0", folder / "eval/gf2-s0")[1].split())
    assert "no result of gf2-s0" in out
    assert "acc 100 0.0 0.0 0.0 –" in out, "LAMBADA of a model that never answers has no interval"
    rows = json.loads(compare(folder / "eval/learned-s0", folder / "eval/gf2-s0", "--json")[1])[0]["rows"]
    (gap,) = (row for row in rows if row["task"] == "piqa")
    assert "difference" not in gap and not math.isnan(gap["shots"])
