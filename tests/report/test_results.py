"""Stored results: what is read, what is a gap, and that damage is named."""

import json
import math
import subprocess
import sys

import pytest
from simulate import write_json

from tokencodes import config
from tokencodes.errors import UserError
from tokencodes.report.results import read
from tokencodes.spec import parse


def test_what_is_missing_is_a_gap_and_what_is_null_is_nan(settings, folder):
    whole = read(settings, folder)
    (folder / "eval/gf2-s0/piqa-0shot.json").unlink()
    path = folder / "eval/learned-s0/hellaswag-0shot.json"
    content = json.loads(path.read_text())
    content["metrics"]["acc"]["value"] = None
    write_json(path, content)
    results = read(settings, folder)
    task = next(task for task in settings.evaluate.tasks if task.name == "piqa")
    assert len(whole.score(task, "acc", "gf2")) == 1
    assert len(results.score(task, "acc", "gf2")) == 0
    assert len(results.score(task, "acc", "learned")) == 1
    hellaswag = next(task for task in settings.evaluate.tasks if task.name == "hellaswag")
    assert math.isnan(results.score(hellaswag, "acc", "learned").value.iloc[0])


def test_an_empty_folder_has_gaps_alone(settings, tmp_path):
    results = read(settings, tmp_path)
    assert len(results.params) == len(results.runs) == len(results.scores) == len(results.checks) == 0
    assert results.store is None
    assert results.unigram() == {}


@pytest.mark.parametrize("stage_name", ["tables", "figures", "report"])
@pytest.mark.parametrize(
    "path",
    [
        "params.json",
        "data/store/manifest.json",
        "runs/gf2-s0/final.json",
        "validation/gf2-s0.json",
        "eval/gf2-s0/piqa-0shot.json",
    ],
)
@pytest.mark.parametrize("content", [b'{"interfaces": {"gf2": ', b"[]", b"{}", b"\xff\xfe"])
def test_a_damaged_file_is_named(stage, folder, stage_name, path, content):
    if path == "params.json" and content == b"{}":
        content = b'{"interfaces": {"gf2": {"trainable": true}}}'
    (folder / path).write_bytes(content)
    code, said = stage(stage_name, folder)
    assert code == 2
    assert path in said
    assert len(said.strip().splitlines()) == 1
    assert not (folder / "tables").exists() and not (folder / "figures").exists()


def put(content, keys, value):
    """Set the value at `keys`; ... deletes it."""
    for key in keys[:-1]:
        content = content[key]
    if value is ...:
        del content[keys[-1]]
    else:
        content[keys[-1]] = value


DAMAGE = [
    (("shards",), {}, "shards"),
    (("shards",), [1], "shards.0"),
    (("shards",), [], "shards"),
    (("shards", 1, "name"), "../x", "shards.1.name"),
    (("shards", 1, "name"), ..., "shards.1.name"),
    (("shards", 1, "kept"), -1, "shards.1.kept"),
    (("shards", 1, "kept"), 59, "shards.1: Value error, 62 rows in, 59 kept"),
    (("shards", 1, "train"), 5, "shards.1.train"),
    (("shards", 1, "validation", "tokens"), 1.5, "shards.1.validation.tokens"),
    (("shards", 1, "bytes"), "many", "shards.1.bytes"),
    (("shards", 1, "dropped"), [], "shards.1.dropped"),
    (("dropped",), 8, "dropped"),
    (("bytes",), 1.5, "bytes"),
    (("kept",), 239, ": Value error, 248 rows in, 239 kept and 8 dropped"),
    (("lengths",), 5, "lengths"),
    (("lengths",), None, "lengths"),
    (("lengths", "edges"), [4, 2, 1], "lengths: Value error, its edges do not rise"),
    (("lengths", "edges"), [1], "lengths.edges"),
    (("lengths", "edges"), "1, 2", "lengths.edges"),
    (("lengths", "kept"), [240], "lengths: Value error, its bins are not one fewer than its edges"),
    (("lengths", "kept"), ..., "lengths.kept"),
    (("lengths", "kept", 0), 1, ": Value error, lengths.kept counts 241 documents"),
    (("lengths", "too_few_tokens", 0), -1, "lengths.too_few_tokens.0"),
    (("lengths", "too_few_tokens", 0), True, ": Value error, lengths.too_few_tokens counts 5 documents"),
]


@pytest.mark.parametrize(("keys", "value", "said"), DAMAGE, ids=str)
def test_a_damaged_value_of_the_store_is_named(settings, folder, keys, value, said):
    path = folder / "data/store/manifest.json"
    content = json.loads(path.read_text())
    put(content, keys, value)
    write_json(path, content)
    with pytest.raises(UserError) as caught:
        read(settings, folder)
    assert f"manifest.json: not the manifest of a store ({said}" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [("wall_s", -1), ("cpu_s", None), ("encode_cpu_s", ...), ("encoded_bytes", 1.5), ("encoded_tokens", "many")],
)
def test_a_damaged_timing_is_named(settings, folder, key, value):
    path = folder / "data/store/shard-00001-of-00004/timing.json"
    content = json.loads(path.read_text())
    put(content, [key], value)
    write_json(path, content)
    with pytest.raises(UserError, match=rf"shard-00001-of-00004/timing\.json: .*{key}"):
        read(settings, folder)


@pytest.mark.parametrize(
    "line", [b'{"step": 2, "loss"', b'{"step": 2}', b'{"step": "2", "loss": 1.0}', b'{"step": 2, "loss": "low"}']
)
def test_a_damaged_line_of_a_journal_is_named(stage, folder, line):
    path = folder / "runs/gf2-s0/metrics.jsonl"
    lines = path.read_bytes().split(b"\n")
    lines[1] = line
    path.write_bytes(b"\n".join(lines))
    (folder / "runs/gf2-s0/final.json").unlink()  # else the file's hash is what does not match
    code, said = stage("figures", folder)
    assert code == 2
    assert "runs/gf2-s0/metrics.jsonl line 2" in said


def test_a_journal_that_its_run_did_not_end_with_is_refused(stage, folder):
    path = folder / "runs/gf2-s0/metrics.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    code, said = stage("figures", folder)
    assert code == 2
    assert "runs/gf2-s0/metrics.jsonl" in said


def test_a_line_that_is_still_being_written_is_left_out(settings, folder):
    path = folder / "runs/gf2-s0/metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    (folder / "runs/gf2-s0/final.json").unlink()
    results = read(settings, folder)
    assert (results.curves.interface == "gf2").sum() == settings.train.max_steps - 1


def test_a_result_under_anothers_name_is_refused(settings, folder):
    (folder / "eval/gf2-s0/piqa-0shot.json").write_bytes((folder / "eval/learned-s0/piqa-0shot.json").read_bytes())
    with pytest.raises(UserError, match=r"gf2-s0/piqa-0shot\.json: interface is 'learned'"):
        read(settings, folder)


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("params.json", lambda c: c["interfaces"]["gf2"].update(trainable=1)),
        ("data/store/manifest.json", lambda c: c.update(kept=239)),
        ("data/store/shard-00001-of-00004/timing.json", lambda c: c.update(wall_s=9.0)),
        ("runs/gf2-s0/final.json", lambda c: c.update(val_loss=1.0)),
        ("validation/gf2-s0.json", lambda c: c["checks"][0].update(passed=False)),
    ],
)
def test_a_record_with_a_changed_value_is_refused(settings, folder, path, change):
    content = json.loads((folder / path).read_text())
    change(content)
    (folder / path).write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"{path}: its content does not match"):
        read(settings, folder)


@pytest.mark.parametrize("path", ["runs/{}-s0/final.json", "validation/{}-s0.json"])
def test_a_record_under_anothers_name_is_refused(settings, folder, path):
    (folder / path.format("gf2")).write_bytes((folder / path.format("learned")).read_bytes())
    with pytest.raises(UserError, match=rf"{path.format('gf2')}: .* as its path says"):
        read(settings, folder)


def test_an_unknown_reference_names_the_key(settings, folder):
    value = settings.model_dump(mode="json")
    value["interfaces"]["gf2"]["paper_model"] = "GF-2"
    with pytest.raises(UserError, match=r"interfaces\.gf2\.paper_model: .*'GF-2'"):
        read(parse(config.Config, value, "test"), folder)


def test_a_folder_that_is_not_there(folder):
    (folder / "config.yaml").rename(folder.parent / "config.yaml")
    arguments = ["tables", "--config", folder.parent / "config.yaml", "--results", folder / "none"]
    code = subprocess.run(
        [sys.executable, "-m", "tokencodes.cli", *arguments],
        capture_output=True,
        text=True,
    )
    assert code.returncode == 2
    assert "none: no such results folder" in code.stderr


def test_no_stage_of_the_report_needs_torch(folder):
    """In a new process: tables, figures and the page, then what was imported."""
    program = """
import sys
from tokencodes import cli
folder = sys.argv[1]
where = ["--config", f"{folder}/config.yaml", "--results", folder]
assert cli.main(["tables", *where]) == cli.main(["figures", *where]) == 0
assert cli.main(["report", *where, "--out", f"{folder}/report.html"]) == 0
heavy = {"torch", "transformers", "lm_eval", "datasets", "snakemake", "tokenizers"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True)
    assert (folder / "report.html").stat().st_size > 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"limit": 50}, "limit is 50, in the config 100"),
        ({"limit": None}, "limit is none, in the config 100"),
        (
            {"metrics": {"acc": {"value": 0.99, "stderr": 0.05, "chance": 0.5, "higher_is_better": True}}},
            "acc is 0.99, but",
        ),
    ],
)
def test_a_result_that_contradicts_what_lies_beside_it_is_named(settings, folder, change, named):
    path = folder / "eval/gf2-s0/piqa-0shot.json"
    write_json(path, json.loads(path.read_text()) | change)
    with pytest.raises(UserError, match=named) as refused:
        read(settings, folder)
    assert "piqa-0shot.json" in str(refused.value)
