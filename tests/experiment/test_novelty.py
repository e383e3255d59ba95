"""How new a task is to an agent of the general suite."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from distrl.experiment.novelty import novelty_of
from distrl.tasks.suite import EVALUATION_SEED, SUITES
from distrl.types import Split, Task

GENERAL = SUITES["general"]


def of(suite: str) -> Counter[str]:
    tasks = [SUITES[suite].task(index, EVALUATION_SEED, Split.TEST) for index in range(128)]
    return Counter(novelty_of(task, GENERAL) for task in tasks)


def test_every_held_out_task_of_the_suite_itself_is_a_new_instance() -> None:
    assert of("general") == {"instance": 128}


def test_other_suites_have_other_templates_and_the_mail_is_another_app() -> None:
    assert of("webshop") == {"template": 128}
    assert of("install") == {"template": 128}
    found = {(task.family, novelty_of(task, GENERAL)) for task in _google()}
    assert {novelty for family, novelty in found if family in ("read", "reply", "compose", "trash")} == {"app"}
    assert {novelty for family, novelty in found if family in ("star", "way", "cancel")} == {"template"}
    assert {novelty for family, novelty in found if family == "video"} == {"instance"}, "asked in general's words"


def test_a_task_of_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match="no built-in suite"):
        novelty_of(replace(_google()[0], suite="mine"), GENERAL)


def _google() -> list[Task]:
    return [SUITES["googleapps"].task(index, EVALUATION_SEED, Split.TEST) for index in range(128)]
