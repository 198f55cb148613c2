"""The engine against lm-eval's own HFLM, and against log-softmax over all positions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from tokenizers.processors import TemplateProcessing
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    PreTrainedTokenizerFast,
)

import making
from tokencodes.errors import UserError
from tokencodes.evaluate import engine as engine_module
from tokencodes.evaluate import tasks
from tokencodes.evaluate.engine import Engine
from tokencodes.evaluate.packaged import PACKAGED
from tokencodes.evaluate.spec import Evaluate
from tokencodes.evaluate.taskdata import TaskData, open_data
from tokencodes.interfaces.spec import CodeInterface
from tokencodes.model import adapter, hf
from tokencodes.model.spec import Model

TOLERANCE = 1e-4  # nats, fp32
ROUNDING = 2e-7  # relative: HFLM adds up a continuation in fp32, the engine in fp64
CHOICE_TASKS = (
    "hellaswag",
    "piqa",
    "winogrande",
    "arc_easy",
    "arc_challenge",
    "openbookqa",
    "commonsense_qa",
    "lambada_openai",
)
MakeLlama = Callable[..., LlamaForCausalLM]
MAX_SMALL = 16  # context of the model that random requests overflow


def scored(*pairs: tuple[str, str]) -> list[Instance]:
    """Requests as a task makes them, one per document."""
    return [Instance("loglikelihood", {}, pair, 0, metadata=("given", number, 1)) for number, pair in enumerate(pairs)]


def rolling(*texts: str) -> list[Instance]:
    return [
        Instance("loglikelihood_rolling", {}, (text,), 0, metadata=("given", number, 1))
        for number, text in enumerate(texts)
    ]


def assert_same(ours: list[tuple[float, bool]], theirs: list[tuple[float, bool]]) -> None:
    assert [greedy for _, greedy in ours] == [greedy for _, greedy in theirs]
    np.testing.assert_allclose(
        [value for value, _ in ours], [value for value, _ in theirs], rtol=ROUNDING, atol=TOLERANCE
    )


def of_ours(vocab_size: int, context_length: int) -> hf.TokenCodesForCausalLM:
    """A small model with a GF2 code book and random weights."""
    backbone = Model(
        vocab_size=vocab_size, d_model=32, n_layers=2, n_heads=2, d_ff=64, context_length=context_length, init_std=0.3
    )
    codes = CodeInterface(kind="code", codebook={"kind": "gf2"})
    net = making.create(codes, backbone)
    return adapter.from_transformer(net, adapter.to_config(codes, making.inputs_of(codes, backbone), backbone))


def requests_of(task: str, data: TaskData, limit: int, scratch: Path) -> list[Instance]:
    found = tasks.load(task, 0, data, scratch)["tasks"][task]
    found.build_all_requests(limit=limit)
    return found.instances


@pytest.mark.parametrize("task", CHOICE_TASKS)
def test_real_documents_score_as_in_hflm(
    task: str, engine: Engine, hflm: HFLM, packaged: Path, configure: Callable[..., Evaluate], tmp_path: Path
) -> None:
    requests = requests_of(task, open_data(configure(task), task, packaged), 30, tmp_path)
    fitting = [request for request in requests if len(engine.tok_encode(request.args[1])) < engine.max_length]
    assert len(fitting) > 0.9 * len(requests)
    assert_same(engine.loglikelihood(fitting), hflm.loglikelihood(fitting))


def test_few_shot_mmlu_scores_as_in_hflm(engine: Engine, hflm: HFLM, mmlu: dict[str, Any]) -> None:
    """One-letter answers share a row, and five examples overflow the context."""
    requests = []
    for task in mmlu["tasks"].values():
        task.build_all_requests(limit=1)
        requests += task.instances
    assert len(requests) == 57 * 4
    assert_same(engine.loglikelihood(requests), hflm.loglikelihood(requests))
    assert len({(request.task_name, request.doc_id) for request in requests} & engine.truncated) > 50


def test_rolling_scores_as_in_hflm(engine: Engine, hflm: HFLM, packaged: Path) -> None:
    import pyarrow.parquet as pq

    passages = pq.read_table(packaged / "lambada_openai/default/test.parquet")["text"].to_pylist()
    texts = ["", "x", *passages[:10], " ".join(passages[10:25]), "<|endoftext|>" + passages[25]]
    ours, theirs = engine.loglikelihood_rolling(rolling(*texts)), hflm.loglikelihood_rolling(rolling(*texts))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=TOLERANCE)
    assert ours[0] == 0.0


text = st.text(st.sampled_from("ab 1.\n\té\U0001f600Z"), max_size=40)


@pytest.fixture(scope="module")
def cramped(make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast) -> tuple[Engine, HFLM]:
    model = make_llama(seed=1, context=MAX_SMALL)
    return Engine(model, tokenizer, max_batch_tokens=64), HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1)


@given(pairs=st.lists(st.tuples(text, text), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_requests_score_as_in_hflm(cramped: tuple[Engine, HFLM], pairs: list[tuple[str, str]]) -> None:
    """Empty contexts, contexts that overflow, white space at the seam; where HFLM refuses, see the tests below."""
    ours, theirs = cramped
    for pair in pairs:
        try:
            expected = theirs.loglikelihood(scored(pair))
        except (AssertionError, IndexError):  # no token of its own, or longer than the window
            continue
        assert_same(ours.loglikelihood(scored(pair)), expected)


@given(texts=st.lists(text, min_size=1, max_size=4))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_random_texts_roll_as_in_hflm(cramped: tuple[Engine, HFLM], texts: list[str]) -> None:
    ours, theirs = cramped
    np.testing.assert_allclose(
        ours.loglikelihood_rolling(rolling(*texts)),
        theirs.loglikelihood_rolling(rolling(*texts)),
        rtol=1e-6,
        atol=TOLERANCE,
    )


def all_log_probabilities(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)


def test_a_continuation_longer_than_the_window_is_scored_whole(cramped: tuple[Engine, HFLM]) -> None:
    """HFLM refuses it; each of its tokens is predicted once, with the context that its window gives."""
    engine, hflm = cramped
    context, continuation = "a b", " " + " ".join("1Z.b" * 3)
    before = engine.tok_encode(context)
    ids = engine.tok_encode(context + continuation)[len(before) :]
    assert MAX_SMALL < len(ids) < 2 * MAX_SMALL
    with pytest.raises(AssertionError):
        hflm.loglikelihood(scored((context, continuation)))
    first = all_log_probabilities(engine.model, [before[-1], *ids[: MAX_SMALL - 1]])
    rest = all_log_probabilities(engine.model, [*before, *ids][-MAX_SMALL - 1 : -1])
    tail = len(ids) - MAX_SMALL
    expected = sum(first[i, token] for i, token in enumerate(ids[:MAX_SMALL]))
    expected += sum(rest[MAX_SMALL - tail + i, token] for i, token in enumerate(ids[MAX_SMALL:]))
    engine.truncated.clear()
    ((value, _),) = engine.loglikelihood(scored((context, continuation)))
    assert value == pytest.approx(float(expected), abs=TOLERANCE)
    assert engine.truncated == {("given", 0)}


def test_a_continuation_without_a_token_is_named(engine: Engine) -> None:
    with pytest.raises(UserError, match=r"given, document 1: .* continuation"):
        engine.loglikelihood(scored(("a", " b"), ("a", "")))


def test_only_what_overflows_is_counted(cramped: tuple[Engine, HFLM]) -> None:
    engine, _ = cramped
    engine.truncated.clear()
    ids = engine.tok_encode("1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1")
    fits, over = (engine.tokenizer.decode(ids[:length]) for length in (MAX_SMALL, MAX_SMALL + 1))
    last = engine.tokenizer.decode(ids[:1])
    assert [len(engine.tok_encode(text + last)) for text in (fits, over)] == [MAX_SMALL + 1, MAX_SMALL + 2]
    engine.loglikelihood(scored((fits, last), (over, last)))
    assert engine.truncated == {("given", 1)}


def test_scores_do_not_depend_on_the_batch(
    llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, packaged: Path, configure: Callable, tmp_path: Path
) -> None:
    requests = requests_of("hellaswag", open_data(configure("hellaswag"), "hellaswag", packaged), 12, tmp_path)
    expected = Engine(llama, tokenizer, max_batch_tokens=1).loglikelihood(requests)
    for tokens in (300, 1_000_000):
        assert_same(Engine(llama, tokenizer, max_batch_tokens=tokens).loglikelihood(requests), expected)
    assert_same(Engine(llama, tokenizer, max_batch_tokens=300).loglikelihood(requests[::-1])[::-1], expected)


ids = st.lists(st.integers(0, 2), min_size=1, max_size=MAX_SMALL).map(tuple)


@given(
    requests=st.lists(st.tuples(ids, ids), min_size=1, max_size=12),
    max_batch_tokens=st.integers(1, 200),
    costs=st.sampled_from([(1.0, 0.0), (0.0, 1.0), None]),
)
@settings(max_examples=60, deadline=None)
def test_scores_do_not_depend_on_how_the_work_is_cut(
    cramped: tuple[Engine, HFLM],
    requests: list[tuple[tuple[int, ...], tuple[int, ...]]],
    max_batch_tokens: int,
    costs: tuple[float, float] | None,
) -> None:
    """However many tokens a batch has, and whether beginnings are shared always, never, or where it is less work."""
    engine, _ = cramped
    whole = [(("", ""), list(context), list(continuation)) for context, continuation in requests]
    one_by_one = [engine._loglikelihood_tokens([request])[0] for request in whole]
    as_it_was = engine.max_batch_tokens, engine.token_cost, engine.pair_cost
    try:
        engine.max_batch_tokens = max_batch_tokens
        if costs:
            engine.token_cost, engine.pair_cost = costs
        assert_same(engine._loglikelihood_tokens(whole), one_by_one)
    finally:
        engine.max_batch_tokens, engine.token_cost, engine.pair_cost = as_it_was


def test_a_shared_context_is_computed_once(
    make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast, packaged: Path, configure: Callable, tmp_path: Path
) -> None:
    requests = requests_of("hellaswag", open_data(configure("hellaswag"), "hellaswag", packaged), 24, tmp_path)
    model = make_llama(seed=6, context=512)
    engine = Engine(model, tokenizer, max_batch_tokens=1024)
    engine.proven = engine.max_length  # what it scores twice, to be sure, is not counted here
    computed: list[int] = []
    model.model.norm.register_forward_hook(lambda module, inputs, output: computed.append(output.shape[:2].numel()))
    engine.loglikelihood(requests)
    pairs = [engine._encode_pair(*request.args) for request in requests]
    choices, contexts = (sum(len(ids) for ids in column) for column in zip(*[(b, a) for a, b in pairs], strict=True))
    assert sum(computed) < 1.1 * (contexts / 4 + choices)  # padding, and the last token of each choice is no input


def test_a_model_that_sees_a_window_gets_plain_rows(tokenizer: PreTrainedTokenizerFast) -> None:
    torch.manual_seed(7)
    model = MistralForCausalLM(
        MistralConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            sliding_window=8,
            initializer_range=0.5,
        )
    ).eval()
    engine, theirs = Engine(model, tokenizer, max_batch_tokens=256), HFLM(pretrained=model, tokenizer=tokenizer)
    assert not engine.branching
    pairs = [("word " * 20 + "end", continuation) for continuation in (" of it all", " of them", " and")]
    assert_same(engine.loglikelihood(scored(*pairs)), theirs.loglikelihood(scored(*pairs)))


def local(vocab_size: int) -> GPTNeoForCausalLM:
    """Half of its layers see 24 tokens; its config calls that by no common name."""
    return GPTNeoForCausalLM(
        GPTNeoConfig(
            vocab_size=vocab_size,
            hidden_size=32,
            num_layers=2,
            num_heads=2,
            attention_types=[[["global", "local"], 1]],
            window_size=24,
            max_position_embeddings=128,
            initializer_range=0.5,
        )
    )


def long_rope(vocab_size: int) -> Phi3ForCausalLM:
    """Its rotary embeddings change beyond 32 tokens, by the longest row of a batch."""
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    return Phi3ForCausalLM(
        Phi3Config(
            vocab_size=vocab_size,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            original_max_position_embeddings=32,
            max_position_embeddings=128,
            rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, **factors},
            pad_token_id=0,
            initializer_range=0.5,
        )
    )


@pytest.mark.parametrize("make", [local, long_rope])
@pytest.mark.parametrize("max_batch_tokens", [1, 2048])
def test_a_model_whose_scores_hang_on_what_is_beside_them_gets_rows_alone(
    make: Callable, max_batch_tokens: int, tokenizer: PreTrainedTokenizerFast
) -> None:
    torch.manual_seed(9)
    model = make(len(tokenizer)).eval()
    engine = Engine(model, tokenizer, max_batch_tokens=max_batch_tokens)
    theirs = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1)
    pairs = [(f"{start} word" * 8, after) for start in ("one", "two") for after in (" of it all", " of them", " and")]
    pairs += [("the " * 40 + "end", after) for after in (" of it all", " of them and of it all", " and")]
    assert_same(engine.loglikelihood(scored(*pairs)), theirs.loglikelihood(scored(*pairs)))
    assert max_batch_tokens == 1 or not engine.branching


def test_a_model_that_minds_padding_gets_batches_of_one_row(
    make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_llama(seed=9)
    forward = model.model.forward

    def minding(input_ids: torch.Tensor, **keys: Any) -> Any:
        found = forward(input_ids=input_ids, **keys)
        found.last_hidden_state = found.last_hidden_state * (1 + input_ids.shape[1] / 50)
        return found

    monkeypatch.setattr(model.model, "forward", minding)
    engine = Engine(model, tokenizer, max_batch_tokens=512)
    theirs = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1)
    pairs = [("word " * n + "end", " of it all") for n in (1, 5, 9, 20)]
    assert_same(engine.loglikelihood(scored(*pairs)), theirs.loglikelihood(scored(*pairs)))
    assert engine.alone


def test_a_model_that_ignores_the_mask_is_found_out(
    make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_llama(seed=8)
    forward = model.model.forward
    monkeypatch.setattr(model.model, "forward", lambda attention_mask=None, **keys: forward(**keys))
    assert not Engine(model, tokenizer, max_batch_tokens=256).branching


def test_the_head_runs_on_scored_positions_alone(make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast) -> None:
    """Once a position, a chunk at a time; a common beginning has its positions once."""
    model = make_llama(seed=2)
    engine = Engine(model, tokenizer, max_batch_tokens=4096)
    engine.chunk_rows, engine.proven = 64, engine.max_length
    rows: list[int] = []
    model.lm_head.register_forward_hook(lambda module, inputs, output: rows.append(len(inputs[0])))
    context = "the old man had said that he would not go there"
    continuations = [" and", " but", " because he was" * 20]
    pairs = [(context, continuation) for continuation in continuations]
    lengths = [
        len(engine.tok_encode(context + continuation)) - len(engine.tok_encode(context))
        for continuation in continuations
    ]
    assert lengths[:2] == [1, 1]
    assert lengths[2] > engine.chunk_rows / 2
    engine.loglikelihood(scored(*pairs, *[(c, " and") for c in continuations * 2]))
    assert max(rows) <= engine.chunk_rows
    distinct = lengths[2] + len(continuations)  # the first target of all three is predicted at one position
    assert sum(rows) == distinct


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk_tokens", [1000, 4096, 10**6])
def test_no_more_logits_exist_than_a_chunk(
    make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast, chunk_tokens: int, bias: bool
) -> None:
    model = make_llama(seed=2)
    if bias:
        model.lm_head.bias = torch.nn.Parameter(torch.randn(len(tokenizer)))
    engine = Engine(model, tokenizer, max_batch_tokens=4096)
    engine.chunk_rows, engine.chunk_tokens = 8, chunk_tokens
    shapes: list[tuple[int, ...]] = []
    logits = engine.logits

    def watched(states: torch.Tensor) -> Any:
        for first, part in logits(states):
            shapes.append(tuple(part.shape))
            yield first, part

    engine.logits = watched
    pairs = [("word " * n + "end", " of it all, and of them") for n in (1, 5, 9)]
    found = engine.loglikelihood(scored(*pairs))
    assert_same(found, HFLM(pretrained=model, tokenizer=tokenizer, batch_size=1).loglikelihood(scored(*pairs)))
    assert max(n for n, _ in shapes) <= 8 and max(width for _, width in shapes) == min(chunk_tokens, len(tokenizer))


@pytest.mark.parametrize("family", ["granite", "gpt2", "tokencodes"])
def test_other_architectures_score_as_in_hflm(family: str, tokenizer: PreTrainedTokenizerFast) -> None:
    """One that scales its logits after the head, one with a tied head and n_positions, and ours."""
    torch.manual_seed(3)
    vocab_size = len(tokenizer)
    if family == "granite":
        model = GraniteForCausalLM(
            GraniteConfig(
                vocab_size=vocab_size,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=1,
                num_attention_heads=2,
                num_key_value_heads=2,
                max_position_embeddings=64,
                logits_scaling=4.0,
                initializer_range=0.5,
            )
        )
    elif family == "gpt2":
        model = GPT2LMHeadModel(
            GPT2Config(vocab_size=vocab_size, n_embd=32, n_layer=1, n_head=2, n_positions=48, initializer_range=0.5)
        )
    else:
        model = of_ours(vocab_size, context_length=40)
    engine = Engine(model.eval(), tokenizer, max_batch_tokens=256)
    assert (engine.head is None) == (family == "granite")
    assert engine.branching
    theirs = HFLM(pretrained=model, tokenizer=tokenizer, batch_size=4)
    assert engine.max_length == theirs.max_length
    pairs = [("", "no context"), ("one two", " three"), ("word " * 60 + "end", " of it all"), ("a  ", "b")]
    pairs += [("word " * 20 + "end", continuation) for continuation in (" of it all", " of them", " and", " of it")]
    assert_same(engine.loglikelihood(scored(*pairs)), theirs.loglikelihood(scored(*pairs)))


@pytest.mark.parametrize("family", ["llama", "ours"])
@pytest.mark.parametrize("name", sorted(PACKAGED))
def test_each_packaged_task_scores_as_in_hflm(
    name: str, family: str, make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast, packaged: Path,
    configure: Callable, tmp_path: Path,
) -> None:  # fmt: skip
    """Log-likelihoods, greedy flags and each document's metrics; of MMLU three subjects."""
    data = open_data(configure(name), name.replace("_continuation", ""), packaged)
    loaded = tasks.load(name, 0, data, tmp_path)["tasks"]
    if family == "llama":
        model = make_llama(seed=11, context=256)
    else:
        torch.manual_seed(11)
        model = of_ours(len(tokenizer), context_length=256).eval()
    engine, theirs = Engine(model, tokenizer, max_batch_tokens=1024), HFLM(pretrained=model, tokenizer=tokenizer)
    for task in list(loaded.values())[:3]:
        task.build_all_requests(limit=4)
        ours, hflm = (scorer.loglikelihood(task.instances) for scorer in (engine, theirs))
        assert_same(ours, hflm)
        by_document: dict[int, list[int]] = {}
        for place, request in enumerate(task.instances):
            by_document.setdefault(request.doc_id, []).append(place)
        for number, places in by_document.items():
            found, expected = (
                task.process_results(task.eval_docs[number], [scores[place] for place in places])
                for scores in (ours, hflm)
            )
            assert found == pytest.approx(expected, rel=1e-5)
    assert engine.branching


def test_bf16_is_autocast_with_a_float32_softmax(
    llama: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, engine: Engine
) -> None:
    ours = Engine(llama, tokenizer, max_batch_tokens=256, autocast=torch.bfloat16)
    theirs = HFLM(
        pretrained=llama,
        tokenizer=tokenizer,
        batch_size=1,
        mixed_precision_dtype="bfloat16",
        softmax_dtype="float32",
    )
    pairs = [("the old man said that", " he would go"), ("and she was", " not there"), ("", "it was so")]
    found, exact = ([value for value, _ in each.loglikelihood(scored(*pairs))] for each in (ours, engine))
    expected = [value for value, _ in theirs.loglikelihood(scored(*pairs))]
    assert found == pytest.approx(expected, rel=0.02)  # bf16 has 8 bits; sums differ in their order
    assert found == pytest.approx(exact, rel=0.1)
    assert found != exact
    assert all(weight.dtype == torch.float32 for weight in llama.parameters())


def test_a_tokenizer_that_adds_bos_adds_it_once(make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast) -> None:
    backend = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = TemplateProcessing(single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)])
    adding = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    model = make_llama(seed=4)
    engine, theirs = Engine(model, adding, max_batch_tokens=512), HFLM(pretrained=model, tokenizer=adding, batch_size=4)
    assert engine.tok_encode("it is")[0] == 0
    assert engine.tok_encode("<|endoftext|>it is").count(0) == 1
    pairs = [("it was", " so"), ("<|endoftext|>it was", " so"), ("", " so"), ("", "<|endoftext|>it")]
    ours = engine.loglikelihood(scored(*pairs))
    assert_same(ours, theirs.loglikelihood(scored(*pairs)))
    assert ours[0] == ours[1]
    texts = ("it was so", "<|endoftext|>it was so")
    np.testing.assert_allclose(
        engine.loglikelihood_rolling(rolling(*texts)), theirs.loglikelihood_rolling(rolling(*texts)), atol=TOLERANCE
    )


def test_logits_that_are_not_finite_name_model_and_document(
    make_llama: MakeLlama, tokenizer: PreTrainedTokenizerFast
) -> None:
    model = make_llama(seed=5)
    token = tokenizer.encode(" he")[-1]
    with torch.no_grad():
        model.model.embed_tokens.weight[token] = float("nan")
    engine = Engine(model, tokenizer, max_batch_tokens=512, name="models/broken")
    engine.loglikelihood(scored(("a", " b")))
    with pytest.raises(UserError, match=r"models/broken: .*not finite on given, document 1"):
        engine.loglikelihood(scored(("a", " b"), ("and he", " said")))


def test_a_task_that_needs_generation_is_refused(engine: Engine) -> None:
    with pytest.raises(UserError, match="generates none"):
        engine.generate_until([])


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_a_line_every_ten_seconds_or_one_that_renews(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(engine_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(engine_module.sys.stderr, "isatty", lambda: terminal, raising=False)
    progress = engine_module.Progress("evaluate m")
    for done in range(1, 41):
        now[0] += 0.6
        progress.show(done, 40)
    said = capsys.readouterr().err
    if terminal:
        assert said.count("\r") == 39
        assert said.endswith("evaluate m: 40 of 40 documents, 1.7/s\n")
    else:
        assert said == "evaluate m: 17 of 40 documents, 1.7/s\nevaluate m: 34 of 40 documents, 1.7/s\n"
