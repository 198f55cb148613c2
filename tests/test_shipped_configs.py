"""The files in config/: whole, explained, and what the paper says."""

import json
import re

import pytest

from tokencodes import config
from tokencodes.evaluate import packaged
from tokencodes.yamlfile import read_yaml

SHIPPED = ("quickstart", "references", "paper", "controls")


@pytest.fixture(params=SHIPPED)
def path(request, root):
    return root / "config" / f"{request.param}.yaml"


def test_every_key_is_spelled_out(path):
    assert read_yaml(path) == config.load(path).model_dump(mode="json")


def test_the_folder_holds_no_other_configs(root):
    assert sorted(file.stem for file in (root / "config").glob("*.yaml")) == sorted(SHIPPED)


def test_every_key_is_explained(root):
    """Each key of the schema stands in config/README.md as code."""
    schema = config.Config.model_json_schema()
    keys = set(schema["properties"])
    for definition in schema["$defs"].values():
        keys |= set(definition.get("properties", {}))
    explained = set()
    for span in re.findall(r"`([^`\n]+)`", (root / "config/README.md").read_text()):
        explained |= set(re.split(r"[^a-z0-9_]+", span))
    assert keys <= explained, keys - explained


def test_the_schema_is_current(root):
    assert (root / "config/schema.json").read_text() == config.schema_text() + "\n"


def test_a_training_job_stops_itself_within_its_time_limit(path):
    settings = config.load(path)
    budget = settings.train.time_budget_min
    assert budget is None or budget < settings.resources.train.runtime_min
    if settings.train.device == "cuda":
        assert budget is not None and settings.resources.train.gpus == settings.train.n_gpus


PAPER = {  # Bochkov (2026), as published
    "model": {
        "vocab_size": 49_152,
        "d_model": 2_048,
        "n_layers": 24,
        "n_heads": 32,
        "d_ff": 8_192,
        "context_length": 2_048,
    },
    "train": {
        "max_steps": 382_500,
        "warmup_steps": 2_000,
        "peak_lr": 1.5e-4,
        "min_lr": 1e-5,
        "weight_decay": 0.01,
        "grad_clip": 1.0,
        "n_gpus": 2,
        "micro_batch_size": 8,
        "grad_accum_steps": 8,
        "tokens_per_step": 262_144,
        "precision": "bf16",
    },
}


@pytest.mark.parametrize("name", ["paper", "controls"])
def test_the_papers_recipe(root, name):
    settings = config.load(root / "config" / f"{name}.yaml").model_dump()
    for section, values in PAPER.items():
        assert {key: settings[section][key] for key in values} == values
    assert settings["data"]["source"] | {"revision": ""} == {
        "kind": "hub",
        "repo": "HuggingFaceTB/smollm-corpus",
        "revision": "",
        "pattern": "fineweb-edu-dedup/train-{shard:05d}-of-00234.parquet",
        "n_shards": 234,
        "keep_raw": False,
    }
    assert settings["data"]["min_tokens"] == 2_049 and settings["data"]["split"]["threshold"] == 0.001
    interfaces = settings["interfaces"]
    assert interfaces["learned"] == {"kind": "table", "paper_model": "Learned"}
    assert interfaces["binary16"]["codebook"] == {"kind": "binary", "width": 16}
    assert interfaces["gf2"]["codebook"] == {
        "kind": "gf2",
        "width": 16,
        "seed": 12345,
        "min_weight": 4,
        "random_bias": False,
    }
    assert all(interfaces[key]["scale"] == "unit" and interfaces[key]["lift"] == "tile" for key in ("binary16", "gf2"))
    zero = {task["name"] for task in settings["evaluate"]["tasks"] if task["shots"] == 0}
    assert zero == {
        *("hellaswag", "arc_easy", "arc_challenge", "piqa", "winogrande", "openbookqa"),
        *("commonsense_qa", "mmlu", "lambada_openai", "wikitext"),
    }
    assert [task for task in settings["evaluate"]["tasks"] if task["shots"]] == [
        {"name": "mmlu", "shots": 5, "limit": None}
    ]


def test_the_controls_are_the_paper_with_more_interfaces(root):
    """So that the two can share a corpus and the paper's three models."""
    paper, controls = (config.load(root / "config" / f"{name}.yaml").model_dump() for name in ("paper", "controls"))
    for key in ("model", "data", "train", "evaluate", "references", "resources", "seeds"):
        assert controls[key] == paper[key], key
    assert {name: controls["interfaces"][name] for name in paper["interfaces"]} == paper["interfaces"]


def test_the_references_are_beside_the_quickstarts_models(root):
    """So that the two can share a corpus and three models; and all that is packaged is scored."""
    quickstart, references = (
        config.load(root / "config" / f"{name}.yaml").model_dump() for name in ("quickstart", "references")
    )
    for key in ("interfaces", "model", "data", "train", "seeds"):
        assert references[key] == quickstart[key], key
    tasks = {(task["name"], task["shots"]) for task in references["evaluate"]["tasks"]}
    assert {*((name, 0) for name in packaged.PACKAGED), ("mmlu", 5), ("corpus_validation", 0)} <= tasks


def test_the_schema_is_a_schema_that_the_files_meet(root, path):
    import jsonschema

    schema = json.loads((root / "config/schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(read_yaml(path), schema)
