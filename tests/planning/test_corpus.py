"""What the plan states of a corpus: from the best source, which it names; unknown figures are marked as unknown."""

import json
import shutil

import pyarrow.parquet as pq
import pytest

import stages
from tokencodes import cli, config
from tokencodes.data import listing
from tokencodes.data.spec import Expected
from tokencodes.files import read_json
from tokencodes.planning import corpus
from tokencodes.planning.plan import make
from tokencodes.spec import parse
from tokencodes.yamlfile import dump

TOKENS = 100_270_080_000  # of the paper, per model


@pytest.fixture
def paper(root, tmp_path) -> config.Config:
    """config/paper.yaml with its results elsewhere."""
    value = config.load(root / "config/paper.yaml").model_dump(mode="json")
    return parse(config.Config, value | {"results": str(tmp_path)}, "paper")


def with_expected(settings, **expected):
    data = settings.data.model_copy(update={"expected": Expected(**expected)})
    return settings.model_copy(update={"data": data})


def figures(plan):
    """(value, source, bound) by name."""
    return {key: tuple(value.values()) for key, value in plan.items() if isinstance(value, dict) and "source" in value}


def test_the_paper_before_anything_exists(paper):
    plan = make(paper)["data"]
    known = figures(plan)
    assert known["documents"] == (190_168_005, "stated", "") and known["tokens"] == (220_000_000_000, "stated", "")
    value, source, bound = known["epochs"]
    assert (round(value, 3), source, bound) == (0.456, "stated", "at least")  # 100.27 of 220 billion
    value, source, bound = known["draws_a_document"]
    assert (round(value, 3), source, bound) == (0.257, "stated", "at least")  # 48.96 of 190.17 million
    assert plan["windows_per_model"] == TOKENS // 2048
    # at most two bytes per token, and a row per document
    value, source, bound = known["store_bytes"]
    assert 2 * 220e9 < value < 2 * 220e9 + 100 * 190_168_005 and bound == "at most"
    assert known["kept_tokens"] == known["train_documents"] == (None, "", "")
    assert known["raw_bytes"][1] == known["mb_per_cpu_second"][1] == "assumed"
    hours = known["text_bytes"][0] / 1e6 / corpus.MB_PER_CPU_SECOND / 3600
    assert known["cpu_hours"][0] == pytest.approx(hours)
    assert {n: h * int(n) for n, h in plan["wall_hours"].items()} == pytest.approx(
        dict.fromkeys(plan["wall_hours"], hours)
    )


def test_unknown_figures_are_marked(paper, capsys):
    text = "\n".join(corpus.lines(corpus.estimate(paper, TOKENS), paper))
    assert "epochs            at least 0.46 (over all documents); over documents of 2,049+ tokens: known when" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "known when prepared" in text and "  [stated]" in text and "  [assumed]" in text
    nothing = with_expected(paper)
    plan = corpus.estimate(nothing, TOKENS)
    assert {value for value, _, _ in figures(plan).values()} == {None, corpus.MB_PER_CPU_SECOND}
    assert plan["wall_hours"] == {}
    text = "\n".join(corpus.lines(plan, nothing))
    assert "raw shards        known when listed" in text and "epochs            known when prepared" in text


def test_a_stated_share_gives_epochs(paper):
    plan = figures(corpus.estimate(with_expected(paper, tokens=200_000_000_000, kept_share=0.25), TOKENS))
    assert plan["kept_tokens"][0] == 50_000_000_000
    assert plan["epochs"][0] == pytest.approx(TOKENS / (50e9 * 0.999)) and plan["epochs"][2] == "about"
    assert plan["draws_a_document"] == (None, "", ""), "nobody has stated how many documents these are"
    assert plan["store_bytes"][2] == "about"


def test_a_vocabulary_above_16_bits_takes_four_bytes(paper):
    model = paper.model.model_copy(update={"vocab_size": 2**16 + 1})
    wide = figures(corpus.estimate(paper.model_copy(update={"model": model}), TOKENS))
    assert wide["store_bytes"][0] - figures(corpus.estimate(paper, TOKENS))["store_bytes"][0] == 2 * 220e9


def test_sizes_that_the_hub_stated_come_before_what_is_assumed(paper, tmp_path):
    source = paper.data.source
    shards = [f"shard-{i:05d}-of-00234" for i in range(234)]
    entries = {
        name: {"path": source.pattern.format(shard=i), "size": 2_000_000_000 + i, "sha256": "a" * 64}
        for i, name in enumerate(shards)
    }
    question = {key: getattr(source, key) for key in ("repo", "revision", "pattern", "n_shards")}
    path = tmp_path / "paper/data" / listing.listing_name(source)
    listing.Listing(**question, commit="b" * 40, endpoint="https://hub.example", files=entries).write(path)
    plan = figures(corpus.estimate(paper, TOKENS))
    assert plan["raw_bytes"] == (sum(2_000_000_000 + i for i in range(234)), "listing", "")
    assert plan["raw_at_a_time_bytes"] == (2_000_000_233, "listing", "")
    kept = paper.data.model_copy(update={"source": source.model_copy(update={"keep_raw": True})})
    plan = figures(corpus.estimate(paper.model_copy(update={"data": kept}), TOKENS))
    assert plan["raw_at_a_time_bytes"] == plan["raw_bytes"]


@pytest.fixture
def local(tiny, tmp_path):
    """The made-up corpus, nothing of it prepared; and the folder of its store."""
    return tiny.config(results=str(tmp_path / "results")), tmp_path / "results/tiny/data/store"


def test_local_files_are_asked_for_their_footers(local, tiny):
    settings, _ = local
    plan = figures(corpus.estimate(settings, 768))
    paths = sorted((tiny.folder / "corpus").glob("*.parquet"))
    texts = [text for path in paths for text in pq.read_table(path)["text"].to_pylist()]
    assert plan["documents"] == (240, "footers", "") == (len(texts), "footers", "")
    assert plan["raw_bytes"] == (sum(path.stat().st_size for path in paths), "footers", "")
    n_bytes = sum(len(text.encode()) for text in texts)
    assert n_bytes < plan["text_bytes"][0] < n_bytes + 16 * len(texts)  # a length for each, and pages' headers
    assert plan["draws_a_document"][0] == 768 // 16 / 240 and plan["draws_a_document"][2] == "at least"


def test_a_damaged_local_file_is_named(local, tmp_path, tiny, one_line):
    shutil.copytree(tiny.folder / "corpus", tmp_path / "corpus")
    (tmp_path / "corpus/part-1.parquet").write_bytes(b"PAR1")
    settings = tiny.config(data={"source": {"kind": "local", "path": str(tmp_path / "corpus")}})
    (tmp_path / "c.yaml").write_text(dump(settings))
    assert "part-1.parquet is not a whole Parquet file" in one_line("plan", "--config", tmp_path / "c.yaml")


def test_what_was_measured_comes_first(local, tiny):
    settings, store = local
    shutil.copytree(tiny.store, store)
    manifest = read_json(tiny.store / "manifest.json")
    plan = figures(corpus.estimate(with_expected(settings, documents=5, tokens=6, kept_share=0.5), 768))
    assert plan["documents"] == (240, "measured", "")
    assert plan["kept_tokens"] == (manifest["tokens"], "measured", "")
    assert plan["epochs"] == (768 / manifest["train"]["tokens"], "measured", "")
    assert plan["draws_a_document"] == (48 / manifest["train"]["documents"], "measured", "")
    on_disk = sum(path.stat().st_size for path in tiny.store.glob("*/*") if path.suffix in (".arrow", ".npy"))
    assert plan["store_bytes"] == (on_disk, "measured", "")
    timings = [read_json(path) for path in sorted(tiny.store.glob("*/timing.json"))]
    n_bytes, cpu = (sum(timing[key] for timing in timings) for key in ("encoded_bytes", "cpu_s"))
    assert plan["mb_per_cpu_second"] == (pytest.approx(n_bytes / 1e6 / cpu), "measured", "")
    assert plan["cpu_hours"][0] == pytest.approx(cpu / 3600)


def test_one_of_two_shards_stands_for_both(local, tiny):
    settings, store = local
    shutil.copytree(tiny.store / "part-1", store / "part-1")
    plan = figures(corpus.estimate(settings, 768))
    manifest = read_json(tiny.store / "part-1/manifest.json")
    assert plan["kept_tokens"] == (2 * manifest["tokens"], "measured in 1 of 2 shards", "about")
    assert plan["epochs"][0] == 768 / (2 * manifest["train"]["tokens"])
    assert plan["documents"] == (240, "footers", ""), "of both, not of one twice"


def test_shards_of_another_config_or_without_a_record_of_their_time(local, tiny):
    settings, store = local
    shutil.copytree(tiny.store, store)
    for path in store.glob("*/timing.json"):
        path.unlink()
    plan = figures(corpus.estimate(settings, 768))
    assert plan["kept_tokens"][1] == "measured" and plan["mb_per_cpu_second"][1] == "assumed"
    changed = settings.data.model_copy(update={"min_tokens": 18})
    assert figures(corpus.estimate(settings.model_copy(update={"data": changed}), 768))["kept_tokens"][0] is None


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("manifest.json", "[]", "part-0/manifest.json: not the manifest of a shard"),
        ("manifest.json", "{", "part-0/manifest.json: not valid JSON"),
        ("timing.json", "{}", "part-0/timing.json: the timing of a shard of schema version None"),
        ("timing.json", "[1]", "part-0/timing.json: not the timing of a shard"),
    ],
)
def test_damage_is_one_line(local, tiny, tmp_path, one_line, file, content, message):
    settings, store = local
    shutil.copytree(tiny.store, store)
    (store / "part-0" / file).write_text(content)
    (tmp_path / "c.yaml").write_text(dump(settings))
    assert message in one_line("plan", "--config", tmp_path / "c.yaml")


def test_the_command_prints_it(local, tmp_path, capsys):
    settings, _ = local
    (tmp_path / "c.yaml").write_text(dump(settings))
    assert cli.main(["plan", "--config", str(tmp_path / "c.yaml"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["documents"] == {"value": 240, "source": "footers", "bound": ""}
    assert cli.main(["plan", "--config", str(tmp_path / "c.yaml")]) == 0
    assert "  documents         240  [footers]" in capsys.readouterr().out


def test_the_quickstart_states_what_comes_out(quickstart, tmp_path):
    """Held to the real corpus."""
    from tokencodes.data.encoder import Encoder

    stages.build_tokenizer(quickstart, tmp_path / "tokenizer")
    encoder, texts, raw = Encoder(tmp_path / "tokenizer"), [], 0
    for shard in stages.shard_names(quickstart):
        stages.download(quickstart, shard, tmp_path / "raw.parquet")
        texts += pq.read_table(tmp_path / "raw.parquet")["text"].to_pylist()
        raw += (tmp_path / "raw.parquet").stat().st_size
    lengths = [len(tokens) for tokens in encoder.encode_batch(texts)]
    expected = quickstart.data.expected
    assert (expected.documents, expected.tokens) == (len(texts), sum(lengths))
    assert min(lengths) >= quickstart.data.min_tokens and expected.kept_share == 1
    assert expected.raw_bytes == pytest.approx(raw, rel=0.1)  # another release of Arrow may pack otherwise
