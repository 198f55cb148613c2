"""The quickstart's own config, from the corpus to the report, through Slurm."""

import json

MODELS = ("learned-s0", "binary12-s0", "gf2-s0")
TASKS = ("hellaswag", "piqa", "winogrande", "arc_easy", "lambada_openai", "corpus_validation")


def test_everything_is_made_and_no_job_is_repeated(quickstart):
    project, output = quickstart.end()
    results = project.folder / "results/quickstart"
    for model in MODELS:
        assert json.loads((results / "validation" / f"{model}.json").read_text())["passed"] is True
        for task in TASKS:
            assert (results / "eval" / model / f"{task}-0shot.json").exists()
    summary = (results / "tables/summary.txt").read_text()
    assert all(model.removesuffix("-s0") in summary for model in MODELS) and (results / "report.html").exists()
    # shards together, index, training, export and validation of each model, benchmarks together
    assert output.count("has been submitted with SLURM jobid") == 2 + 3 * len(MODELS) + 1
    assert "Trying to restart job" not in output


def test_nothing_is_left_to_do_wherever_it_was_made(quickstart, wheel_cache):
    project, _ = quickstart.end()
    cache = ("--config", f"cache={wheel_cache}")
    assert project.planned(*cache, config=None, profile="slurm") == {}
    assert project.planned(*cache, config=None) == {}


def test_a_log_says_where_it_was_made_and_survives(quickstart):
    project, _ = quickstart.end()
    for stage in ("prepare/shard-00000-of-00004", "train/gf2-s0", "evaluate/gf2-s0/piqa-0shot"):
        first, *_, last = (project.folder / f"results/quickstart/logs/{stage}.log").read_text().splitlines()
        assert first.startswith("=== ") and ", Slurm job " in first and ", GPUs " in first and "; tokencodes " in first
        assert last.startswith("=== exit code 0 after ")
