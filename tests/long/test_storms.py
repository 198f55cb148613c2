"""Storms of kills over the whole DAG: whatever is killed, and when, the run that ends has the bits of a quiet one."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from drawing import FOREVER, cases
from project import Project, copy_of, tiny_value

pytestmark = pytest.mark.long

CUT_SHORT = Path(__file__).parents[1] / "cut_short.py"
HITS = 6  # in a storm from outside
CALLS = 60  # until a storm from inside is over; each job has few stormy attempts
MODELS = ("learned-s0", "gf2-s0")


def project(root, tiny, folder) -> Project:
    """The stages themselves: two models that train for seconds."""
    made = copy_of(root, tiny, folder, stand_ins=False)
    value = tiny_value(tiny, train={"max_steps": 60, "validate_every": 20, "checkpoint_every": 10, "log_every": 10})
    value["interfaces"]["gf2"] = {"kind": "code", "codebook": {"kind": "gf2"}}
    value["interfaces"].pop("binary9")
    made.configure(value)
    return made


def bits(made: Project) -> dict[str, object]:
    """What two equal runs have in common."""
    results = made.folder / "results/tiny"
    outcome: dict[str, object] = {"store": json.loads((results / "data/store/manifest.json").read_text())["sha256"]}
    for model in MODELS:
        final = json.loads((results / f"runs/{model}/final.json").read_text())
        outcome[model] = [final[f"{name}_sha256"] for name in ("model", "metrics", "store", "tokenizer", "codes")]
        outcome[f"{model} steps"] = (results / f"runs/{model}/metrics.jsonl").read_bytes()
        outcome[f"{model} weights"] = (results / f"models/{model}/model.safetensors").read_bytes()
        outcome[f"{model} checks"] = json.loads((results / f"validation/{model}.json").read_text())["passed"]
    outcome["tables"] = (results / "tables/results.csv").read_bytes()
    return outcome


@pytest.fixture(scope="module")
def quiet(root, tiny, tmp_path_factory):
    """A run that nothing has interrupted: its bits, and the seconds that it took."""
    made = project(root, tiny, tmp_path_factory.mktemp("quiet") / "project")
    begun = time.monotonic()
    made.snakemake()
    return bits(made), time.monotonic() - begun


@pytest.mark.parametrize(("label", "draw"), cases("storm from outside", 4))
def test_kills_at_any_time(label, draw, root, tiny, tmp_path, quiet):
    """Of the whole process group, as by a power cut; of Snakemake alone; or signals that it hears."""
    made = project(root, tiny, tmp_path / "project")
    outcome, seconds = quiet
    history = []
    for _ in range(HITS):
        call = made.start()
        pause = draw.uniform(0, seconds / 2)
        how = draw.choice(["power cut", "kill -9", "SIGINT", "SIGTERM"])
        history.append(f"{how} after {pause:.1f} s")
        deadline = time.monotonic() + pause
        while call.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if call.poll() is not None:
            break
        if how == "power cut":
            os.killpg(call.pid, signal.SIGKILL)
        else:
            call.send_signal({"kill -9": signal.SIGKILL, "SIGINT": signal.SIGINT, "SIGTERM": signal.SIGTERM}[how])
        call.wait(FOREVER)
    made.snakemake()
    assert made.planned() == {}, (label, history)
    assert bits(made) == outcome, (label, history)


@pytest.mark.parametrize(("label", "draw"), cases("storm from inside", 2))
def test_kills_at_single_file_operations(label, draw, root, tiny, tmp_path, quiet):
    """Each job is killed at file operations of its own, up to three times; the same call goes on."""
    made = project(root, tiny, tmp_path / "project")
    made.run_stages_with(CUT_SHORT)
    seed = str(draw.random())
    for _ in range(CALLS):
        call = made.start(env={"STORM_SEED": seed})
        if call.wait(FOREVER) == 0:
            break
    assert made.planned() == {}, label
    killed = sum(path.stat().st_size - 1 for path in (made.folder / "storm").iterdir())
    print(f"{label}: {killed} attempts were killed")
    assert killed > 0, label
    assert bits(made) == quiet[0], label
