"""The chunked cross entropy against torch's own."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from tokencodes.model.loss import summed_cross_entropy


def case(rows, d_model, vocab_size, seed, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, d_model, generator=generator, dtype=dtype).requires_grad_()
    weight = torch.randn(vocab_size, d_model, generator=generator, dtype=dtype).requires_grad_()
    return hidden, weight, torch.randint(vocab_size, (rows,), generator=generator)


@given(
    rows=st.integers(1, 70),
    d_model=st.integers(1, 20),
    vocab_size=st.integers(2, 60),
    chunk=st.integers(1, 80),
    factor=st.floats(-3, 3).filter(lambda x: abs(x) > 0.01),
    seed=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_value_and_gradients_equal_torch(rows, d_model, vocab_size, chunk, factor, seed):
    hidden, weight, targets = case(rows, d_model, vocab_size, seed)
    (summed_cross_entropy(hidden, weight, targets, chunk) * factor).backward()
    found = hidden.grad, weight.grad
    hidden, weight, targets = case(rows, d_model, vocab_size, seed)
    expected = F.cross_entropy(hidden @ weight.T, targets, reduction="sum")
    (expected * factor).backward()
    value = summed_cross_entropy(hidden, weight, targets, chunk)
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(found, (hidden.grad, weight.grad), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("frozen", ["hidden", "weight", "both"])
def test_only_what_asks_gets_a_gradient(frozen):
    hidden, weight, targets = case(5, 4, 7, 0)
    hidden.requires_grad_(frozen == "weight")
    weight.requires_grad_(frozen == "hidden")
    loss = summed_cross_entropy(hidden, weight, targets, 2)
    assert loss.requires_grad == (frozen != "both")
    if loss.requires_grad:
        loss.backward()
    assert (hidden.grad is None) == (frozen != "weight") and (weight.grad is None) == (frozen != "hidden")


@pytest.mark.parametrize(("grad", "products"), [(True, 3), (False, 1)])
def test_without_gradients_only_the_logits_are_computed(grad, products):
    hidden, weight, targets = case(32, 8, 50, 0)
    with torch.set_grad_enabled(grad), FlopCounterMode(display=False) as counter:
        summed_cross_entropy(hidden, weight, targets, 8)
    assert counter.get_total_flops() == products * 2 * 32 * 8 * 50


def test_extreme_logits_stay_finite():
    hidden = torch.full((3, 2), 1e4).requires_grad_()
    weight = torch.tensor([[1.0, 1.0], [-1.0, -1.0]]).requires_grad_()
    loss = summed_cross_entropy(hidden, weight, torch.tensor([0, 0, 1]), 2)
    loss.backward()
    assert loss.item() == pytest.approx(4e4) and hidden.grad.isfinite().all() and weight.grad.isfinite().all()


def test_under_autocast_products_are_bfloat16_and_the_softmax_is_not():
    hidden, weight, targets = case(64, 32, 50, 1)
    with torch.autocast("cpu", torch.bfloat16):
        low = summed_cross_entropy(hidden, weight, targets, 16)
        expected = F.cross_entropy(F.linear(hidden, weight).float(), targets, reduction="sum")
    torch.testing.assert_close(low, expected, rtol=1e-6, atol=0)
    low.backward()
    assert hidden.grad.dtype == weight.grad.dtype == torch.float32
