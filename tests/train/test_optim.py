"""The schedule against its closed form, and which tensors decay."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from making import create
from tokencodes.interfaces.spec import CodeInterface, TableInterface
from tokencodes.model.spec import Model
from tokencodes.train import optim
from tokencodes.train.spec import Train

BASE = {
    "max_steps": 100,
    "warmup_steps": 10,
    "peak_lr": 1e-3,
    "min_lr": 1e-4,
    "n_gpus": 1,
    "micro_batch_size": 1,
    "grad_accum_steps": 1,
    "tokens_per_step": 8,
    "checkpoint_every": 10,
    "validate_every": 10,
    "validation_windows": 1,
}
MODEL = Model(vocab_size=50, d_model=16, n_layers=2, n_heads=2, d_ff=24, context_length=8)
BINARY = CodeInterface(kind="code", codebook={"kind": "binary"})
TABLE = TableInterface(kind="table")


@given(
    max_steps=st.integers(2, 400_000),
    warmup=st.floats(0, 0.99),
    peak=st.floats(1e-6, 1.0),
    low=st.floats(0, 1),
    at=st.floats(0, 1),
)
def test_rate_at_any_step(max_steps, warmup, peak, low, at):
    warmup_steps = int(warmup * (max_steps - 1))
    train = Train(
        **{**BASE, "max_steps": max_steps, "warmup_steps": warmup_steps, "peak_lr": peak, "min_lr": peak * low}
    )
    step = 1 + int(at * (max_steps - 1))
    rate = optim.learning_rate(step, train)
    if step <= warmup_steps:
        assert rate == pytest.approx(peak * step / warmup_steps)
    else:
        x = (step - warmup_steps) / (max_steps - warmup_steps)
        assert rate == pytest.approx(peak * low + peak * (1 - low) * math.cos(math.pi * x / 2) ** 2, abs=1e-12)
    assert optim.learning_rate(max_steps, train) == pytest.approx(peak * low, abs=1e-15)


def test_the_papers_schedule():
    train = Train(**{**BASE, "max_steps": 382_500, "warmup_steps": 2000, "peak_lr": 1.5e-4, "min_lr": 1e-5})
    rates = {step: optim.learning_rate(step, train) for step in (1, 1000, 2000, 192_250, 382_500)}
    assert rates[1] == 7.5e-8 and rates[1000] == 7.5e-5 and rates[2000] == 1.5e-4
    assert rates[192_250] == pytest.approx(8e-5) and rates[382_500] == 1e-5


@pytest.mark.parametrize("spec", [BINARY, TABLE], ids=["binary", "learned"])
def test_decay_acts_on_matrices_alone_and_no_buffer_is_optimised(spec):
    net = create(spec, MODEL)
    optimizer = optim.build(net, Train(**{**BASE, "weight_decay": 0.01}))
    names = {id(parameter): name for name, parameter in net.named_parameters()}
    decayed, plain = ([names[id(p)] for p in group["params"]] for group in optimizer.param_groups)
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.01, 0.0]
    assert all("norm" in name for name in plain) and len(plain) == 2 * MODEL.n_layers + 1
    assert ("decoder.input.weight" in decayed) == (spec is TABLE) and "lm_head.weight" in decayed
    assert len(decayed) + len(plain) == len(names)
    assert not any("codebook" in name for name in decayed + plain)


def test_updates_equal_adamw_by_its_definition():
    """One matrix and one norm, three updates, by Loshchilov & Hutter's formula in float64."""
    train = Train(**{**BASE, "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.9, "adam_eps": 1e-6})
    net = torch.nn.ModuleDict({"w": torch.nn.Linear(3, 2, bias=False), "n": torch.nn.LayerNorm(3, bias=False)})
    generator = torch.Generator().manual_seed(0)
    values = {name: p.detach().double().clone() for name, p in net.named_parameters()}
    first = {name: torch.zeros_like(value) for name, value in values.items()}
    second = {name: torch.zeros_like(value) for name, value in values.items()}
    optimizer = optim.build(net, train)
    for step in range(1, 4):
        rate = optim.learning_rate(step, train)
        optim.set_learning_rate(optimizer, rate)
        for name, parameter in net.named_parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
            grad = parameter.grad.double()
            first[name] = 0.8 * first[name] + 0.2 * grad
            second[name] = 0.9 * second[name] + 0.1 * grad**2
            decay = 0.1 if parameter.dim() == 2 else 0.0
            values[name] *= 1 - rate * decay
            mean, square = first[name] / (1 - 0.8**step), second[name] / (1 - 0.9**step)
            values[name] -= rate * mean / (square.sqrt() + 1e-6)
        optimizer.step()
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter.detach().double(), values[name], rtol=1e-5, atol=1e-7)


def test_state_survives_its_tensors():
    train = Train(**BASE)
    nets = [create(BINARY, MODEL) for _ in range(2)]
    optimizers = [optim.build(net, train) for net in nets]

    def step(which):
        net, optimizer = nets[which], optimizers[which]
        optimizer.zero_grad()
        net(torch.arange(8)[None]).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step(0)
    nets[1].load_state_dict(nets[0].state_dict())
    saved = {name: tensor.clone() for name, tensor in optim.state_tensors(nets[0], optimizers[0]).items()}
    assert len(saved) == 3 * len(list(nets[0].parameters()))
    optim.load_state(nets[1], optimizers[1], saved)
    step(0)
    step(1)
    for a, b in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(a, b)
