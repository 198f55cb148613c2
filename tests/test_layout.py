"""Paths of a run: names go in and come out again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokencodes.layout import Layout, model_name, parse_model_name, parse_task_name, task_name

names = st.from_regex(r"[a-z0-9][a-z0-9_]{0,20}", fullmatch=True)


@given(interface=names, seed=st.integers(0, 2**63 - 1))
def test_a_models_name_says_interface_and_seed(interface, seed):
    assert parse_model_name(model_name(interface, seed)) == (interface, seed)


@given(task=names, shots=st.integers(0, 99))
def test_a_tasks_name_says_task_and_shots(task, shots):
    assert parse_task_name(task_name(task, shots)) == (task, shots)


@pytest.mark.parametrize("name", ["learned", "smollm2_135m", "gf2-s", "gf2-sx", "-s1", "a/b-s1"])
def test_what_is_no_models_name(name):
    assert parse_model_name(name) is None


def test_wildcards_stay_as_they_are():
    layout = Layout("results/x")
    assert layout.final("{interface}-s{seed}") == "results/x/runs/{interface}-s{seed}/final.json"
    assert layout.scores("{model}", "{task}", "{shots}") == "results/x/eval/{model}/{task}-{shots}shot.json"
