"""A simulated run in its folder; copies of it to damage; and the command line as a user calls it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import simulate

from tokencodes import cli, config
from tokencodes.spec import parse


@pytest.fixture(scope="session")
def settings(root: Path) -> config.Config:
    """The shipped quickstart config, with what these tests count on held fast."""
    value = config.load(root / "config/quickstart.yaml").model_dump(mode="json")
    value["name"], value["seeds"] = "quickstart", [0]
    value["model"] |= {"vocab_size": 4096, "d_model": 128, "n_layers": 2, "n_heads": 4, "d_ff": 512}
    value["model"] |= {"context_length": 128}
    value["data"] |= {"min_tokens": 129}
    value["train"] |= {"max_steps": 300, "warmup_steps": 30, "validate_every": 25, "micro_batch_size": 16}
    value["train"] |= {"n_gpus": 1, "grad_accum_steps": 1, "tokens_per_step": 2048}
    names = ("hellaswag", "piqa", "winogrande", "arc_easy", "lambada_openai", "corpus_validation")
    value["evaluate"]["tasks"] = [{"name": name, "shots": 0, "limit": 100} for name in names]
    return parse(config.Config, value, "quickstart")


@pytest.fixture(scope="session")
def three_seeds(settings: config.Config) -> config.Config:
    """Quickstart with three seeds."""
    return parse(config.Config, settings.model_dump(mode="json") | {"seeds": [0, 1, 2]}, "three seeds")


@pytest.fixture(scope="session")
def _pristine(settings: config.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate.results(settings, tmp_path_factory.mktemp("simulated") / "quickstart")


@pytest.fixture
def folder(_pristine: Path, tmp_path: Path) -> Path:
    """A results folder of the quickstart's size, the test's own."""
    return Path(shutil.copytree(_pristine, tmp_path / "quickstart"))


@pytest.fixture
def stage(capsys: pytest.CaptureFixture[str]) -> Callable[[str, Path], tuple[int, str]]:
    """Run a stage on a results folder by its command line; give exit code and stderr."""

    def run(name: str, folder: Path) -> tuple[int, str]:
        arguments = [name, "--config", str(folder / "config.yaml"), "--results", str(folder)]
        if name == "report":
            arguments += ["--out", str(folder / "report.html")]
        code = cli.main(arguments)
        return code, capsys.readouterr().err

    return run
