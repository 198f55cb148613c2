"""Each single file of a finished run, with the stages themselves: a lost one is made again, or one line names it."""

import re
import shutil

import pytest

from project import copy_of, tiny_value

pytestmark = pytest.mark.long

READERS = ("export", "validate", "evaluate", "tables", "figures", "report")
NOTES = ("logs/", "benchmarks/", ".")  # of what happened; nothing reads them


@pytest.fixture(scope="module")
def whole(root, tiny, tmp_path_factory):
    made = copy_of(root, tiny, tmp_path_factory.mktemp("lost") / "project", stand_ins=False)
    value = tiny_value(tiny)
    value["interfaces"]["gf2"] = {"kind": "code", "codebook": {"kind": "gf2"}}
    value["interfaces"].pop("binary9")
    made.configure(value)
    made.snakemake()
    shutil.copytree(made.folder / "results", made.folder / "kept", symlinks=True)
    return made


def test_each_lost_file(whole):
    results = whole.folder / "results"
    names = sorted(path.relative_to(results) for path in results.rglob("*") if path.is_file())
    told, remade, unread = [], [], []
    for name in names:
        if name.parts[1].startswith(NOTES) or f"{name.parts[1]}/" in NOTES:
            continue
        (results / name).unlink()
        if whole.planned():
            remade.append(name)
            call = whole.start()
        else:  # no rule declares it: whoever reads it must say so
            call = whole.start("--forcerun", *READERS)
        code, output = call.wait(), (whole.folder / "out.log").read_text()
        if code:
            lines = [line for line in output.splitlines() if re.match(r"tokencodes: (error|failed): ", line)]
            assert any(name.name in line or name.parent.name in line for line in lines), f"{name}\n{output}"
            assert "Traceback" not in output, f"{name}\n{output}"
            told.append(name)
        elif name not in remade:
            unread.append(name)
        shutil.rmtree(results)
        shutil.copytree(whole.folder / "kept", results, symlinks=True)
    print(f"{len(remade)} made again, {len(told)} named in a line, {len(unread)} not read: {[*map(str, unread)]}")
    assert len(remade) > len(told)
