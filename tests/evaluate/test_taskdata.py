"""The data that a task reads is what the manifest states, byte for byte."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tokencodes.errors import UserError
from tokencodes.evaluate import benchmarks
from tokencodes.evaluate.manifest import BenchmarksManifest
from tokencodes.evaluate.spec import Evaluate
from tokencodes.evaluate.taskdata import open_data
from tokencodes.files import write_json

Configure = Callable[..., Evaluate]


def test_damage_to_the_data_is_found(packaged: Path, configure: Configure, wheel_cache: Path, tmp_path: Path) -> None:
    settings = configure("piqa")
    benchmarks.fetch(settings, wheel_cache, tmp_path)
    assert open_data(settings, "piqa", tmp_path).sha256
    with pytest.raises(UserError, match="no data for hellaswag"):
        open_data(settings, "hellaswag", tmp_path)
    with pytest.raises(UserError, match="--benchmarks"):
        open_data(settings, "piqa", None)
    with pytest.raises(UserError, match=r"evaluate\.wheel"):
        wheel = settings.wheel.model_dump() | {"version": "0.8.0"}
        open_data(configure("piqa", wheel=wheel), "piqa", tmp_path)
    path = tmp_path / "piqa/default/validation.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"validation\.parquet: is not the file that was written"):
        open_data(settings, "piqa", tmp_path)
    manifest = BenchmarksManifest.read(tmp_path / "manifest.json")
    elsewhere = manifest.tasks["piqa"].model_copy(update={"folder": "../elsewhere"})
    manifest.model_copy(update={"tasks": {"piqa": elsewhere}}).write(tmp_path / "manifest.json")
    with pytest.raises(UserError, match="leaves the folder"):
        open_data(settings, "piqa", tmp_path)


def test_a_manifest_of_an_earlier_version_is_refused(configure: Configure, tmp_path: Path) -> None:
    write_json(tmp_path / "manifest.json", {"format_version": 1, "data": "pypi", "wheel": None, "tasks": {}})
    with pytest.raises(UserError, match=r"manifest\.json: .*schema version.*run `tokencodes benchmarks` again"):
        open_data(configure("piqa"), "piqa", tmp_path)
