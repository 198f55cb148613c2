"""What runs, and what does not run again."""

import re
import shutil

import pytest

pytestmark = pytest.mark.workflow

DRAWN = {"tables": 1, "figures": 1, "report": 1}


def test_a_first_run_makes_everything_and_a_second_run_does_nothing(fresh):
    output = fresh.snakemake()
    for progress in ("train is at work", "evaluate is at work", "steps (100%) done"):  # progress reaches the terminal
        assert progress in output
    out = fresh.folder / "results" / "tiny"
    for path in (
        "config.yaml",
        "params.json",
        "data/store/manifest.json",
        "data/store/part-1/train.arrow",
        "runs/binary9-s0/run.yaml",
        "runs/binary9-s0/final.json",
        "models/learned-s0/model.safetensors",
        "validation/learned-s0.json",
        "eval/learned-s0/corpus_validation-0shot.json",
        "eval/learned-s0/corpus_validation-0shot.parquet",
        "tables/summary.txt",
        "figures/loss.svg",
        "report.html",
    ):
        assert (out / path).is_file(), path
    assert "train is at work" in (out / "logs/train/learned-s0.log").read_text()
    first = fresh.calls()
    assert first == sorted(set(first))  # nothing twice
    assert fresh.planned() == {}
    assert "Nothing to be done" in fresh.snakemake()
    assert fresh.calls() == []


@pytest.mark.parametrize(
    ("deleted", "again"),
    [
        (["tables/results.md"], {"tables": 1, "report": 1}),
        (["figures/loss.png", "config.yaml"], {"figures": 1, "report": 1, "resolve": 1}),
        (["eval/learned-s0/piqa-0shot.parquet"], {"evaluate": 1} | DRAWN),
        (["params.json", "validation/binary9-s0.json"], {"accounting": 1, "validate": 1} | DRAWN),
        (["models/binary9-s0/config.json"], {"export": 1, "validate": 1, "evaluate": 2} | DRAWN),
        (["runs/learned-s0/final.json"], {"train": 1, "export": 1, "validate": 1, "evaluate": 2} | DRAWN),
        (
            ["data/store/part-0/validation.arrow"],
            {"prepare": 1, "index": 1, "train": 2, "export": 2, "validate": 2, "evaluate": 4} | DRAWN,
        ),
    ],
)
def test_a_deleted_output_is_made_again_with_what_depends_on_it_alone(finished, deleted, again):
    for name in deleted:
        (finished.folder / "results/tiny" / name).unlink()
    assert finished.planned() == again


def test_an_edit_of_evaluate_scores_again_and_does_not_retrain(finished):
    value = finished.config
    value["evaluate"]["tasks"][0]["limit"] = 7
    finished.configure(value)
    assert finished.planned() == {"resolve": 1, "evaluate": 2} | DRAWN
    finished.snakemake()
    assert [call for call in finished.calls() if call.startswith("evaluate")] == [
        "evaluate binary9-s0 piqa",
        "evaluate learned-s0 piqa",
    ]
    assert finished.planned() == {}


def test_pace_batching_resources_and_order_are_no_reason_to_run_a_stage(finished):
    value = finished.config
    value["train"] |= {"log_every": 3, "checkpoint_every": 3, "n_gpus": 2, "micro_batch_size": 1}
    value["evaluate"]["max_batch_tokens"] = 17
    value["resources"]["train"] = {"cpus": 1, "mem_mb": 5, "runtime_min": 6, "gpus": 0}
    turned = {key: dict(reversed(part.items())) if isinstance(part, dict) else part for key, part in value.items()}
    turned["interfaces"] = value["interfaces"]  # their order is the tables'
    finished.configure(dict(reversed(turned.items())))
    assert finished.planned() == {"resolve": 1} | DRAWN


def test_what_is_expected_of_a_corpus_is_no_reason_to_run_a_stage(finished):
    value = finished.config
    value["data"]["expected"] = {"documents": 5, "tokens": 600, "raw_bytes": 7, "kept_share": 0.5}
    finished.configure(value)
    assert finished.planned() == {"resolve": 1}


def test_an_edit_of_the_recipe_retrains_on_the_same_store(finished):
    value = finished.config
    value["train"]["peak_lr"] = 1e-3
    finished.configure(value)
    output = finished.snakemake("--dry-run", code=2)  # the plan, and that these models would be lost
    jobs = {name: int(count) for name, count in re.findall(r"^(\w+) +(\d+)$", output.split("total")[0], re.MULTILINE)}
    assert jobs == {"all": 1, "resolve": 1, "train": 2, "export": 2, "validate": 2, "evaluate": 4} | DRAWN
    assert output.count("was made by another config") == 2


def test_a_new_seed_runs_alone(finished):
    value = finished.config
    value["seeds"] = [0, 1]
    finished.configure(value)
    assert finished.planned() == {"resolve": 1, "train": 2, "export": 2, "validate": 2, "evaluate": 4} | DRAWN
    finished.snakemake()
    assert {call.split()[1] for call in finished.calls() if call.startswith("train")} == {"learned-s1", "binary9-s1"}
    assert finished.planned() == {}


def test_a_new_interface_runs_alone(finished):
    value = finished.config
    value["interfaces"]["gf2"] = {"kind": "code", "codebook": {"kind": "gf2"}}
    finished.configure(value)
    one = {"codes": 1, "train": 1, "export": 1, "validate": 1, "evaluate": 2}
    assert finished.planned() == {"resolve": 1, "accounting": 1} | one | DRAWN


def test_a_new_kind_of_code_book_runs_nothing_again(finished):
    """One file more in codebooks/ is another kind for those who ask for it, and nothing to finished runs."""
    kinds = finished.folder / "src/tokencodes/interfaces/codebooks"
    text = (kinds / "binary.py").read_text().replace('Literal["binary"]', 'Literal["other"]')
    (kinds / "other.py").write_text(text.replace("class BinaryCodebook", "class OtherCodebook"))
    assert finished.planned() == {}


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("codebooks/binary.py", ">> np.arange", "<< np.arange"),
        ("vocabulary.py", "max(1,", "max(2,"),
    ],
)
def test_an_edit_of_a_kind_makes_its_code_books_again(finished, path, old, new):
    finished.edit(f"src/tokencodes/interfaces/{path}", old, new)
    planned = finished.planned()
    assert planned["codes"] == 1 and planned["train"] >= 1


def test_another_display_draws_alone(finished):
    value = finished.config
    value["display"] = {"labels": {"learned": "Table"}, "colours": {"learned": "#112233"}, "baseline": "binary9"}
    finished.configure(value)
    assert finished.planned() == {"resolve": 1} | DRAWN


def test_a_new_task_is_scored_alone(finished):
    value = finished.config
    value["evaluate"]["tasks"].append({"name": "hellaswag", "shots": 0, "limit": None})
    finished.configure(value)
    assert finished.planned() == {"resolve": 1, "benchmarks": 1, "evaluate": 2} | DRAWN


def test_a_new_name_touches_no_file_of_another_run(finished):
    before = {path: path.stat().st_mtime_ns for path in (finished.folder / "results/tiny").rglob("*")}
    finished.snakemake("results/other/data/store/manifest.json", "--config", "name=other")
    after = {path: path.stat().st_mtime_ns for path in (finished.folder / "results/tiny").rglob("*")}
    assert before == after
    assert (finished.folder / "results/other/config.yaml").is_file()
    assert finished.planned() == {}


def test_tables_and_figures_come_from_stored_results_alone(finished, tmp_path):
    """Copied without models, checkpoints, corpus and Snakemake's own records."""
    results, stored = finished.folder / "results/tiny", tmp_path / "stored"
    for kept in ("params.json", "runs", "validation", "eval", "data/store/manifest.json"):
        target = stored / kept
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (results / kept).is_dir() else shutil.copy2)(results / kept, target)
    shutil.rmtree(results)
    shutil.rmtree(finished.folder / ".snakemake")
    shutil.copytree(stored, results)
    finished.snakemake("tables", "figures", "report")
    assert finished.calls() == ["figures", "report", "tables"]


def test_the_files_of_a_local_corpus_are_watched(finished):
    shard = finished.folder / "corpus/part-1.parquet"
    shard.write_bytes(shard.read_bytes() + b"more")
    output = finished.snakemake("--dry-run", code=2)  # refused, since models were trained on it: test_corpus.py
    assert all(f"{stage}: part-1" in output and f"{stage}: part-0" not in output for stage in ("download", "prepare"))


@pytest.mark.parametrize(("keep_raw", "left"), [(False, 0), (True, 2)])
def test_raw_shards_of_the_hub_are_dropped_unless_they_shall_be_kept(fresh, keep_raw, left):
    value = fresh.config
    hub = {"kind": "hub", "repo": "a/b", "revision": "main", "pattern": "{shard:05d}", "n_shards": 2}
    value["data"]["source"] = hub | {"keep_raw": keep_raw}
    value["results"] = "my results"  # a space is no reason to fail
    fresh.configure(value)
    fresh.snakemake("my results/tiny/runs/learned-s0/final.json")
    assert len(list((fresh.folder / "my results/tiny/data/raw").glob("*.parquet"))) == left
    assert "prepare is at work" in (fresh.folder / "my results/tiny/logs/prepare/shard-00001-of-00002.log").read_text()
    value["data"]["source"]["keep_raw"] = not keep_raw
    fresh.configure(value)
    assert fresh.planned("my results/tiny/runs/learned-s0/final.json") == {}
