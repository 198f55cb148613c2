"""One shard: every row is kept or dropped for a reason, whatever the file looks like."""

import collections
import itertools
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy.stats import binomtest

import stages
from tokencodes import cli, config
from tokencodes.data import encoder, prepare, store
from tokencodes.data.encoder import Encoder
from tokencodes.data.manifest import SPLITS
from tokencodes.errors import UserError
from tokencodes.spec import parse
from tokencodes.yamlfile import dump

MIN_TOKENS = 17  # of the made-up corpus: context 16 and one
LONG = "abc dgh fee " * 9
NONE_DROPPED = dict.fromkeys(prepare.REASONS, 0)
some = hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def rows_of_store(out: Path) -> dict[str, dict[str, list[int]]]:
    """By split: the tokens of each document by its id, read with Arrow alone."""
    found = {}
    for split in ("train", "validation"):
        table = pa.ipc.open_file(out / f"{split}.arrow").read_all()
        found[split] = dict(zip(table["id"].to_pylist(), table["tokens"].to_pylist(), strict=True))
    return found


def documents(n=40, start=0):
    return pa.table({"text": [f"{LONG} {i}" for i in range(n)], "id": [f"d{start + i}" for i in range(n)]})


# ---------------------------------------------------------------- accounting


def test_each_reason_and_which_comes_first(bench, monkeypatch):
    monkeypatch.setattr(encoder, "LONGEST", 500)
    long = LONG.encode()
    rows = [  # text, id, what becomes of it
        (long, "kept", None),
        (None, "a", "null_text"),
        (None, None, "null_text"),
        (b"", "b", "empty_text"),
        (b"", None, "empty_text"),
        (long, None, "null_id"),
        (long, "", "null_id"),
        (long, "kept", "duplicate_id"),
        (b"", "kept", "empty_text"),
        (b"\xff" + long, "kept", "duplicate_id"),
        (b"\xff" + long, "bad", "invalid_utf8"),
        (b"\xed\xa0\x80" + long, "surrogate", "invalid_utf8"),
        (b"\xc0\x80" + long, "overlong", "invalid_utf8"),
        (long[:-1] + b"\xe2\x82", "cut in a character", "invalid_utf8"),
        (b"x" * (MIN_TOKENS - 1), "short", "too_few_bytes"),
        (long, "short", "duplicate_id"),
        (b"abc" * 6, "few", "too_few_tokens"),
        (b"\x80", "bad and short", "invalid_utf8"),
        (b"x" * 501, "no place to cut", "unbroken_text"),
        (b"q" * MIN_TOKENS, "just enough", None),  # the made-up language has no q: a token a byte
    ]
    manifest = bench.prepare(
        pa.table({"text": pa.array([row[0] for row in rows], pa.binary()), "id": [row[1] for row in rows]})
    )
    expected = collections.Counter(row[2] for row in rows)
    assert manifest["kept"] == expected.pop(None) == 2
    assert manifest["dropped"] == {**NONE_DROPPED, **expected} and all(manifest["dropped"].values())
    assert manifest["rows_in"] == len(rows)
    kept = rows_of_store(bench.out)
    assert {*kept["train"], *kept["validation"]} == {"kept", "just enough"}


texts = st.one_of(
    st.none(),
    st.binary(max_size=30),
    st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.text("abc ", min_size=10, max_size=200).map(str.encode),
)
names = st.one_of(st.none(), st.just(b""), st.integers(0, 30).map(lambda i: f"d{i}".encode()), st.binary(max_size=3))


def judged(rows, encoder):
    """What must become of each row, written out again: counts by reason, and tokens by id."""
    seen, dropped, kept = set(), collections.Counter(), {}
    for text, name in rows:
        if text is None or not text:
            dropped["null_text" if text is None else "empty_text"] += 1
        elif not name:
            dropped["null_id"] += 1
        elif name in seen:
            dropped["duplicate_id"] += 1
        else:
            seen.add(name)
            try:
                text, name = text.decode(), name.decode()
            except UnicodeDecodeError:
                dropped["invalid_utf8"] += 1
                continue
            ids = encoder.tokenizer.encode(text, add_special_tokens=False).ids
            if len(ids) < MIN_TOKENS:
                dropped["too_few_bytes" if len(text.encode()) < MIN_TOKENS else "too_few_tokens"] += 1
            else:
                kept[name] = ids
    return dropped, kept


@some
@given(st.lists(st.tuples(texts, names), max_size=40), st.integers(1, 50), st.integers(0, 2**63), st.floats(0, 1))
def test_rows_in_are_rows_kept_and_rows_dropped(new_bench, tiny, rows, group, seed, threshold):
    bench = new_bench(split={"seed": seed, "threshold": threshold})
    encoder = Encoder(tiny.tokenizer)
    dropped, kept = judged(rows, encoder)
    columns = {
        "text": pa.array([row[0] for row in rows], pa.binary()),
        "id": pa.array([r[1] for r in rows], pa.binary()),
    }
    bench.write(pa.table(columns), row_group_size=group)
    if rows and not kept:
        with pytest.raises(UserError, match="shard s: no row was kept"):
            bench.prepare()
        return
    manifest = bench.prepare()
    assert manifest["rows_in"] == len(rows) == manifest["kept"] + sum(manifest["dropped"].values())
    assert manifest["dropped"] == {**NONE_DROPPED, **dropped} and manifest["kept"] == len(kept)
    found = rows_of_store(bench.out)
    assert {**found["train"], **found["validation"]} == kept
    for split in SPLITS:
        tokens = sum(len(ids) for ids in found[split].values())
        assert manifest[split] == {"documents": len(found[split]), "tokens": tokens}
    assert manifest["tokens"] == manifest["train"]["tokens"] + manifest["validation"]["tokens"]
    assert manifest["characters"] == sum(len(encoder.tokenizer.decode(ids)) for ids in kept.values())
    counts = np.load(bench.out / "unigram.npy")
    for row, split in zip(counts, SPLITS, strict=True):
        tokens = np.concatenate([[], *found[split].values()]).astype(int)
        assert row.tolist() == np.bincount(tokens, minlength=300).tolist()


def test_lengths_by_bin_and_what_the_work_took(bench):
    texts = ["q" * n for n in (MIN_TOKENS, 18, 22, 23, 64, 90, 91, 1000)] + ["abc" * 6, "abc" * 7]
    manifest = bench.prepare(pa.table({"text": texts, "id": list(map(str, range(len(texts))))}))
    lengths = manifest["lengths"]
    assert lengths["edges"][:10] == [1, 2, 4, 5, 8, 11, 16, 22, 32, 45]
    bins = dict(zip(lengths["edges"], zip(lengths["kept"], lengths["too_few_tokens"], strict=True), strict=False))
    few = [len(Encoder(bench.tiny.tokenizer).encode_batch([text])[0]) for text in texts[-2:]]
    assert all(n < MIN_TOKENS for n in few)
    below = collections.Counter(max(edge for edge in bins if edge <= n) for n in few)
    found = {edge: counts for edge, counts in bins.items() if counts != (0, 0)}
    kept = {16: (2, 0), 22: (2, 0), 64: (1, 0), 90: (2, 0), 724: (1, 0)}
    assert found == {edge: (0, n) for edge, n in below.items()} | kept
    assert sum(lengths["kept"]) == manifest["kept"] and sum(lengths["too_few_tokens"]) == 2
    assert manifest["bytes"] == sum(map(len, texts[:-2]))
    timing = json.loads((bench.out / "timing.json").read_text())
    assert timing["encoded_bytes"] == sum(map(len, texts)) and timing["raw_bytes"] == bench.raw.stat().st_size
    assert timing["encoded_tokens"] == manifest["tokens"] + sum(few)
    assert 0 <= timing["encode_cpu_s"] <= timing["cpu_s"]


@pytest.fixture
def prepared(full, full_config, tmp_path):
    """Prepares texts in a process of their own; the manifest, and the most memory that was resident, in GiB."""

    def run(texts: list[str], **options) -> tuple[dict, float]:
        ids = [f"d{i}" for i in range(len(texts))]
        pq.write_table(pa.table({"text": texts, "id": ids}), tmp_path / "raw.parquet", **options)
        (tmp_path / "config.yaml").write_text(dump(full_config))
        command = [sys.executable, "-m", "tokencodes.cli", "prepare", "--config", tmp_path / "config.yaml"]
        paths = ["--raw", tmp_path / "raw.parquet", "--tokenizer", full, "--out", tmp_path / "out"]
        measure = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
        measure += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        whole = [sys.executable, "-c", measure, *command, "--shard", "s", *paths]
        done = subprocess.run(whole, check=True, capture_output=True, text=True)
        return json.loads((tmp_path / "out" / "manifest.json").read_text()), int(done.stdout.split()[-1]) / 2**20

    return run


def test_a_document_of_100_megabytes_and_one_without_a_break(prepared, speeches):
    """Within 2 GiB, reading and writing included; the second is dropped by name."""
    text = "\n".join(each.decode() for each in speeches.values())
    long = text * (100_000_000 // len(text.encode()) + 1)
    manifest, memory = prepared([text[:50_000], long, "a" * 10_000_000])
    assert manifest["kept"] == 2 and manifest["dropped"]["unbroken_text"] == 1
    assert manifest["bytes"] > 100_000_000 and memory < 2


def test_many_long_documents_in_one_row_group(prepared, speeches):
    """What is in memory is bounded by bytes, whatever the number of rows; an emoji makes Python's text four times as
    long."""
    text = "\n".join(each.decode() for each in speeches.values())[:3_000_000] + "\U0001f600"
    manifest, memory = prepared([text[:50_000], *[text] * 80])
    assert manifest["kept"] == 81 and memory < 1


def test_control_token_text_and_lost_bytes_are_counted(full, full_config, tmp_path):
    rows = [
        f"{LONG}<|endoftext|>{LONG}<|im_end|>",
        f"{LONG}\x04\x06\x04",
        f"{LONG}<|endof text|>",
        LONG,
        "<|endoftext|>",
    ]
    pq.write_table(pa.table({"text": rows, "id": list("abcde")}), tmp_path / "raw.parquet")
    value = full_config.model_dump(mode="json")
    value["data"]["min_tokens"], value["model"]["context_length"], value["train"]["tokens_per_step"] = 17, 16, 16 * 16
    settings = parse(config.Config, value, "test")
    stages.prepare_shard(settings, "s", tmp_path / "raw.parquet", full, tmp_path / "out")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["kept"] == 4 and manifest["dropped"]["too_few_bytes"] == 1  # what is not kept is not counted
    assert manifest["control_token_text"] == 1 and manifest["bytes_without_token"] == 3
    ids = rows_of_store(tmp_path / "out")
    assert min(i for split in ids.values() for document in split.values() for i in document) >= 17


# ---------------------------------------------------------------- file shapes


TEXT_TYPES = [
    pa.large_string(),
    pa.string_view(),
    pa.binary(),
    pa.large_binary(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.string()),
]


@pytest.mark.parametrize("kind", TEXT_TYPES, ids=str)
@pytest.mark.parametrize("column", ["text", "id"])
def test_column_types(bench, new_bench, kind, column):
    table = documents()
    table = table.append_column("other", pa.array(range(len(table))))
    other = new_bench()
    manifest = bench.prepare(table)
    at = table.column_names.index(column)
    assert other.prepare(table.set_column(at, column, table[column].cast(kind))) == manifest
    assert pq.read_schema(other.raw).field(column).type == kind
    assert (bench.out / "train.arrow").read_bytes() == (other.out / "train.arrow").read_bytes()


@pytest.mark.parametrize("kind", [pa.int64(), pa.int32(), pa.uint64(), pa.decimal128(10, 0)], ids=str)
def test_ids_that_are_numbers(bench, kind):
    bench.prepare(pa.table({"text": [f"{LONG} {i}" for i in range(9)], "id": pa.array(range(9), kind)}))
    found = rows_of_store(bench.out)
    assert sorted({**found["train"], **found["validation"]}) == [str(i) for i in range(9)]


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
def test_compressions(bench, new_bench, compression):
    other = new_bench()
    assert bench.prepare(documents(), compression="snappy") == other.prepare(documents(), compression=compression)


@pytest.mark.parametrize("options", [{"row_group_size": 1}, {"row_group_size": 7}, {"use_dictionary": False}])
def test_row_groups_and_batches_change_nothing(bench, new_bench, options, monkeypatch):
    expected = bench.prepare(documents())
    monkeypatch.setattr(prepare, "ROWS_AT_A_TIME", 5)
    other = new_bench()
    assert other.prepare(documents(), **options) == expected
    assert (other.out / "train.arrow").read_bytes() == (bench.out / "train.arrow").read_bytes()


def test_columns_of_other_names(new_bench, bench):
    expected = bench.prepare(documents())
    other = new_bench(text_column="content", id_column="a.b")
    manifest = other.prepare(documents().rename_columns(["content", "a.b"]))
    assert rows_of_store(other.out) == rows_of_store(bench.out)
    assert manifest["data_sha256"] != expected["data_sha256"]  # the names are part of what a store was made from


def test_a_text_can_be_its_own_id(new_bench):
    bench = new_bench(id_column="text")
    assert bench.prepare(documents())["kept"] == 40
    assert set(rows_of_store(bench.out)["train"]) <= set(documents()["text"].to_pylist())


# --------------------------------------------------------------- wrong tables


def test_missing_columns(new_bench):
    for key, name in (("text_column", "content"), ("id_column", "name")):
        bench = new_bench(**{key: name})
        with pytest.raises(
            UserError, match=rf"shard s: .*raw\.parquet has no column '{name}' \(data\.{key}\); it has text"
        ):
            bench.prepare(documents())
        assert not (bench.out / "manifest.json").exists()


def test_a_column_that_stands_twice(bench):
    table = documents()
    with pytest.raises(UserError, match=r"has 2 columns 'text' \(data\.text_column\)"):
        bench.prepare(pa.Table.from_arrays([table["text"], table["text"], table["id"]], names=["text", "text", "id"]))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2]),
        pa.array([1.5, None]),
        pa.array([["a"], ["b"]]),
        pa.array([{"text": "a"}, {"text": "b"}]),
        pa.nulls(2),
        pa.array([1, 2]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type).replace(" ", ""),
)
def test_a_text_column_that_holds_no_text(bench, column):
    with pytest.raises(UserError, match=r"column 'text' \(data\.text_column\) holds .*, not text"):
        bench.prepare(pa.table({"text": column, "id": ["a", "b"]}))


@pytest.mark.parametrize("column", [pa.array([["a"], ["b"]]), pa.array([{"x": 1}, {"x": 2}])], ids=["list", "struct"])
def test_an_id_column_that_holds_no_ids(bench, column):
    with pytest.raises(UserError, match=r"column 'id' \(data\.id_column\) holds .*, not ids"):
        bench.prepare(pa.table({"text": [LONG, LONG], "id": column}))


@pytest.mark.parametrize("options", [{}, {"row_group_size": 1}])
def test_a_shard_without_rows_is_whole(bench, options):
    empty = pa.table({"text": pa.array([], pa.string()), "id": pa.array([], pa.string())})
    manifest = bench.prepare(empty, **options)
    assert manifest["rows_in"] == manifest["kept"] == manifest["tokens"] == 0
    assert rows_of_store(bench.out) == {"train": {}, "validation": {}}


def test_a_store_of_a_shard_without_rows_and_one_with(new_bench, tiny):
    bench = new_bench(split={"seed": 0, "threshold": 0.3})
    raw, folders = bench.folder / "raw.parquet", [bench.folder / "store" / name for name in ("empty", "full")]
    for folder, table in zip(folders, (documents().slice(0, 0), documents()), strict=True):
        pq.write_table(table, raw)
        stages.prepare_shard(bench.settings, folder.name, raw, tiny.tokenizer, folder)
    stages.index(bench.settings, folders, bench.folder / "store" / "manifest.json")
    store.verify(bench.folder / "store")
    opened = store.Store.open(bench.folder / "store")
    assert sum(len(shard.keys) for split in SPLITS for shard in opened.split(split)) == 40
    with pytest.raises(UserError, match="split has no document"):
        stages.index(bench.settings, folders[:1], bench.folder / "store" / "manifest.json")


@pytest.mark.parametrize("kind", [pa.binary(16), pa.uuid()], ids=str)
def test_ids_of_a_fixed_number_of_bytes_are_written_as_hex_digits(bench, kind):
    ids = [bytes(range(i, i + 16)) for i in range(200, 203)]
    column = pa.array(ids, pa.binary(16))
    column = pa.ExtensionArray.from_storage(kind, column) if isinstance(kind, pa.BaseExtensionType) else column
    bench.prepare(pa.table({"text": [LONG] * 3, "id": column}))
    found = rows_of_store(bench.out)
    assert {*found["train"], *found["validation"]} == {name.hex() for name in ids}


def test_nothing_kept_says_why(bench):
    with pytest.raises(UserError, match=r"no row was kept \(null_text 2, too_few_bytes 1\); check data\.text_column"):
        bench.prepare(pa.table({"text": [None, None, "short"], "id": ["a", "b", "c"]}))


def test_ids_that_are_not_utf8_drop_their_row_alone(bench):
    ids = pa.array([b"a", b"\xff", b"b"], pa.binary()).view(pa.string())
    manifest = bench.prepare(pa.table({"text": [LONG] * 3, "id": ids}))
    assert manifest["dropped"]["invalid_utf8"] == 1 and manifest["kept"] == 2


# --------------------------------------------------------------------- split


def test_the_key_is_blake2b():
    """Against `printf SEED:ID | b2sum -l 64` of GNU coreutils, whose bytes are read as little-endian."""
    assert prepare.split_key(0, "1790-Washington-1").to_bytes(8, "little").hex() == "c7a3907733e601d8"
    assert prepare.split_key(7, "naïve").to_bytes(8, "little").hex() == "0c6736fd29f171ae"


@pytest.mark.parametrize("threshold", [0.001, 0.05, 0.5])
def test_the_held_out_fraction(threshold):
    n = 50_000
    held_out = sum(prepare.is_validation(prepare.split_key(3, f"id-{i}"), threshold) for i in range(n))
    assert binomtest(held_out, n, threshold).pvalue > 1e-4


def test_thresholds_at_the_ends():
    keys = [0, 1, 2**63, 2**64 - 1]
    assert not any(prepare.is_validation(key, 0.0) for key in keys)
    assert all(prepare.is_validation(key, 1.0) for key in keys)
    assert [prepare.is_validation(key, 0.5) for key in keys] == [True, True, False, False]
    assert prepare.is_validation(2**63 - 1, 0.5)


@pytest.mark.parametrize(("threshold", "full"), [(0, "train"), (1, "validation")])
def test_one_split_can_be_empty(new_bench, threshold, full):
    manifest = new_bench(split={"threshold": threshold}).prepare(documents())
    assert manifest[full]["documents"] == 40 and manifest["tokens"] == manifest[full]["tokens"]


def test_an_id_has_one_split_whatever_its_shard(new_bench):
    """Documents of one shard come back in another order, among others, in another shard."""
    first, second = (new_bench(split={"seed": 5, "threshold": 0.3}) for _ in range(2))
    first.prepare(documents(60))
    second.prepare(pa.concat_tables([documents(30, start=100), documents(60)]).take(list(range(89, -1, -1))))
    one, two = rows_of_store(first.out), rows_of_store(second.out)
    for split, other in (("train", "validation"), ("validation", "train")):
        assert one[split] and one[split].keys() <= two[split].keys() and not one[split].keys() & two[other].keys()
    third = new_bench(split={"seed": 6, "threshold": 0.3})
    third.prepare(documents(60))
    assert rows_of_store(third.out)["validation"].keys() != one["validation"].keys()


# ------------------------------------------------------- tokenizer, commands


def test_a_tokenizer_of_another_size(bench, tiny):
    bench.write(documents())
    settings = tiny.config(model={"vocab_size": 299})
    with pytest.raises(UserError, match=r"has 300 tokens, model\.vocab_size is 299; build it again"):
        stages.prepare_shard(settings, "s", bench.raw, tiny.tokenizer, bench.out)
    assert not bench.out.exists()


def test_no_tokenizer(bench):
    bench.write(documents())
    with pytest.raises(UserError, match=r"manifest\.json: no such file; run the stage that writes it"):
        stages.prepare_shard(bench.settings, "s", bench.raw, bench.folder / "none", bench.out)


def test_above_65536_entries_ids_are_uint32(tiny, tmp_path):
    value = json.loads((tiny.folder / "bpe.json").read_text())
    letters = [token for token in value["model"]["vocab"] if len(token) == 1]
    vocab, merges = dict(value["model"]["vocab"]), [list(merge) for merge in value["model"]["merges"]]
    for a, b, c in itertools.islice(itertools.product(letters, repeat=3), 80_000):
        for left, right in ((a, b), (a + b, c)):
            if left + right not in vocab and len(vocab) < 70_000:
                vocab[left + right] = len(vocab)
                merges.append([left, right])
    big = {**value, "model": {**value["model"], "vocab": vocab, "merges": merges}}
    (tmp_path / "big.json").write_text(json.dumps(big))
    changed = tiny.config(data={"tokenizer": {"kind": "local", "path": str(tmp_path / "big.json")}}).model_dump(
        mode="json"
    )
    changed["model"]["vocab_size"], changed["interfaces"] = 70_000, {"learned": {"kind": "table"}}
    settings = parse(config.Config, changed, "test")
    stages.build_tokenizer(settings, tmp_path / "tokenizer")
    rare = "".join(token for token, i in vocab.items() if i >= 69_990 and token.isascii())
    pq.write_table(pa.table({"text": [LONG + rare], "id": ["a"]}), tmp_path / "raw.parquet")
    stages.prepare_shard(settings, "s", tmp_path / "raw.parquet", tmp_path / "tokenizer", tmp_path / "out")
    for split in SPLITS:
        shard = store.Shard("s", tmp_path / "out" / f"{split}.arrow")
        assert shard.tokens.dtype == np.uint32
    (tokens,) = [ids for split in rows_of_store(tmp_path / "out").values() for ids in split.values()]
    assert tokens == Encoder(tmp_path / "tokenizer").tokenizer.encode(LONG + rare, add_special_tokens=False).ids


def test_command_line(bench, capsys, one_line):
    bench.write(documents())
    assert cli.main(bench.command()) == 0
    assert "prepare s: 40 rows in, 40 kept" in capsys.readouterr().err
    assert (bench.out / "manifest.json").exists()
    said = one_line("prepare", "--out", bench.out, "--shard", "s")
    assert "--config, --raw, --tokenizer missing" in said


def test_no_shard_waits_for_pandas(bench):
    """pyarrow imports it in pa.array and Array.to_numpy: a quarter of a second, in one process per shard."""
    bench.write(pa.table({"text": ["abc dgh fee " * 9] * 3, "id": ["a", "b", "c"]}))
    code = "import sys; from tokencodes import cli; sys.exit(cli.main(sys.argv[1:]) or 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *bench.command()], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
