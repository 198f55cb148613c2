"""The backbone against Transformers' Llama with the same weights: logits and every gradient."""

import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from making import create, inputs_of
from peer import llama_of
from tokencodes.interfaces import module
from tokencodes.interfaces.spec import CodeInterface, TableInterface
from tokencodes.model import transformer
from tokencodes.model.spec import Model

TABLE = TableInterface(kind="table")
BINARY = CodeInterface(kind="code", codebook={"kind": "binary"})


def settings(**changes) -> Model:
    base = {"vocab_size": 97, "d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "context_length": 24}
    return Model(**{**base, **changes})


def ours(interface_spec, model: Model, seed: int = 0) -> transformer.Transformer:
    net = create(interface_spec, model, seed)
    for name, parameter in net.named_parameters():  # norms away from one, so that their place matters
        if parameter.dim() < 2:
            generator = torch.Generator().manual_seed(len(name))
            parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    return net


def llama(net: transformer.Transformer, model: Model) -> LlamaForCausalLM:
    """Transformers' model with our weights. Its embedding table holds what our interface gives each token."""
    peer = llama_of(model)
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            parameter.copy_(ours_of(net, name))
    return peer


def ours_of(net: transformer.Transformer, name: str, grad: bool = False) -> torch.Tensor:
    """Our tensor (or its gradient) for a parameter of Llama."""

    def pick(parameter):
        return parameter.grad if grad else parameter.detach()

    if name == "model.embed_tokens.weight":
        table = isinstance(net.decoder.input, torch.nn.Embedding)
        return pick(net.decoder.input.weight) if table else net.decoder.input(torch.arange(net.lm_head.out_features))
    if name == "lm_head.weight":
        return pick(net.lm_head.weight)
    if name == "model.norm.weight":
        return pick(net.decoder.norm.weight)
    _, _, number, *rest = name.split(".")
    block, part = net.decoder.layers[int(number)], ".".join(rest)
    qkv, gate_up = pick(block.attention.qkv.weight).chunk(3), pick(block.mlp.gate_up.weight).chunk(2)
    return {
        "self_attn.q_proj.weight": qkv[0],
        "self_attn.k_proj.weight": qkv[1],
        "self_attn.v_proj.weight": qkv[2],
        "self_attn.o_proj.weight": pick(block.attention.out.weight),
        "mlp.gate_proj.weight": gate_up[0],
        "mlp.up_proj.weight": gate_up[1],
        "mlp.down_proj.weight": pick(block.mlp.down.weight),
        "input_layernorm.weight": pick(block.attention_norm.weight),
        "post_attention_layernorm.weight": pick(block.mlp_norm.weight),
    }[part]


def assert_close(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Within 1e-5 of the tensor's own size."""
    error = (found - expected).norm() / expected.norm()
    assert error < 1e-5, f"{what}: relative difference {error:.2e}"


@pytest.mark.parametrize("spec", [TABLE, BINARY], ids=["learned", "binary"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"d_model": 64, "n_heads": 2, "n_layers": 3, "rope_theta": 500_000.0},
        {"n_heads": 16, "d_ff": 33, "norm_eps": 1e-6},
        {"vocab_size": 515, "n_layers": 1, "context_length": 200},
        {"d_model": 24, "n_heads": 1, "d_ff": 100, "n_layers": 4},
    ],
    ids=str,
)
def test_logits_and_gradients_equal_llama(spec, changes):
    model = settings(**changes)
    net = ours(spec, model)
    peer = llama(net, model)
    tokens = torch.randint(model.vocab_size, (3, model.context_length + 1), generator=torch.Generator().manual_seed(1))
    ids, targets = tokens[:, :-1], tokens[:, 1:]
    logits, expected = net(ids), peer(ids).logits
    assert_close(logits, expected, "logits")
    for output in (logits, expected):
        F.cross_entropy(output.flatten(0, 1), targets.flatten()).backward()
    for name, parameter in peer.named_parameters():
        if name == "model.embed_tokens.weight" and spec is BINARY:
            continue  # a fixed interface has no such gradient
        assert_close(ours_of(net, name, grad=True), parameter.grad, name)


def test_positions_can_be_given():
    net, model = ours(TABLE, settings()), settings()
    ids = torch.arange(10)[None]
    assert torch.equal(net.decoder(ids), net.decoder(ids, positions=torch.arange(10)))
    shifted = net.decoder(ids, positions=torch.arange(10) + 7)  # RoPE sees distances alone
    torch.testing.assert_close(shifted, net.decoder(ids), rtol=1e-4, atol=1e-5)
    far = net.decoder(ids, positions=torch.arange(10) * 2)
    assert (far - net.decoder(ids)).abs().max() > 1e-3
    assert model.context_length == 24


def test_a_later_token_never_changes_an_earlier_output():
    net = ours(BINARY, settings())
    ids = torch.randint(97, (1, 20), generator=torch.Generator().manual_seed(2))
    other = ids.clone()
    other[0, 12] = (ids[0, 12] + 1) % 97
    before, after = net(ids), net(other)
    assert torch.equal(before[:, :12], after[:, :12]) and not torch.equal(before[:, 12:], after[:, 12:])


def test_all_interfaces_start_from_the_same_backbone_and_head():
    model = settings()
    table, binary, again = (create(spec, model, seed) for spec, seed in ((TABLE, 3), (BINARY, 3), (BINARY, 4)))
    shared = [name for name in dict(binary.named_parameters())]
    assert "decoder.input.weight" not in shared
    for name in shared:
        assert torch.equal(table.get_parameter(name), binary.get_parameter(name)), name
    assert not torch.equal(binary.lm_head.weight, again.lm_head.weight)


def test_initial_spread():
    model = settings(d_model=256, d_ff=512, n_layers=8, init_std=0.03)
    net = create(TABLE, model)
    for name, parameter in net.named_parameters():
        if parameter.dim() < 2:
            assert (parameter == 1).all(), name
            continue
        residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
        assert parameter.std().item() == pytest.approx(0.03 / 4 if residual else 0.03, rel=0.05), name


def test_norm_and_rotation_stay_float32_under_autocast():
    net = ours(BINARY, settings())
    seen = {}
    net.decoder.norm.register_forward_hook(lambda module, args, output: seen.update(norm=output.dtype))
    with torch.autocast("cpu", torch.bfloat16):
        cos, _ = transformer.rotation(torch.arange(1000), 8, 10_000.0, torch.float32)
        net(torch.arange(10)[None])
    assert seen["norm"] == torch.float32
    plain, _ = transformer.rotation(torch.arange(1000), 8, 10_000.0, torch.float32)
    assert torch.equal(cos, plain)


def test_interfaces_have_what_they_train():
    model = settings()
    assert [p.shape for p in module.build(inputs_of(TABLE, model).form, 97, 32).parameters()] == [(97, 32)]
    assert not list(module.build(inputs_of(BINARY, model).form, 97, 32).parameters())
    net = create(BINARY, model)
    assert [name for name, _ in net.named_buffers()] == ["decoder.input.codebook"]
    assert "decoder.input.codebook" in net.state_dict()
