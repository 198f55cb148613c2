"""`tokencodes plan`: FLOPs, days, jobs and disk of the shipped configs."""

import json

import pytest

from tokencodes import config
from tokencodes.cli import main
from tokencodes.planning import plan


@pytest.mark.parametrize("name", ["quickstart", "paper", "controls"])
def test_plan_of_shipped_configs(root, capsys, name):
    assert main(["plan", "--config", str(root / f"config/{name}.yaml"), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    settings_ = config.load(root / f"config/{name}.yaml")
    assert plan["tokens_per_model"] == settings_.train.max_steps * settings_.train.tokens_per_step
    assert plan["jobs"]["train"] == len(settings_.interfaces) and len(plan["shards"]) == plan["jobs"]["prepare"]
    if name == "paper":
        assert plan["tokens_per_model"] == 100_270_080_000 and len(plan["shards"]) == 234
        # 6 N per token for the matrices of backbone and head, plus causal attention 6 L d T
        matrices = 24 * (4 * 2048**2 + 3 * 2048 * 8192) + 49_152 * 2048
        assert plan["flops_per_token"] == 6 * matrices + 6 * 24 * 2048 * 2048
        assert plan["interfaces"]["learned"]["checkpoint_bytes"] == 12 * 1_812_039_680
    assert main(["plan", "--config", str(root / f"config/{name}.yaml")]) == 0
    assert "tokens per model" in capsys.readouterr().out


def test_the_plan_says_what_training_costs_in_all(root):
    """Of all models, on all their GPUs: three of 1.09e21 FLOPs at 40 % of an H100's 989e12 a second."""
    planned = plan.make(config.load(root / "config/paper.yaml"))["gpu_days_of_training"]["H100-SXM"]
    assert planned == pytest.approx(3 * 1.09e21 / (0.4 * 989e12) / 86_400, rel=0.01)
