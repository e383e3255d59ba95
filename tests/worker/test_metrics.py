from __future__ import annotations

import factories
from distrl.types import Outcome
from distrl.worker.metrics import MOST_SUITES, OTHER_SUITE, WorkerMetrics


def test_tasks_of_ever_new_suites_make_no_more_series() -> None:
    metrics = WorkerMetrics()
    for number in range(3 * MOST_SUITES):
        for _ in range(2):
            task = factories.task(f"t-{number}", suite=f"suite-{number}")
            metrics.add(factories.trajectory(task, (), outcome=Outcome.FAILURE))
    found = metrics.outcomes()
    assert len({suite for suite, _ in found}) == MOST_SUITES + 1
    assert found["suite-0", Outcome.FAILURE] == 2
    assert found[OTHER_SUITE, Outcome.FAILURE] == 4 * MOST_SUITES
    assert sum(found.values()) == 6 * MOST_SUITES
