"""Tables against the files they come from."""

import csv
import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import simulate
from simulate import write_json

from tokencodes import config
from tokencodes.report import tables
from tokencodes.report.published import published
from tokencodes.report.results import read
from tokencodes.spec import parse


def rows(path: Path) -> list[dict[str, str]]:
    """A CSV's rows."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def outputs(folder: Path) -> dict[str, bytes]:
    """Names and bytes of all tables."""
    return {path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())}


def edit(path: Path, change) -> None:
    """Change a JSON file."""
    content = json.loads(path.read_text())
    change(content)
    write_json(path, content)


def markdown_cells(path: Path) -> list[list[str]]:
    """Rows of the one table in a Markdown file."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in (lines[0], *lines[2:])]


def test_by_seed_has_the_files_values(three_seeds, tmp_path):
    folder = simulate.results(three_seeds, tmp_path / "run")
    tables.write(three_seeds, folder)
    found = rows(folder / "tables/results_by_seed.csv")
    expected = 0
    for path in sorted((folder / "eval").rglob("*.json")):
        content = json.loads(path.read_text())
        for metric, numbers in content["metrics"].items():
            expected += 1
            (row,) = (r for r in found if r["file"] == str(path.relative_to(folder)) and r["metric"] == metric)
            assert float(row["value"]) == numbers["value"]
            assert float(row["stderr"]) == numbers["stderr"]
            assert (row["chance"] == "") if numbers["chance"] is None else (float(row["chance"]) == numbers["chance"])
            assert int(row["n"]) == content["n"]
            assert (row["interface"], int(row["seed"])) == (content["interface"], content["seed"])
    assert len(found) == expected


def test_results_have_mean_and_range_over_seeds(three_seeds, tmp_path):
    folder = simulate.results(three_seeds, tmp_path / "run")
    (folder / "eval/gf2-s1/piqa-0shot.json").unlink()
    tables.write(three_seeds, folder)
    by_seed = rows(folder / "tables/results_by_seed.csv")
    for row in rows(folder / "tables/results.csv"):
        if row["task"].startswith("validation_"):
            continue
        values = [
            float(r["value"])
            for r in by_seed
            if (r["task"], r["metric"], r["interface"]) == (row["task"], row["metric"], row["interface"]) and r["value"]
        ]
        assert len(values) == int(row["seeds"])
        assert math.isclose(float(row["value"]), np.mean(values), abs_tol=1e-15)
        assert float(row["least"]) == min(values)
        assert float(row["greatest"]) == max(values)
    cells = {line[0]: line for line in markdown_cells(folder / "tables/results.md")}
    assert cells["PIQA, acc"][5].endswith("\\[2 of 3\\]")
    assert re.fullmatch(r"\d+\.\d \(\d+\.\d–\d+\.\d\)", cells["PIQA, acc"][3])


def test_held_out_loss_is_the_runs(settings, folder):
    tables.write(settings, folder)
    final = json.loads((folder / "runs/gf2-s0/final.json").read_text())
    found = {(r["metric"], r["interface"]): r for r in rows(folder / "tables/results.csv")}
    row = found["validation_loss", "gf2"]
    assert float(row["value"]) == final["val_loss"]
    assert float(row["baseline"]) == final["unigram_cross_entropy"]
    assert math.isclose(float(found["validation_perplexity", "gf2"]["value"]), math.exp(final["val_loss"]))
    training = {r["interface"]: r for r in rows(folder / "tables/training.csv")}["gf2"]
    assert {key: float(training[key]) for key in ("train_loss", "val_loss", "tokens")} == {
        key: final[key] for key in ("train_loss", "val_loss", "tokens")
    }
    assert training["below_unigram"] == "true"


@pytest.mark.parametrize("lines", [(6.9, 5.0), (5.0, 6.9)])
def test_below_unigram_means_below_both_lines(settings, folder, lines):
    def change(final):
        final["unigram_entropy"], final["unigram_cross_entropy"] = lines

    edit(folder / "runs/gf2-s0/final.json", change)
    tables.write(settings, folder)
    found = {r["interface"]: r["below_unigram"] for r in rows(folder / "tables/training.csv")}
    assert found == {"learned": "true", "binary12": "true", "gf2": "false"}


def test_a_missing_result_is_a_gap_and_never_zero(settings, folder):
    (folder / "eval/gf2-s0/piqa-0shot.json").unlink()
    (folder / "runs/gf2-s0/final.json").unlink()
    tables.write(settings, folder)
    (row,) = (
        r
        for r in rows(folder / "tables/results_by_seed.csv")
        if (r["task"], r["metric"], r["interface"]) == ("piqa", "acc", "gf2")
    )
    assert row["value"] == row["stderr"] == row["n"] == row["file"] == ""
    cells = {line[0]: line for line in markdown_cells(folder / "tables/results.md")}
    assert cells["PIQA, acc"][5] == "–"
    assert cells["Held-out windows, loss (nats per token)"][5] == "–"
    training = markdown_cells(folder / "tables/training.md")[3]
    assert training == ["gf2-s0", *["–"] * 7]


def test_a_whole_benchmark_that_is_missing_keeps_its_row(settings, folder):
    for path in (folder / "eval").rglob("winogrande-0shot.json"):
        path.unlink()
    tables.write(settings, folder)
    cells = {line[0]: line for line in markdown_cells(folder / "tables/results.md")}
    assert cells["WinoGrande, acc"][1:6] == ["–", "", "–", "–", "–"]
    assert cells["WinoGrande, acc"][6:] == ["58.56", "55.33", "55.01"]


def test_nan_is_shown_as_nan(settings, folder):
    edit(folder / "eval/gf2-s0/piqa-0shot.json", lambda c: c["metrics"]["acc"].update(value=None, stderr=None))
    tables.write(settings, folder)
    cells = {line[0]: line for line in markdown_cells(folder / "tables/results.md")}
    assert cells["PIQA, acc"][5] == "NaN"
    found = {(r["metric"], r["task"], r["interface"]): r["value"] for r in rows(folder / "tables/results_by_seed.csv")}
    assert found["acc", "piqa", "gf2"] == "NaN"


def test_perplexities_of_any_size_are_short(settings, folder):
    for value, stderr, shown in ((73_624_003.0, 60_960_688.0, "73.6M ± 61.0M"), (50_045.2, 2_502.3, "50,045 ± 2,502")):
        edit(
            folder / "eval/gf2-s0/lambada_openai-0shot.json",
            lambda c, value=value, stderr=stderr: c["metrics"]["perplexity"].update(value=value, stderr=stderr),
        )
        tables.write(settings, folder)
        cells = {line[0]: line for line in markdown_cells(folder / "tables/results.md")}
        assert cells["LAMBADA (white space collapsed), perplexity"][5] == shown


def test_the_papers_figures_stand_in_columns_of_their_own(settings, folder):
    value = settings.model_dump(mode="json")
    value["interfaces"]["gf2"]["paper_model"] = None
    tables.write(parse(config.Config, value, "no reference for gf2"), folder)
    header, *body = markdown_cells(folder / "tables/results.md")
    assert header[3:] == ["learned", "binary12", "gf2", "paper: Learned", "paper: Binary16"]
    cells = {line[0]: line for line in body}
    assert cells["HellaSwag, acc_norm"][6:] == ["57.79", "52.40 ± 0.50"]
    for name, line in cells.items():
        if name.startswith(("Corpus", "Held-out")):
            assert set(line[6:]) == {"–"}, "WikiText's figures stand beside the corpus' own documents"
    for row in rows(folder / "tables/results.csv"):
        figure = published().get((row["task"], row["metric"], 0, row["paper: model"]))
        if row["interface"] == "gf2" or figure is None:
            assert row["paper: value"] == row["paper: model"] == ""
        else:
            assert float(row["paper: value"]) == figure.value


def test_accounting_at_the_papers_size(settings, tmp_path):
    """Against the numbers that the paper states: 1,812,039,680, a difference of 100,663,296, 5.56 %."""
    paper = simulate.paper_size(settings)
    simulate.write_params(tmp_path / "params.json", simulate.parameters(paper))
    tables.write(paper, tmp_path)
    cells = {line[0]: line for line in markdown_cells(tmp_path / "tables/accounting.md")}
    assert cells["learned"][1:] == ["1,812,039,680", "100,663,296", "100,663,296", "1,610,713,088", "0", "0", "0.00 %"]
    for name in ("binary16", "gf2"):
        assert cells[name][1:3] == ["1,711,376,384", "0"]
        assert cells[name][5:] == ["786,432", "−100,663,296", "−5.56 %"]
    for row in rows(tmp_path / "tables/accounting.csv"):
        assert row["trainable"] == row["paper: trainable"]
        assert row["buffers"] == row["paper: buffers"] or row["interface"] == "learned"


def test_data_table_has_the_stores_counts(settings, folder):
    tables.write(settings, folder)
    total, *shards = rows(folder / "tables/data.csv")
    store = json.loads((folder / "data/store/manifest.json").read_text())
    assert int(total["rows_in"]) == store["rows_in"] == sum(int(r["rows_in"]) for r in shards)
    assert {k.removeprefix("dropped: "): int(v) for k, v in total.items() if k.startswith("dropped")} == store[
        "dropped"
    ]
    assert int(total["train_tokens"]) + int(total["validation_tokens"]) == store["tokens"]
    header = markdown_cells(folder / "tables/data.md")[0]
    assert "Dropped: too few tokens" in header
    assert "Dropped: null text" not in header, "a reason for which nothing was dropped takes no column"


def test_lengths_are_the_stores(settings, folder):
    tables.write(settings, folder)
    found = json.loads((folder / "data/store/manifest.json").read_text())["lengths"]
    every = {edge: (n, m) for edge, n, m in zip(found["edges"], found["kept"], found["too_few_tokens"], strict=False)}
    table = rows(folder / "tables/lengths.csv")
    for row in table:
        assert (int(row["kept"]), int(row["too_few_tokens"])) == every.pop(int(row["from_tokens"]))
    assert set(every.values()) == {(0, 0)}, "left out are empty bins alone"
    assert [row["below_tokens"] for row in table[:-1]] == [row["from_tokens"] for row in table[1:]]
    shown = markdown_cells(folder / "tables/lengths.md")[1:]
    assert shown[0][0].startswith(f"{int(table[0]['from_tokens']):,}–") and len(shown) == len(table)
    assert [int(line[2]) for line in shown] == [int(row["kept"]) for row in table]


def test_tokens_encoded_are_known_of_shards_with_a_record_and_in_total_only_if_all_have_one(settings, folder):
    records = [json.loads(p.read_text()) for p in sorted((folder / "data/store").glob("*/timing.json"))]
    tables.write(settings, folder)
    total, *shards = rows(folder / "tables/data.csv")
    assert [int(row["encoded_tokens"]) for row in shards] == [record["encoded_tokens"] for record in records]
    assert int(total["encoded_tokens"]) == sum(record["encoded_tokens"] for record in records)
    (folder / "data/store/shard-00002-of-00004/timing.json").unlink()
    tables.write(settings, folder)
    total, *shards = rows(folder / "tables/data.csv")
    assert total["encoded_tokens"] == shards[2]["encoded_tokens"] == ""
    assert shards[1]["encoded_tokens"] == str(records[1]["encoded_tokens"])


def test_the_pace_is_work_by_time(settings, folder):
    records = [json.loads(p.read_text()) for p in sorted((folder / "data/store").glob("*/timing.json"))]
    table = tables.data(read(settings, folder, with_curves=False), timed=True)
    assert table.header[-2:] == ("Tokens per second", "MB per CPU second")
    sums = {
        key: sum(record[key] for record in records) for key in ("encoded_tokens", "encoded_bytes", "wall_s", "cpu_s")
    }
    for row, record in zip(table.rows, [sums, *records], strict=True):
        assert row[-2] == f"{record['encoded_tokens'] / record['wall_s']:,.0f}"
        assert row[-1] == f"{record['encoded_bytes'] / 1e6 / record['cpu_s']:.2f}"
    for path in (folder / "data/store").glob("*/timing.json"):
        path.unlink()
    table = tables.data(read(settings, folder, with_curves=False), timed=True)
    assert {row[-2:] for row in table.rows} == {("–", "–")} and "0 of 4 shards" in table.notes[-1]


def test_every_shard_is_in_the_files(settings, folder):
    content = json.loads((folder / "data/store/manifest.json").read_text())
    write_json(folder / "data/store/manifest.json", simulate.many_shards(content))
    tables.write(settings, folder)
    assert len(rows(folder / "tables/data.csv")) == len(markdown_cells(folder / "tables/data.md")) - 1 == 235
    lines = (folder / "tables/data.tex").read_text().splitlines()
    sizes, inside = [], False
    for line in lines:  # rows between the rules of each part: none is longer than a page
        if line == "\\midrule":
            inside = True
            sizes.append(0)
        elif line == "\\bottomrule":
            inside = False
        elif inside:
            sizes[-1] += 1
    assert max(sizes) <= 50 and sum(sizes) % 235 == 0


def test_the_same_results_give_the_same_bytes(settings, folder, tmp_path):
    tables.write(settings, folder)
    first = outputs(folder)
    assert set(first) == {
        *(f"{name}.{kind}" for name in tables.TABLES for kind in ("csv", "md", "tex")),
        "results_by_seed.csv",
        "summary.txt",
    }
    elsewhere = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    tables.write(settings, elsewhere)
    assert outputs(elsewhere) == first


@pytest.mark.parametrize(
    ("path", "change", "expected"),
    [
        (
            "eval/gf2-s0/corpus_validation-0shot.json",
            lambda c: c["metrics"]["bits_per_byte"].update(value=0.99),
            {"results.csv", "results.md", "results.tex", "results_by_seed.csv", "summary.txt"},
        ),
        (
            "eval/gf2-s0/piqa-0shot.json",
            lambda c: c["metrics"]["acc"].update(stderr=0.2),
            {"results.csv", "results.md", "results.tex", "results_by_seed.csv", "summary.txt", "paper.csv"},
        ),
        (
            "params.json",
            lambda c: c["interfaces"]["gf2"].update(trainable=1_049_217),
            {"accounting.csv", "accounting.md", "accounting.tex", "summary.txt"},
        ),
        (
            "data/store/manifest.json",
            lambda c: (c["train"].update(tokens=1), c.update(tokens=1 + c["validation"]["tokens"])),
            {"data.csv", "data.md", "data.tex"},
        ),
        (
            "runs/gf2-s0/final.json",
            lambda c: c.update(train_loss=5.0),
            {"training.csv", "training.md", "training.tex"},
        ),
        ("runs/gf2-s0/final.json", lambda c: c.update(wall_s=1e6), set()),
        ("data/store/shard-00001-of-00004/timing.json", lambda c: c.update(wall_s=1e6, cpu_s=1e6), set()),
        (
            "data/store/manifest.json",
            lambda c: c["lengths"]["kept"].reverse(),
            {"lengths.csv", "lengths.md", "lengths.tex"},
        ),
        ("validation/gf2-s0.json", lambda c: c["checks"][0].update(passed=False), {"summary.txt"}),
    ],
)
def test_an_edit_reaches_what_depends_on_it_alone(settings, folder, path, change, expected):
    tables.write(settings, folder)
    before = outputs(folder)
    edit(folder / path, change)
    tables.write(settings, folder)
    after = outputs(folder)
    assert {name for name in after if after[name] != before[name]} == expected


def test_a_failed_check_is_named_in_the_summary(settings, folder):
    edit(folder / "validation/gf2-s0.json", lambda c: c["checks"][1].update(passed=False))
    tables.write(settings, folder)
    said = " ".join((folder / "tables/summary.txt").read_text().split())
    assert "11 of 12 passed" in said
    assert "FAILED: gf2-s0: code book" in said


KINDS = {"quickstart": lambda settings: settings, "controls": simulate.controls, "paper_size": simulate.paper_size}


@pytest.mark.parametrize("kind", KINDS)
def test_latex_is_balanced_and_compiles(settings, tmp_path, kind):
    """Environments and braces are balanced, cells match columns; where pdflatex is installed it accepts the tables."""
    if kind == "paper_size":  # its curves are long, and no table needs them
        chosen = KINDS[kind](settings)
        simulate.write_params(tmp_path / "params.json", simulate.parameters(chosen))
    else:
        chosen = KINDS[kind](settings)
        simulate.results(chosen, tmp_path)
    tables.write(chosen, tmp_path)
    for name in tables.TABLES:
        text = (tmp_path / f"tables/{name}.tex").read_text(encoding="utf-8")
        environments = []
        for begins, environment in re.findall(r"\\(begin|end)\{(\w+)\}", text):
            if begins == "begin":
                environments.append(environment)
            else:
                assert environments.pop() == environment
        assert not environments
        plain = re.sub(r"\\[{}]", "", text)
        assert plain.count("{") == plain.count("}")
        for columns, body in re.findall(
            r"\\begin\{tabular\}\{@\{\}p\{\d+pt\}(r+)@\{\}\}(.*?)\\end\{tabular\}", text, re.S
        ):
            lines = [line for line in body.splitlines() if line.endswith(r"\\")]
            assert {len(re.split(r"(?<!\\)&", line)) for line in lines} <= {len(columns) + 1}
    if shutil.which("pdflatex"):
        page = (
            r"\documentclass{article}\usepackage[letterpaper,margin=1in]{geometry}\usepackage{booktabs}\begin{document}"
        )
        page += "".join(rf"\input{{tables/{name}}}" for name in tables.TABLES) + r"\end{document}"
        (tmp_path / "page.tex").write_text(page)
        run = subprocess.run(
            ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page.tex"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            errors="replace",
        )
        assert run.returncode == 0, run.stdout[-2000:]
        assert "Overfull \\hbox" not in run.stdout


@pytest.mark.parametrize("kind", ["quickstart", "controls"])
def test_the_summary_fits_a_terminal(settings, tmp_path, kind):
    chosen = KINDS[kind](settings)
    simulate.results(chosen, tmp_path)
    lines = tables.summary(read(chosen, tmp_path, with_curves=False)).splitlines()
    assert max(map(len, lines)) <= 100


def test_tables_of_a_run_that_has_not_begun(settings, tmp_path):
    tables.write(settings, tmp_path)
    for name, column in (("accounting", 1), ("data", 1), ("lengths", 1), ("training", 1), ("results", 3)):
        header, *body = markdown_cells(tmp_path / f"tables/{name}.md")
        assert body
        ours = [cell for line in body for cell, title in zip(line, header, strict=True) if "paper" not in title]
        cells = [cell for i, cell in enumerate(ours) if i % (len(ours) // len(body)) >= column]
        assert set(cells) == {"–"}, name
    assert "value" in (tmp_path / "tables/results_by_seed.csv").read_text()
    assert (tmp_path / "tables/data.csv").read_text().startswith("shard,rows_in,kept")
