"""The command line: what a stage takes, how a wrong line ends, and what a start imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from tokencodes import cli, config
from tokencodes.commandline import parse_line
from tokencodes.errors import StoppedEarly, UserError

STAGES = get_command(cli.app).commands

# The contract: the options of each stage, with those that must be given. Checks from outside and old scripts call them.
LINES = {
    "check": "[--config] [--schema]",
    "resolve": "--config [--json] [--interface] [--seed] --out",
    "params": "--config [--json] [--out]",
    "plan": "--config [--json] [--mfu]",
    "codes": "--config --interface [--tokenizer] --out",
    "list": "--config --out",
    "download": "--config --shard [--listing] --out",
    "tokenizer": "--config --out",
    "prepare": "[--config] [--shard] [--raw] [--tokenizer] --out [--verify]",
    "index": "--config --shards --out",
    "train": "--run --store [--codes] --out [--time-budget]",
    "export": "--run-dir --tokenizer [--codes] --out",
    "import": "--config --interface --weights [--map] [--tokenizer] --out",
    "validate": "--model [--run-dir] [--config] --store [--codes] --out",
    "reference": "--config --name [--tokenizer] --out",
    "benchmarks": "--config [--task] --out",
    "evaluate": "--config --model --task [--shots] [--benchmarks] [--store] --out",
    "compare": "a b [--json]",
    "tables": "--config --results",
    "others": "--config --results --out",
    "figures": "--config --results",
    "report": "--config --results --out",
}

FLAGS = ("--json", "--schema", "--verify")


def run(capsys, *arguments) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_the_command_lines_are_the_contract():
    lines = {}
    for name, stage in STAGES.items():
        words = [(word if word.startswith("-") else param.name, param) for param in stage.params for word in param.opts]
        lines[name] = " ".join(word if param.required else f"[{word}]" for word, param in words)
    assert lines == LINES


@pytest.mark.parametrize("stage", STAGES)
def test_the_help_of_a_stage_names_each_file_and_option(capsys, stage):
    code, out, err = run(capsys, stage, "--help")
    assert code == 0 and not err
    for param in STAGES[stage].params:
        assert param.help, f"{stage}: {param.name} has no help"
        for option in param.opts:
            name = f"{option} {param.metavar}" if param.metavar else option
            assert (name if option.startswith("-") else f"  {param.metavar} ") in out
            assert param.metavar or option in FLAGS, f"{stage}: {option} does not say what it takes"


def test_the_help_lists_the_stages(capsys):
    code, out, err = run(capsys, "--help")
    assert code == 0 and not err
    listed = [line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed == list(LINES)
    assert "..." not in out.partition("Commands:")[2], "the help of a stage is too long for one line"
    assert run(capsys, "-h") == (0, out, "")


WRONG = {
    "": "a stage is missing",
    "trai": "No such command 'trai'. Did you mean 'train'?",
    "--nothing": "No such option: --nothing",
    "train --run a --store b": "Missing option '--out'",
    "train --run a --store b --out": "Option '--out' requires an argument",
    "train --ru a --store b --out c": "No such option: --ru",  # no abbreviations
    "train --run a --store b --out c d": "unexpected extra argument(s) (d)",
    "train --run a --store b --out c --time-budget ten": "above 0 and up to 10,000,000 is expected, not 'ten'",
    "train --run a --store b --out c --time-budget -5": "above 0 and up to 10,000,000 is expected, not '-5'",
    "evaluate --config a --model b --task c --out d --shots two": "Invalid value for '--shots'",
    "resolve --config a --out b --no-json": "No such option: --no-json",
    "compare a": "Missing argument 'B'",
    "compare a b c": "unexpected extra argument(s) (c)",
    "index --config a --out b --shards": "Missing option '--shards'",
    "check": "give either --config FILE or --schema",
    "check --schema --config a": "give either --config FILE or --schema",
    "prepare --out a --shard b": "--config, --raw, --tokenizer missing",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_command_line_ends_with_one_line_and_exit_code_2(capsys, line):
    code, out, err = run(capsys, *line.split())
    assert code == 2 and not out
    assert err.startswith("tokencodes: error: ") and err.endswith("\n") and err.count("\n") == 1
    assert WRONG[line] in err


def test_an_option_may_take_its_value_behind_an_equals_sign_and_the_last_one_counts():
    context = parse_line(cli.app, ["train", "--run=a", "--store", "b", "--out=c=d", "--time-budget", "3", "--run", "e"])
    assert context.info_name == "train"
    assert context.params == {
        "run": Path("e"),
        "store": Path("b"),
        "codes": None,
        "out": Path("c=d"),
        "time_budget": 3.0,
    }


def test_a_list_takes_every_value_behind_its_option():
    for line in (
        "index --shards a b c --config d --out e",
        "index --config d --shards a b c --out e",
        "index --config d --out e --shards a b c",
        "index --config d --out e --shards a --shards b c",
    ):
        assert parse_line(cli.app, line.split()).params["shards"] == [Path("a"), Path("b"), Path("c")]


def test_config_text_reaches_a_stage_as_it_was_written(quickstart, tmp_path):
    text = quickstart.model_dump_json().replace('"results":"results"', '"results":"a//b/../c"')
    assert cli.main(["resolve", "--json", "--config", text, "--out", str(tmp_path / "out.yaml")]) == 0
    assert yaml.safe_load((tmp_path / "out.yaml").read_text())["results"] == "a//b/../c"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UserError("x.yaml: wrong\ny: too"), 2, "tokencodes: error: x.yaml: wrong\ntokencodes: error: y: too\n"),
        (StoppedEarly("saved"), 75, "tokencodes: saved\n"),
        (
            PermissionError(13, "", "f"),
            2,
            "tokencodes: error: f: permission denied; name another path, or correct this one\n",
        ),
        (
            OSError(28, "", "f"),
            2,
            "tokencodes: error: f: the disk is full (No space left on device); free some space and start again\n",
        ),
    ],
)
def test_how_a_stage_ends(monkeypatch, capsys, error, code, message):
    def load(path):
        raise error

    monkeypatch.setattr(config, "load", load)
    assert run(capsys, "tables", "--config", "a", "--results", "b") == (code, "", message)


def test_our_own_fault_is_a_traceback(monkeypatch):
    monkeypatch.setattr(config, "load", lambda path: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["tables", "--config", "a", "--results", "b"])


HEAVY = ("torch", "transformers", "datasets", "lm_eval", "matplotlib", "snakemake", "rich")


@pytest.mark.parametrize(
    ("line", "light"),
    [
        (["--help"], (*HEAVY, "pydantic", "numpy", "yaml")),
        (["train", "--help"], (*HEAVY, "yaml", "numpy")),
        (["check", "--schema"], (*HEAVY, "numpy")),  # kinds of code books import NumPy where they make codes
        (["check", "--config", "config/quickstart.yaml"], HEAVY),
        (["tables", "--config", "config/quickstart.yaml", "--results", "nowhere"], HEAVY),
        (["report", "--config", "config/quickstart.yaml", "--results", "nowhere", "--out", "nowhere.html"], HEAVY),
        (["prepare", "--out", "nowhere"], HEAVY),
    ],
)
def test_a_start_imports_only_what_its_stage_needs(root, line, light):
    code = (
        "import contextlib, io, json, sys; from tokencodes import cli\n"
        "with contextlib.redirect_stdout(io.StringIO()): cli.main(sys.argv[2:])\n"
        "print(json.dumps([name for name in json.loads(sys.argv[1]) if name in sys.modules]))"
    )
    command = [sys.executable, "-c", code, json.dumps(light), *line]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert json.loads(result.stdout) == [], result.stderr


def test_the_program_answers_from_outside(root):
    for start in (["-m", "tokencodes.cli"], ["-c", "from tokencodes.cli import main; raise SystemExit(main())"]):
        result = subprocess.run([sys.executable, *start, "nothing"], cwd=root, capture_output=True, text=True)
        assert result.returncode == 2
        assert result.stderr == "tokencodes: error: No such command 'nothing' (see `tokencodes --help`)\n"
