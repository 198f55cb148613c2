"""Results laid side by side: the right documents meet, other questions are refused by name, gaps stay gaps."""

import dataclasses
import math
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tokencodes.analysis import paired, pairing
from tokencodes.errors import UserError
from tokencodes.evaluate.scores import Scores
from tokencodes.report import compare

RIGHT, WRONG = [1.0, 1.0, 0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def models(stored, a="a", b="b"):
    """The rows of two models of a folder."""
    sides = (next(iter(pairing.find(stored.root / "eval" / name).values())) for name in (a, b))
    return compare.of_models(*sides).to_dict("records")


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None)
@given(st.permutations(range(6)))
def test_documents_meet_by_id_in_whatever_order_they_lie(stored, order):
    stored.add("a", "piqa", {"acc": RIGHT})
    hashes = [f"{number:064x}" for number in order]
    stored.add("b", "piqa", {"acc": [WRONG[n] for n in order]}, doc_id=list(order), doc_sha256=hashes)
    (row,) = models(stored)
    assert (row["only_a"], row["only_b"], row["n"]) == (2, 0, 6)
    expected = dataclasses.asdict(paired.difference(np.array(RIGHT), np.array(WRONG)))
    for name, value in expected.items():
        np.testing.assert_equal(row[name], value, err_msg=name)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"task_version": 2.0}, "the task version is 1.0 there and 2.0 here"),
        ({"limit": 6}, "the limit is none there and 6 here"),
        ({"engine": "tokencodes.evaluate.engine 2, fp32, cpu"}, "the engine version is"),
        ({"doc_sha256": [f"{n:064x}" for n in (0, 1, 2, 3, 4, 9)]}, "the document set differs: 5 of 6 and 6"),
        ({"doc_id": [0, 1, 2, 3, 4, 7]}, "the document set differs: 5 of 6 and 6"),
    ],
)
def test_what_was_asked_differently_is_refused_by_name(stored, changes, named):
    stored.add("a", "piqa", {"acc": RIGHT})
    stored.add("b", "piqa", {"acc": WRONG}, **changes)
    with pytest.raises(UserError, match=named) as refused:
        models(stored)
    assert "piqa-0shot.json" in str(refused.value) and "\n" not in str(refused.value)


def test_examples_from_other_data_are_refused_where_there_are_examples(stored):
    for shots, refused in ((0, False), (5, True)):
        a = pairing.read(stored.add("a", "mmlu", {"acc": RIGHT}, shots=shots))
        b = pairing.read(stored.add("b", "mmlu", {"acc": WRONG}, shots=shots, data_sha256="e" * 64))
        if refused:
            with pytest.raises(UserError, match="examples before a question"):
                pairing.refuse_unlike(a, b)
        else:
            pairing.refuse_unlike(a, b)


def test_another_device_or_precision_is_paired(stored):
    stored.add("a", "piqa", {"acc": RIGHT})
    stored.add("b", "piqa", {"acc": WRONG}, engine="tokencodes.evaluate.engine 1, bf16, cuda")
    assert models(stored)[0]["n"] == 6


def test_other_units_of_the_same_documents_are_refused(stored):
    stored.add("a", "wikitext", {"loglikelihood": [-30.0, -40.0], "words": [10.0, 11.0]})
    stored.add("b", "wikitext", {"loglikelihood": [-31.0, -41.0], "words": [10.0, 12.0]})
    with pytest.raises(UserError, match="word_perplexity: they count other words"):
        models(stored)


def test_perplexities_are_compared_in_nats_and_bits_by_document(stored):
    nats = {"a": [-70.0, -140.0, -10.0], "b": [-77.0, -150.0, -12.0]}
    for model, values in nats.items():
        stored.add(model, "wikitext", {"loglikelihood": values, "words": [20.0, 50.0, 3.0]})
        stored.add(model, "corpus_validation", {"loglikelihood": values, "bytes": [99.0, 200.0, 10.0]})
    rows = {row["task"]: row for row in models(stored)}
    words, bits = rows["wikitext"], rows["corpus_validation"]
    assert (words["unit"], words["lower"], bits["unit"]) == ("nats per word", True, "bits per byte")
    assert words["difference"] == pytest.approx((220 - 239) / 73)
    assert bits["a"] == pytest.approx(220 / 309 / math.log(2))


def test_a_missing_task_is_a_gap_and_the_rest_is_compared(stored):
    for model in "ab":
        stored.add(model, "piqa", {"acc": RIGHT})
    stored.add("a", "winogrande", {"acc": RIGHT})
    stored.add("b", "hellaswag", {"acc_norm": RIGHT})
    rows = {row["task"]: row for row in models(stored)}
    assert rows["winogrande"]["difference"] is rows["hellaswag"]["difference"] is None
    assert rows["winogrande"]["missing"] == "no result of b" and rows["hellaswag"]["missing"] == "no result of a"
    assert rows["piqa"]["difference"] == 0 and rows["piqa"]["holm"] == 1


def test_a_document_without_a_score_makes_nan_and_counts_in_the_family(stored):
    for model, scores in (("a", [1.0] * 12), ("b", [0.0] * 12)):
        stored.add(model, "piqa", {"acc": scores})
        stored.add(model, "winogrande", {"acc": [*scores[:11], None if model == "b" else 1.0]})
    rows = {row["task"]: row for row in models(stored)}
    assert math.isnan(rows["winogrande"]["difference"]) and math.isnan(rows["winogrande"]["holm"])
    assert rows["winogrande"]["undefined"] == 1
    assert rows["piqa"]["holm"] == pytest.approx(2 * rows["piqa"]["p"])


def test_seeds_are_paired_by_seed_and_unequal_ones_are_refused(stored):
    draw = random.Random(0)
    for seed in (1, 2, 3):
        for model, share in (("learned", 0.6), ("gf2", 0.5)):
            stored.add(f"{model}-s{seed}", "piqa", {"acc": [float(draw.random() < share) for _ in range(50)]})
    (row,) = models(stored, "learned", "gf2")
    assert row["seeds"] == 3 and row["n"] == 50
    one = models(stored, "learned-s2", "gf2-s3")
    assert one[0]["seeds"] == 1
    stored.add("gf2-s4", "piqa", {"acc": RIGHT})
    with pytest.raises(UserError, match=r"learned in .*eval has the seeds 1, 2, 3, gf2 in .*eval 1, 2, 3, 4"):
        models(stored, "learned", "gf2")


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"task_version": 2.0}, "task version"),
        ({"limit": 6}, "limit"),
        ({"doc_sha256": [f"{n:064x}" for n in range(6, 12)]}, "document set"),
        ({"short": True}, "document set"),
    ],
)
def test_any_seed_that_asked_something_else_is_refused(stored, seed, changes, named):
    changes = dict(changes)
    short = changes.pop("short", False)
    for each in (1, 2, 3, 4):
        for model in ("learned", "gf2"):
            scores = RIGHT[:5] if short and each == seed else RIGHT
            stored.add(f"{model}-s{each}", "piqa", {"acc": scores}, **(changes if each == seed else {}))
    with pytest.raises(UserError, match=named):
        models(stored, "learned", "gf2")


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda path: path.with_suffix(".parquet").unlink(), "no such file"),
        (lambda path: path.with_suffix(".parquet").write_bytes(b"PAR1"), "is not the file that"),
        (lambda path: path.write_text("[]"), "not the scores of a model"),
        (lambda path: path.write_text("{"), "not valid JSON"),
        (
            lambda path: path.write_text(path.read_text().replace('"n": 6', '"n": 7')),
            "does not match its record_sha256",
        ),
        (lambda path: Scores.read(path).model_copy(update={"n": 7}).write(path), "counts 7 documents"),
    ],
)
def test_damage_is_one_line_with_the_file(stored, damage, named):
    path = stored.add("a", "piqa", {"acc": RIGHT})
    damage(path)
    with pytest.raises(UserError, match=named) as refused:
        pairing.read(path)
    assert "piqa-0shot" in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_a_flipped_bit_among_the_scores_is_noticed(stored, share):
    draw = random.Random(1)
    path = stored.add("a", "piqa", {"acc": [draw.random() for _ in range(500)]}, doc_id=list(range(500)))
    documents = path.with_suffix(".parquet")
    content = bytearray(documents.read_bytes())
    content[int(share * len(content))] ^= 1
    documents.write_bytes(content)
    with pytest.raises(UserError, match=r"piqa-0shot.parquet: is not the file that piqa-0shot.json was written for"):
        pairing.read(path)


def test_a_document_that_stands_twice_is_refused(stored):
    with pytest.raises(UserError, match="a doc_id occurs twice"):
        pairing.read(stored.add("a", "piqa", {"acc": RIGHT}, doc_id=[0, 1, 2, 3, 4, 4]))


def test_a_path_stands_for_a_model_its_seeds_or_all_models(stored):
    for model in ("learned-s0", "learned-s1", "gf2-s0", "gf2-second-s0", "SmolLM2-135M"):
        stored.add(model, "piqa", {"acc": RIGHT})
        (stored.root / "models" / model).mkdir(parents=True)
    found = pairing.find(stored.root)
    assert set(found) == {"learned", "gf2", "gf2-second", "SmolLM2-135M"}
    assert [model.seed for model in found["learned"]] == [0, 1]
    assert set(pairing.find(stored.root / "eval" / "gf2")) == {"gf2"}
    assert pairing.find(stored.root / "models" / "gf2-s0")["gf2"][0].folder == stored.root / "eval" / "gf2-s0"
    assert pairing.find(stored.root / "eval" / "SmolLM2-135M")["SmolLM2-135M"][0].seed is None
    with pytest.raises(UserError, match="holds no results"):
        pairing.find(stored.root / "eval" / "binary16")
