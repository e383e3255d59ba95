"""The oracle on phones behind the session's adb server."""

from __future__ import annotations

import threading

import pytest
from distrl import config
from distrl.rollout.oracle_smoke_test import oracle_smoke_test
from distrl.tasks.suite import EVALUATION_SEED, suites
from distrl.types import Outcome, Split

pytestmark = pytest.mark.integration


def settings(adb: config.AdbSettings) -> config.Config:
    return config.Config.model_validate(
        {"adb": adb.model_dump(), "phones": {"count": 4, "latency_median_ms": 5, "popup_probability": 0}}
    )


def test_the_oracle_does_a_task_of_each_suite_over_adb(adb_server: config.AdbSettings) -> None:
    tasks = [suite.task(0, EVALUATION_SEED, Split.TEST) for suite in suites().values()]
    counted: list[int] = []
    found = oracle_smoke_test(settings(adb_server), "steady", tasks, threading.Event(), lambda: counted.append(1))
    assert found.outcomes == {Outcome.SUCCESS: len(tasks)}
    assert found.ended == len(counted) == len(tasks)
    assert found.steps >= 3 * len(tasks)


def test_a_rehearsal_that_is_stopped_ends(adb_server: config.AdbSettings) -> None:
    stop = threading.Event()
    tasks = [suites()["webshop"].task(index, 0, Split.TEST) for index in range(64)]
    found = oracle_smoke_test(settings(adb_server), "steady", tasks, stop, stop.set)
    assert 1 <= found.ended < 64
