"""What runs a finished job again: for each stage, the modules that its digest holds, and why.

A digest that lacks a module would mark nothing stale when that module changes; one with a module too many would train
or score again for an edit that decides nothing. So an import that adds or removes one is entered here, with its reason.
"""

import re

import pytest

from tokencodes import codeversion

WHY = {
    "analysis.curves": "the loss curves that are drawn",
    "analysis.paired": "the statistics of paired documents",
    "analysis.pairing": "which documents of two models form a pair",
    "analysis.seeds": "the statistics over seeds",
    "data.encoder": "text to token ids",
    "data.indexing": "counts and the unigram model over all shards",
    "data.pieces": "how the tokenizer splits text",
    "data.prepare": "which documents are kept, and the split",
    "data.sampler": "which windows a step sees",
    "data.source": "what a raw shard holds",
    "data.store": "how tokens are stored and read",
    "data.tokenizer": "vocabulary and merges; the bytes of a token",
    "evaluate.benchmarks": "which documents a benchmark has",
    "evaluate.catalogue": "metric, chance and label of a benchmark",
    "evaluate.corpus": "scores of the held-out documents",
    "evaluate.engine": "log-likelihoods of answers",
    "evaluate.harness": "metrics, chance and scores by document, from the harness' samples",
    "evaluate.references": "weights and tokenizer of others' models",
    "evaluate.rows": "how requests become rows of tokens",
    "evaluate.softmax": "the softmax over the vocabulary",
    "evaluate.run": "what is scored, and how documents become a score",
    "evaluate.taskdata": "which data a task reads",
    "evaluate.tasks": "prompts and answers, by the harness",
    "interfaces.codes": "which code a token has, and whether it is the one that was made",
    "interfaces.form": "what a model has to know of its input",
    "interfaces.gf2": "the masks of the hadamard lift, and the matrix of gf2 codes",
    "interfaces.inputs": "the scale of the inputs",
    "interfaces.lift": "from a code to an input of the model's width",
    "interfaces.module": "the forward pass of the input",
    "interfaces.vocabulary": "K = ceil(log2 V), and how tokens are spelled",
    "model.accounting": "what is counted",
    "model.adapter": "what the config of an export states",
    "model.hf": "the forward pass under Transformers",
    "model.hf_config": "the keys of an export's config",
    "model.loss": "the loss and its gradient",
    "model.shape": "parameters and FLOPs in closed form",
    "model.standalone": "the code that travels with an export",
    "model.transformer": "the forward pass and the initial weights",
    "model.weights": "which files are a model's weights, and the hash that names them",
    "train.checkpoint": "what a run continues from",
    "train.distributed": "how gradients meet, and what is deterministic",
    "train.export": "what an export holds",
    "train.importing": "how a checkpoint of others becomes a model of ours",
    "train.loop": "the order of everything in a step",
    "train.optim": "rate, decay and update",
    "validate.checks": "what is compared",
}
INPUT = ("interfaces.codes", "interfaces.form", "interfaces.gf2", "interfaces.inputs", "interfaces.lift")
MODEL = (*INPUT, "interfaces.module", "interfaces.vocabulary", "model.transformer")
EXPORT = (*MODEL, "model.adapter", "model.hf", "model.hf_config", "model.standalone")
STAGES = {
    "codes": ("interfaces.codes", "interfaces.vocabulary"),
    "source": ("data.source",),
    "tokenizer": ("data.pieces", "data.tokenizer"),
    "prepare": ("data.encoder", "data.pieces", "data.prepare", "data.store"),
    "indexing": ("data.indexing", "data.store"),
    "accounting": (*MODEL, "model.accounting", "model.shape"),
    "loop": (
        *(*MODEL, "model.loss", "data.sampler", "data.store"),
        *("train.checkpoint", "train.distributed", "train.loop", "train.optim"),
    ),
    "export": (*EXPORT, "train.checkpoint", "train.export"),
    "checks": (
        *(*EXPORT, "model.loss", "model.shape", "data.pieces", "data.sampler", "data.store", "data.tokenizer"),
        *("train.checkpoint", "train.export", "validate.checks"),
    ),
    "run": (
        *("data.store", "interfaces.form", "interfaces.module"),
        *("model.hf", "model.hf_config", "model.transformer", "model.weights"),
        *(
            f"evaluate.{name}"
            for name in ("catalogue", "corpus", "engine", "harness", "rows", "run", "softmax", "taskdata", "tasks")
        ),
    ),
    "benchmarks": ("evaluate.benchmarks", "evaluate.catalogue", "evaluate.taskdata"),
    "references": (
        *(*EXPORT, "data.pieces", "data.tokenizer", "evaluate.references"),
        *("train.checkpoint", "train.export", "train.importing"),
    ),
}
DRAWN = ("report.tables", "report.figures", "report.page", "report.others")  # seconds; whatever they import counts


def entries(root) -> dict[str, str]:
    """The entry module of each rule's digest, by its last name."""
    text = "".join(path.read_text() for path in sorted((root / "workflow/rules").glob("*.smk")))
    text += (root / "src/tokencodes/triggers.py").read_text()
    found = set(re.findall(r'digest\(\s*"tokencodes\.([\w.]+)"', text)) | {"train.loop"}
    return {name.rpartition(".")[2]: name for name in found if name not in DRAWN}


def modules(*entries: str) -> set[str]:
    """The modules of a digest, without packages."""
    names = (name.removeprefix("tokencodes.") for name in codeversion.closure(*(f"tokencodes.{e}" for e in entries)))
    return {name for name in names if "." in name}


def test_every_rule_with_a_digest_is_listed(root):
    assert entries(root).keys() == STAGES.keys()


@pytest.mark.parametrize("stage", STAGES)
def test_a_digest_holds_these_modules_and_no_others(root, stage):
    found = modules(entries(root)[stage])
    assert found == set(STAGES[stage]), found ^ set(STAGES[stage])


def test_every_module_of_a_digest_has_a_reason():
    named = {module for stage in STAGES.values() for module in stage}
    assert named <= WHY.keys(), named - WHY.keys()
    assert all(WHY.values())


@pytest.mark.parametrize("kind", ["binary", "gf2", "linear", "gaussian", "bytes"])
def test_a_code_books_digest_holds_its_own_kind_and_what_that_uses(kind):
    own = f"interfaces.codebooks.{kind}"
    found = modules("interfaces.codes", own)
    others = {"gf2": {"interfaces.codebooks.binary"}, "linear": {"interfaces.codebooks.binary"}}.get(kind, set())
    maths = {"interfaces.gf2"} if kind in ("gf2", "linear") else set()
    assert found == {"interfaces.codes", "interfaces.vocabulary", own} | others | maths


def test_what_is_left_out_has_a_reason_and_exists():
    assert all(codeversion.FRAME.values())
    for name in codeversion.FRAME:
        parts = name.split(".")[1:]
        base = codeversion.ROOT.joinpath(*parts)
        assert base.with_suffix(".py").exists() or (base / "__init__.py").exists(), f"{name} is no module"


@pytest.mark.parametrize("module", ["train.metrics", "train.energy", "train.final", "planning.plan", "cli"])
def test_wording_and_measuring_never_stop_a_run(root, module):
    """A reworded progress line must not make `on_code_change: refuse` stop an unfinished training."""
    assert module not in modules("train.loop")


def test_the_papers_k_is_in_the_digest_of_the_code_books():
    assert "interfaces.vocabulary" in modules("interfaces.codes", "interfaces.codebooks.binary")
