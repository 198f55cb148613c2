"""Parameter accounting against the paper's own figures."""

import json

from tokencodes import config
from tokencodes.cli import main
from tokencodes.model import accounting, shape


def test_the_papers_figures_from_the_command_line(root, capsys):
    assert main(["params", "--config", str(root / "config/paper.yaml"), "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["interfaces"]
    assert counts["learned"]["trainable"] == 1_812_039_680
    assert counts["binary16"]["trainable"] == counts["gf2"]["trainable"] == 1_711_376_384
    difference = counts["learned"]["trainable"] - counts["gf2"]["trainable"]
    assert difference == 100_663_296 and round(100 * difference / 1_812_039_680, 2) == 5.56
    for name, row in counts.items():
        assert row["backbone"] == 1_610_713_088 and row["head"] == 100_663_296, name
        assert row["input"] == (100_663_296 if name == "learned" else 0)
        assert row["buffers"] == (0 if name == "learned" else 49_152 * 16)


def test_as_a_table_and_as_a_file(root, capsys, tmp_path):
    out = tmp_path / "params.json"
    assert main(["params", "--config", str(root / "config/paper.yaml"), "--out", str(out)]) == 0
    assert "1,711,376,384" in capsys.readouterr().out
    assert shape.Params.read(out).interfaces["gf2"].trainable == 1_711_376_384


def test_controls_count_what_they_train(root):
    settings_ = config.load(root / "config/controls.yaml")
    for name, interface in settings_.interfaces.items():
        row = accounting.count(interface, settings_.model)
        width = 0
        if interface.kind == "table":
            width = settings_.model.d_model
        elif interface.codebook.kind == "learned":
            width = interface.codebook.width
        assert row.input == settings_.model.vocab_size * width, name
