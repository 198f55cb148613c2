"""The torch module computes what the spec defines, and holds nothing that it was not given."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from making import code
from tokencodes.interfaces import codes, module
from tokencodes.interfaces.inputs import assemble
from tokencodes.interfaces.spec import TableInterface
from tokencodes.interfaces.vocabulary import Vocabulary

INIT_STD = 0.02


def filled(spec, vocab_size: int, d_model: int):
    held = assemble(spec, None, vocab_size, d_model, INIT_STD)
    built = module.build(held.form, vocab_size, d_model)
    built.fill(held.arrays)
    return built


@given(vocab_size=st.integers(2, 500), d_model=st.integers(9, 100), kind=st.sampled_from(["binary", "gf2"]))
@settings(max_examples=60, deadline=None)
def test_tiling_repeats_the_code_and_cuts_the_last_copy(vocab_size, d_model, kind):
    spec = code(kind)
    values = codes.build(spec, Vocabulary(vocab_size))
    identity = np.eye(values.shape[1], dtype=np.float32)
    r = np.concatenate([identity] * (d_model // values.shape[1] + 1))[:d_model]  # R = [I; I; ...], the last copy cut
    x = filled(spec, vocab_size, d_model)(torch.arange(vocab_size))
    assert torch.equal(x, torch.from_numpy(values.astype(np.float32) @ r.T))


def test_trained_codes_are_a_parameter_under_the_same_lift():
    built = filled(code("learned", width=4), 10, 8)
    assert [name for name, _ in built.named_parameters()] == ["codebook"]
    with torch.no_grad():
        built.codebook.copy_(torch.arange(40.0).view(10, 4))
    assert built(torch.tensor([1])).tolist() == [[4, 5, 6, 7, 4, 5, 6, 7]]


def test_a_table_is_an_embedding():
    assert isinstance(
        module.build(assemble(TableInterface(kind="table"), None, 10, 8, 1.0).form, 10, 8), torch.nn.Embedding
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays: arrays.pop("codebook"),
        lambda arrays: arrays.pop("lift"),
        lambda arrays: arrays.update(more=arrays["lift"]),
        lambda arrays: arrays.update(codebook=arrays["codebook"][:-1]),
        lambda arrays: arrays.update(codebook=arrays["codebook"].astype(np.float32)),
        lambda arrays: arrays.update(lift=arrays["lift"].T),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change):
    held = assemble(code("binary", lift="hadamard"), None, 100, 32, INIT_STD)
    arrays = dict(held.arrays)
    change(arrays)
    with pytest.raises(ValueError, match=r"fit|expected"):
        module.build(held.form, 100, 32).fill(arrays)


@pytest.mark.parametrize("kind", ["binary", "gaussian"])
def test_arrays_and_tensors_have_one_hash(kind):
    values = codes.build(code(kind, width=16), Vocabulary(100))
    assert module.sha256(torch.from_numpy(values)) == codes.sha256(values)
