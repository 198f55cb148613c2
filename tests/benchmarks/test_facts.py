"""benchmarks/facts.py: what it counts, and that the limits which it prints hold."""

import subprocess
import sys

import pytest


@pytest.fixture
def facts(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    import facts

    yield facts
    sys.modules.pop("facts")


def test_lines_are_counted_by_package_now_and_before(facts, tmp_path):
    def git(*arguments):
        subprocess.run(["git", "-C", tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True)

    git("init", "-q")
    for path, lines in {"src/tokencodes/cli.py": 3, "src/tokencodes/data/store.py": 5, "tests/test_cli.py": 2}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x = 1\n" * lines)
    git("add", "-A")
    git("commit", "-qm", "first")
    (tmp_path / "src/tokencodes/data/store.py").write_text("x = 1\n")
    (tmp_path / "src/tokencodes/data/hub.py").write_text("\n\n")
    (tmp_path / "tests/test_cli.py").unlink()
    now, before = (
        facts.lines_by_group(texts) for texts in (facts.texts_now(tmp_path), facts.texts_at("HEAD", tmp_path))
    )
    assert before == {"tokencodes": 3, "tokencodes.data": 5, "tests": 2}
    assert now == {"tokencodes": 3, "tokencodes.data": 3}
    assert facts.lines_table(now, before, "HEAD").splitlines() == [
        "lines of           at HEAD  now",
        "tokencodes               3    3",
        "tokencodes.data          5    3",
        "tests                    2    0",
        "the whole package        8    6",
    ]


def test_a_functions_length_counts_its_decorators(facts):
    text = "@a\n@b\ndef f():\n    def g():\n        pass\n    return g\n"
    assert list(facts.functions({"m.py": text, "m.css": "a {}"})) == [(6, "m.py:1 f"), (2, "m.py:4 g")]


def test_every_rule_with_a_digest_is_listed(facts):
    rules = {path: text for path, text in facts.texts_now().items() if path.endswith(".smk")}
    entries = facts.entries(rules)
    with_code = [text.count("        code=") for text in rules.values()]
    assert len(entries) == sum(with_code) > 0
    assert all(entries.values())
    assert entries["train"] == ["tokencodes.train.loop"]


def test_the_whole_report_is_printed(facts, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["facts.py", "--show", "2"])
    facts.main()
    printed = capsys.readouterr().out
    for line in ("lines of", "longest modules", "longest functions", "modules in the digest of each rule", "train ("):
        assert f"\n{line}" in f"\n{printed}" or line in printed
