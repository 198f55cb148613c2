"""The encoder: long texts in parts, tokenizers of other kinds by the reference; always the same ids."""

import hashlib
import json

import numpy as np
import pytest

from plain_bpe import by_reference, changed, same
from tokencodes.data import encoder as encoder_module
from tokencodes.data import pieces
from tokencodes.data.encoder import Encoder


def test_a_long_document(encoder, speeches):
    text = "\n".join(each.decode() for each in list(speeches.values())[:24])
    assert len(text) > 4 * pieces.PART
    same(encoder, [text, "short", text[::-1], ""])
    assert np.array_equal(encoder.reference(text), encoder.encode_batch([text])[0])
    longer = text * (1 + encoder_module.REFERENCE_AT_A_TIME // len(text)) + "\x04"
    assert encoder.reference(longer).tolist() == by_reference(encoder, [longer])[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda v: v["pre_tokenizer"]["pretokenizers"].pop(0),
        lambda v: v["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True),
        lambda v: v["pre_tokenizer"]["pretokenizers"].insert(
            0, {"type": "Split", "pattern": {"Regex": "a 1|\\s+the"}, "behavior": "Isolated", "invert": False}
        ),
        lambda v: v["added_tokens"].append({**v["added_tokens"][0], "content": " of the 1", "special": False}),
    ],
)
def test_other_kinds_are_not_cut(encoder, change, speeches, tmp_path, monkeypatch):
    """Where pieces end is known of one kind alone."""
    value = changed(json.loads(encoder.tokenizer.to_str()), change)
    if not (last := value["added_tokens"][-1])["special"]:
        last["id"] = 1 + max(value["model"]["vocab"].values())
    text = json.dumps(value)
    (tmp_path / "tokenizer.json").write_text(text)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    encoder.manifest.model_copy(update={"sha256": sha256}).write(tmp_path / "manifest.json")
    other = Encoder(tmp_path)
    assert other.fast is None
    whole = " ".join(each.decode() for each in list(speeches.values())[:8])[: 3 * pieces.PART]
    same(other, [whole, "short"])
    assert np.array_equal(other.reference(whole), other.encode_batch([whole])[0])
    monkeypatch.setattr(encoder_module, "LONGEST", len(whole) - 1)
    assert not other.can_be_cut(whole) and encoder.can_be_cut(whole)


def test_a_kind_that_is_not_known_is_encoded_by_the_reference(tiny):
    encoder = Encoder(tiny.tokenizer)
    assert encoder.fast is None
    same(encoder, ["abc dgh fee 12", "", "a" * 100, "é <|endoftext|>"])
