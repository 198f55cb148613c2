"""From a spec to what a model holds: the composition code book x lift x scale, over many random cases."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from making import code
from tokencodes.errors import UserError
from tokencodes.interfaces import codes, lift, module
from tokencodes.interfaces.inputs import assemble, form
from tokencodes.interfaces.spec import TableInterface
from tokencodes.interfaces.vocabulary import Vocabulary

INIT_STD = 0.02


@given(
    kind=st.sampled_from(["binary", "gf2", "linear", "gaussian"]),
    lifted=st.sampled_from(["tile", "hadamard", "orthogonal"]),
    scale=st.sampled_from(["unit", "matched"]),
    vocab_size=st.integers(2, 300),
    d_model=st.integers(16, 96),
    shape=st.sampled_from([(5,), (2, 3), (1, 2, 4)]),
)
@settings(max_examples=80, deadline=None)
def test_a_model_input_is_its_definition(kind, lifted, scale, vocab_size, d_model, shape):
    if kind == "gaussian" and lifted == "hadamard":
        return  # refused by the config
    spec = code(kind, lift=lifted, scale=scale, **({"width": 14} if kind in ("linear", "gaussian") else {}))
    held = assemble(spec, None, vocab_size, d_model, INIT_STD)
    built = module.build(held.form, vocab_size, d_model)
    built.fill(held.arrays)
    ids = torch.randint(vocab_size, shape, generator=torch.Generator().manual_seed(0))
    x = built(ids)
    assert x.shape == (*shape, d_model) and x.dtype == torch.float32
    values = codes.build(spec, Vocabulary(vocab_size))
    defined = lift.lift(values, lifted, d_model, spec.lift_seed) * held.form.scale
    np.testing.assert_allclose(x.numpy(), defined[ids.numpy()], rtol=1e-6, atol=1e-6)
    assert not list(built.parameters())
    if scale == "matched" and values.any():
        norms = np.linalg.norm(defined, axis=1)
        assert np.sqrt((norms**2).mean()) == pytest.approx(INIT_STD * math.sqrt(d_model), rel=1e-4)
    if scale == "unit":
        assert held.form.scale == 1


def test_a_code_book_that_is_given_is_the_one_that_is_used():
    given_ = codes.build(code("gf2", seed=9), Vocabulary(100))
    held = assemble(code("binary"), given_, 100, 32, INIT_STD)
    assert held.arrays["codebook"] is given_ and held.codes_sha256 == codes.sha256(given_)


def test_a_trained_input_has_no_code_book():
    for spec in (TableInterface(kind="table"), code("learned", width=4)):
        held = assemble(spec, None, 100, 32, INIT_STD)
        assert held.codes_sha256 is None and not held.arrays and held.form == form(spec, 100)


def test_codes_that_tokens_share_never_reach_a_model():
    with pytest.raises(UserError, match="distinct codes"):
        assemble(code("binary", width=3), None, 100, 32, INIT_STD)
