"""Manifests: what is written is read again, and figures that cannot be right are refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tokencodes.data.manifest import (
    Counts,
    ShardManifest,
    ShardTiming,
    SplitCounts,
    StoreManifest,
    TokenizerManifest,
    total,
)
from tokencodes.errors import UserError
from tokencodes.files import digest, write_json

RECORDS = [
    (TokenizerManifest, "tokenizer/manifest.json"),
    (ShardManifest, "store/part-0/manifest.json"),
    (ShardTiming, "store/part-1/timing.json"),
    (StoreManifest, "store/manifest.json"),
]


@pytest.mark.parametrize(("kind", "name"), RECORDS, ids=[kind.__name__ for kind, _ in RECORDS])
def test_what_is_written_is_read_again(tiny, tmp_path, kind, name):
    record = kind.read(tiny.folder / name)
    record.write(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tiny.folder / name).read_bytes()
    assert kind.read(tmp_path / "again.json") == record


@pytest.mark.parametrize(("kind", "name"), RECORDS, ids=[kind.__name__ for kind, _ in RECORDS])
def test_no_key_may_be_missing(tiny, tmp_path, kind, name):
    content = kind.read(tiny.folder / name).content()
    del content["record_sha256"]
    for key in set(kind.model_fields) - {"commit", "format_version"}:
        value = {**content, key: None}
        write_json(tmp_path / "without.json", {**value, "record_sha256": digest(value)})
        with pytest.raises(UserError, match=rf"without\.json: not {kind.kind} \({key}"):
            kind.read(tmp_path / "without.json")


def test_the_keys_that_others_read(tiny):
    """Names at the top level of the files are part of the interface to other programs."""
    counts = {"rows_in", "kept", "dropped", "tokens", "train", "validation", "characters", "bytes", "lengths"}
    shared = {*counts, "format_version", "vocab_size", "tokenizer_sha256", "data_sha256"}
    own = {"schema_version", "record_sha256"}
    shard = ShardManifest.read(tiny.store / "part-0/manifest.json").content()
    assert shard.keys() == {*own, *shared, "shard", "control_token_text", "bytes_without_token", "files"}
    store = StoreManifest.read(tiny.store / "manifest.json").content()
    entropies = {"unigram_entropy", "unigram_cross_entropy"}
    assert store.keys() == {*own, *shared, *entropies, "duplicate_ids_across_shards", "shards", "sha256"}
    assert store["shards"][0].keys() == {*counts - {"lengths"}, "name", "sha256"}
    tokenizer = TokenizerManifest.read(tiny.tokenizer / "manifest.json").content()
    control = {"eos_token_id", "control_tokens", "bytes_without_token"}
    assert tokenizer.keys() == {*own, *control, "sha256", "vocab_size", "merges", "source", "commit"}


def counts_of(**changes):
    one = {"documents": 2, "tokens": 30}
    value = {"rows_in": 5, "kept": 3, "dropped": {"empty_text": 2}, "tokens": 40, "characters": 90, "bytes": 95}
    return {**value, "train": one, "validation": {"documents": 1, "tokens": 10}, **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows_in": 6}, "6 rows in, 3 kept and 2 dropped"),
        ({"dropped": {}}, "5 rows in, 3 kept and 0 dropped"),
        ({"train": {"documents": 3, "tokens": 30}}, "3 rows kept are not the documents of both splits"),
        ({"tokens": 41}, "41 tokens are not those of both splits"),
        ({"kept": -3}, "greater than or equal to 0"),
        ({"rows": 5}, "Extra inputs are not permitted"),
    ],
    ids=str,
)
def test_counts_that_do_not_add_up(changes, said):
    Counts.model_validate(counts_of())
    with pytest.raises(ValidationError, match=said):
        Counts.model_validate(counts_of(**changes))


@pytest.mark.parametrize(
    "lengths",
    [
        {"edges": [1, 2, 2], "kept": [3, 0], "too_few_tokens": [0, 0]},
        {"edges": [1, 2, 3], "kept": [3], "too_few_tokens": [0, 0]},
        {"edges": [1, 2, 3], "kept": [3, 0], "too_few_tokens": [0, 0, 0]},
        {"edges": [1], "kept": [], "too_few_tokens": []},
        {"edges": [1, 2**40], "kept": [-1], "too_few_tokens": [0]},
        {"edges": [1, 2**40], "kept": [3], "too_few_tokens": [0]},  # one of them is not the number of documents
    ],
    ids=str,
)
def test_lengths_that_cannot_be_right(tiny, tmp_path, lengths):
    shard = ShardManifest.read(tiny.store / "part-0/manifest.json")
    with pytest.raises(ValidationError, match="lengths"):
        ShardManifest.model_validate({**shard.model_dump(), "lengths": lengths})


@given(
    st.lists(
        st.tuples(st.lists(st.integers(0, 99), min_size=4, max_size=4), st.dictionaries(st.text(), st.integers(0, 9))),
        min_size=1,
    )
)
def test_totals(shards):
    made = []
    for (train, train_tokens, held_out, held_out_tokens), dropped in shards:
        splits = {
            "train": SplitCounts(documents=train, tokens=train_tokens),
            "validation": SplitCounts(documents=held_out, tokens=held_out_tokens),
        }
        kept, tokens = train + held_out, train_tokens + held_out_tokens
        rows = kept + sum(dropped.values())
        made.append(
            Counts(rows_in=rows, kept=kept, dropped=dropped, tokens=tokens, **splits, characters=tokens, bytes=tokens)
        )
    sums = total(made)
    assert sums.rows_in == sum(each.rows_in for each in made) and sums.bytes == sum(each.bytes for each in made)
    assert sums.train.tokens == sum(each.train.tokens for each in made)
    assert sums.validation.documents == sum(each.validation.documents for each in made)
    assert sum(sums.dropped.values()) == sum(sum(each.dropped.values()) for each in made)


def test_the_identity_of_a_store_is_that_of_its_content(tiny):
    manifest = StoreManifest.read(tiny.store / "manifest.json")
    fields = {name: getattr(manifest, name) for name in StoreManifest.model_fields if name != "sha256"}
    assert StoreManifest.of(**fields) == manifest
    with pytest.raises(ValidationError, match="its sha256 is not that of its other fields"):
        StoreManifest.model_validate({**fields, "sha256": "0" * 64})
