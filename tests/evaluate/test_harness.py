"""What is computed beside lm-eval's own scores."""

from types import SimpleNamespace

import pytest

from tokencodes.evaluate import harness


@pytest.mark.parametrize(
    ("own_scores", "right", "chance"), [(False, 0, {"acc": 0.5, "acc_norm": 0.5}), (True, 0, {}), (False, 2, {})]
)
def test_chance_is_that_of_a_plain_multiple_choice(own_scores: bool, right: int, chance: dict[str, float]) -> None:
    """TruthfulQA's mc2 scores the mass on all that is true: a guesser has no one choice of so many."""
    given = SimpleNamespace(process_results=len if own_scores else None)
    task = SimpleNamespace(
        config=given, multiple_target=right, OUTPUT_TYPE="multiple_choice", doc_to_choice=lambda doc: doc
    )
    assert harness.chance({"t": task}, [("t", {"doc": ["a", "b"]}), ("t", {"doc": ["c", "d"]})]) == chance
