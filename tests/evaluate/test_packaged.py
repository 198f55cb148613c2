"""Tasks without packaged data are refused before any job."""

from collections.abc import Callable

import pytest

from tokencodes.errors import UserError
from tokencodes.evaluate import benchmarks, packaged
from tokencodes.evaluate.catalogue import CORPUS_TASK
from tokencodes.evaluate.spec import Evaluate


def test_each_packaged_task_has_a_source_and_no_other() -> None:
    assert benchmarks.SOURCES.keys() == packaged.PACKAGED.keys()


@pytest.mark.parametrize("task", [*packaged.PACKAGED, CORPUS_TASK])
def test_shots_need_a_split_with_examples(task: str) -> None:
    packaged.check_task(task, 0)
    if packaged.PACKAGED.get(task):
        packaged.check_task(task, 5)
    else:
        with pytest.raises(UserError, match=r"evaluate\.tasks: .*shot"):
            packaged.check_task(task, 5)


def test_one_line_for_each_task_that_packaged_data_cannot_serve(configure: Callable[..., Evaluate]) -> None:
    names = ("piqa", "wikitext", "gsm8k")
    with pytest.raises(UserError) as found:
        packaged.check(configure(*names))
    lines = str(found.value).splitlines()
    assert len(lines) == 2 and "wikitext" in lines[0] and "gsm8k" in lines[1]
    packaged.check(configure(*names, data="hub"))
