"""The Transformers adapter: conventions, generation, and refusal of what is not the config's model."""

import json

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM

from adapted import IDS, INTERFACES, MODEL, edit_tensors, make
from making import inputs_of
from tokencodes.errors import UserError
from tokencodes.interfaces.spec import CodeInterface
from tokencodes.model import adapter, standalone, transformer
from tokencodes.model.loss import summed_cross_entropy


def test_loss_with_unshifted_labels_is_the_trainers_with_shifted_targets(saved):
    net, path = saved("gf2")
    model = adapter.load(path)
    theirs = model(input_ids=IDS, labels=IDS).loss
    ours = summed_cross_entropy(net.decoder(IDS[:, :-1]).flatten(0, 1), net.lm_head.weight, IDS[:, 1:].flatten(), 7) / (
        IDS.shape[0] * (IDS.shape[1] - 1)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=0)
    masked = IDS.clone()
    masked[:, :10] = -100
    assert model(input_ids=IDS, labels=masked).loss != theirs


@pytest.mark.parametrize("kind", ["learned", "gf2", "hadamard"])
def test_generation_is_the_same_with_cache_without_and_left_padded(saved, kind):
    _, path = saved(kind)
    model = adapter.load(path)
    prompt, short = IDS[:1, :9], IDS[1:, :5]
    kwargs = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    alone = [model.generate(each, **kwargs)[0, each.shape[1] :] for each in (prompt, short)]
    assert torch.equal(model.generate(prompt, use_cache=False, **kwargs)[0, 9:], alone[0])
    padded = torch.cat([torch.zeros(1, 4, dtype=torch.long), short], dim=1)
    mask = torch.tensor([[1] * 9, [0] * 4 + [1] * 5])
    both = model.generate(torch.cat([prompt, padded]), attention_mask=mask, **kwargs)[:, 9:]
    assert torch.equal(both[0], alone[0]) and torch.equal(both[1], alone[1])


def test_right_padding_does_not_reach_earlier_positions(saved):
    _, path = saved("binary8")
    model = adapter.load(path)
    mask = torch.ones_like(IDS)
    mask[1, 12:] = 0
    padded = model(IDS, attention_mask=mask).logits
    torch.testing.assert_close(padded[0], model(IDS).logits[0])
    torch.testing.assert_close(padded[1, :12], model(IDS[1:, :12]).logits[0])


def test_cache_in_chunks_equals_one_pass(saved):
    _, path = saved("gf2")
    model = adapter.load(path)
    first = model(IDS[:, :7], use_cache=True)
    second = model(IDS[:, 7:], cache=first.cache, use_cache=True)
    torch.testing.assert_close(torch.cat([first.logits, second.logits], 1), model(IDS).logits, rtol=1e-4, atol=1e-5)
    # a product of another height may be summed in another order, depending on the processor
    torch.testing.assert_close(model(IDS, logits_to_keep=3).logits, model(IDS).logits[:, -3:], rtol=1e-5, atol=1e-5)


@pytest.fixture(scope="module")
def language_model():
    net, settings = make("gf2")
    return adapter.from_transformer(net, settings)


@pytest.mark.parametrize("body", [False, True], ids=["language model", "body"])
def test_the_older_name_of_the_cache_is_the_same_cache(language_model, body):
    model = language_model.model if body else language_model
    whole = model(IDS)[0]
    for name in ("cache", "past_key_values"):
        first = model(IDS[:, :7], use_cache=True)
        second = model(IDS[:, 7:], **{name: first.cache})
        torch.testing.assert_close(second[0], whole[:, 7:], rtol=1e-4, atol=1e-4)
    with pytest.raises(TypeError, match="give the cache once"):
        model(IDS[:, 7:], cache=first.cache, past_key_values=first.cache)


def test_options_do_what_they_do_in_transformers_or_are_refused(language_model):
    model = language_model
    plain = model(IDS)
    out = model(IDS, output_hidden_states=True, output_attentions=False)
    states = out.hidden_states
    assert len(states) == MODEL.n_layers + 1 and torch.equal(states[0], model.model.decoder.input(IDS))
    assert torch.equal(states[-1], model.model(IDS).last_hidden_state) and torch.equal(out.logits, plain.logits)
    as_tuple = model(IDS, labels=IDS, return_dict=False)
    assert isinstance(as_tuple, tuple) and torch.equal(as_tuple[1], plain.logits)
    halved = model(IDS, labels=IDS, num_items_in_batch=2 * IDS[:, 1:].numel()).loss
    torch.testing.assert_close(halved * 2, as_tuple[0])
    for asked in ({"output_attentions": True}, {"token_type_ids": IDS}, {"atention_mask": IDS}):
        for called in (model, model.model):
            with pytest.raises(TypeError, match=f"does not take {next(iter(asked))}"):
                called(IDS, **asked)


def test_generation_reports_its_hidden_states_and_takes_beams(language_model):
    kwargs = {"max_new_tokens": 3, "eos_token_id": None, "pad_token_id": 0, "return_dict_in_generate": True}
    out = language_model.generate(IDS[:1], output_hidden_states=True, num_beams=2, **kwargs)
    assert len(out.hidden_states) == 3 and out.sequences.shape == (1, IDS.shape[1] + 3)


@pytest.mark.parametrize("kind", ["learned", "gf2"])
def test_the_body_alone_loads_from_a_language_model(saved, kind):
    net, path = saved(kind)
    body = AutoModel.from_pretrained(path)
    assert torch.equal(body(IDS).last_hidden_state, net.decoder(IDS))
    edit_tensors(path, lambda tensors: tensors.update({"model.extra": torch.zeros(2)}))
    with pytest.raises(ValueError, match=r"unknown tensors: .*extra"):
        AutoModel.from_pretrained(path)


@pytest.mark.parametrize("kind", ["binary8", "gf2", "orthogonal", "gaussian", "hadamard"])
@pytest.mark.parametrize("token", [0, 77, 199])
def test_one_flipped_entry_of_the_code_book_is_refused_by_name(saved, kind, token):
    _, path = saved(kind)

    def flip(tensors):
        book = tensors["model.decoder.input.codebook"]
        book[token, 3] = 1 - book[token, 3]

    edit_tensors(path, flip)
    with pytest.raises(ValueError, match="codebook is not the one whose hash"):
        adapter.load(path)


@pytest.mark.parametrize(
    "name", ["model.decoder.input.codebook", "lm_head.weight", "model.decoder.layers.1.mlp.down.weight"]
)
def test_a_missing_tensor_is_refused_by_name(saved, name):
    _, path = saved("gf2")
    edit_tensors(path, lambda tensors: tensors.pop(name))
    with pytest.raises(ValueError, match=f"missing tensors: .*{name}"):
        adapter.load(path)


def test_an_unknown_tensor_is_refused_by_name(saved):
    _, path = saved("gf2")
    edit_tensors(path, lambda tensors: tensors.update({"model.extra": torch.zeros(2)}))
    with pytest.raises(ValueError, match=r"unknown tensors: model\.extra"):
        adapter.load(path)


@pytest.mark.parametrize(
    ("section", "change", "said"),
    [
        ("input_sha256", {"codebook": {"uint8": "0" * 64}}, "codebook is not the one"),
        ("input_sha256", {"codebook": {}}, "codebook is not the one"),
        ("input_sha256", {}, "codebook is not the one"),
        ("input_sha256", {"codebook": {"no_such_type": "0" * 64}}, "codebook is not the one"),
        ("input_form", {"width": 7}, "ignore_mismatched_sizes"),
        ("input_form", {"lift": "hadamard"}, "missing tensors: .*lift"),
        ("input_form", {"kind": "table"}, "input_form does not fit interface"),
        ("input_form", {"lift": "twist"}, "lift"),
        ("input_form", {"more": 1}, "unknown key"),
    ],
)
def test_a_changed_input_is_refused(saved, section, change, said):
    _, path = saved("gf2")
    settings = json.loads((path / "config.json").read_text())
    settings[section] = {**settings[section], **change} if change else {}
    (path / "config.json").write_text(json.dumps(settings))
    with pytest.raises((ValueError, UserError, RuntimeError), match=said):
        adapter.load(path)


@pytest.mark.parametrize("kind", ["gf2", "hadamard", "orthogonal", "gaussian"])
def test_a_model_without_its_code_book_cannot_run(kind):
    """A model that was never filled or loaded has no codes; it must not run on whatever lay in memory."""
    section = INTERFACES[kind]
    form = inputs_of(CodeInterface.model_validate(section), MODEL).form
    net = transformer.Transformer(form, MODEL)
    with pytest.raises((RuntimeError, NotImplementedError)):
        net(IDS).sum().item()


def test_the_modelling_code_needs_no_gf2():
    """What travels with the weights knows shapes and hashes, not how codes are made."""
    assert not [name for name in standalone.MODULES if "gf2" in name or "codebook" in name or "codes" in name]


FIXED = ["binary8", "gf2", "hadamard", "orthogonal", "gaussian", "gaussian_orthogonal"]


@pytest.mark.parametrize("kind", FIXED)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("device_map", [None, "cpu"])
def test_what_is_fixed_survives_loading_in_half_precision(saved, kind, dtype, device_map):
    net, path = saved(kind)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, device_map=device_map)
    assert model.lm_head.weight.dtype == dtype
    for name, buffer in net.decoder.input.named_buffers():
        found = model.model.decoder.input.get_buffer(name)
        assert found.dtype == buffer.dtype and torch.equal(found, buffer), name
    assert torch.equal(model.model.decoder.input(IDS), net.decoder.input(IDS))
    assert model(IDS).logits.isfinite().all()


@pytest.mark.parametrize("kind", ["gaussian", "orthogonal", "gaussian_orthogonal"])
def test_a_changed_continuous_buffer_is_refused_in_half_precision_too(saved, kind):
    _, path = saved(kind)

    def nudge(tensors):
        buffer = tensors[f"model.decoder.input.{'codebook' if kind == 'gaussian' else 'lift'}"]
        buffer[3, 1] = torch.nextafter(buffer[3, 1], buffer.new_tensor(torch.inf))

    edit_tensors(path, nudge)
    with pytest.raises(ValueError, match="is not the one"):
        AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16)


@pytest.mark.parametrize("kind", INTERFACES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_meta_device_has_shapes_and_nothing_to_compare(saved, kind, dtype):
    net, path = saved(kind)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, device_map="meta")
    assert {tensor.device.type for tensor in model.state_dict().values()} == {"meta"}
    found = {name.removeprefix("model."): tensor.shape for name, tensor in model.state_dict().items()}
    assert found == {name: tensor.shape for name, tensor in net.state_dict().items()}
