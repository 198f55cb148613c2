"""The paper's figures as data: those that it prints, each with its source."""

from tokencodes.report.published import paper_count, published

# The paper's table as printed: task, metric, Learned, Binary16, GF2.
PRINTED = """
hellaswag acc_norm 57.79 52.40 51.44
piqa acc 72.69 70.51 71.16
lambada_openai acc 47.72 42.75 42.29
arc_easy acc_norm 66.04 61.53 60.73
arc_challenge acc_norm 37.63 34.04 34.22
winogrande acc 58.56 55.33 55.01
openbookqa acc_norm 37.80 38.00 -
wikitext word_perplexity 16.50 18.58 19.03
"""
PRINTED_STDERR = {"hellaswag": 0.50, "piqa": 1.06, "lambada_openai": 0.69}  # of Binary16; no others are given


def test_published_figures_are_those_printed():
    scores = {key: figure for key, figure in published().items() if key[0] not in ("parameters", "training")}
    for line in PRINTED.strip().splitlines():
        task, metric, *texts = line.split()
        for model, text in zip(("Learned", "Binary16", "GF2"), texts, strict=True):
            figure = scores.pop((task, metric, 0, model), None)
            assert (figure.text if figure else "-") == text
            if figure:
                assert figure.value == float(text)
                assert figure.stderr == (PRINTED_STDERR.get(task) if model == "Binary16" else None)
    for task, text in (("commonsense_qa", "≈ 20"), ("mmlu", "≈ 25–26")):
        for model in ("Learned", "Binary16", "GF2"):
            figure = scores.pop((task, "acc", 0, model))
            assert figure.text == text
            assert figure.note.startswith("approximate")
    assert {key: figure.value for key, figure in scores.items()} == {
        ("hellaswag", "acc_norm", 0, "SmolLM2-135M"): 43.02,
        ("hellaswag", "acc_norm", 0, "SmolLM2-360M"): 56.28,
    }


def test_published_accounting_adds_up():
    def count(model: str, part: str) -> float:
        return published()["parameters", part, None, model].value

    for model in ("Learned", "Binary16", "GF2"):
        assert count(model, "trainable") == count(model, "backbone") + count(model, "head") + count(model, "input")
    removed = count("Learned", "trainable") - count("GF2", "trainable")
    assert removed == 49_152 * 2_048 == 100_663_296
    assert round(100 * removed / count("Learned", "trainable"), 2) == 5.56


def test_each_figure_has_a_source_and_a_unit():
    assert all(figure.source and figure.unit for figure in published().values())


def test_what_the_paper_does_not_give_has_no_count():
    assert paper_count("Learned", "trainable") == published()["parameters", "trainable", None, "Learned"].value
    for model in (None, "Other"):
        assert paper_count(model, "trainable") is None
    assert paper_count("Learned", "acc", task="piqa") is None, "a score is no count"
