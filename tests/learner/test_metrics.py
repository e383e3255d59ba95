from __future__ import annotations

from dataclasses import replace

import factories
from distrl.clock import Clock
from distrl.learner.metrics import FOLDING, LearnerMetrics, window_metrics
from distrl.types import LoggedTrajectory, LogPosition, Update


def logged(oldest: int, finished_at: int, is_expert: bool = False) -> LoggedTrajectory:
    steps = tuple(factories.step(version=version) for version in (oldest + 1, oldest))
    played = factories.trajectory(f"t-{oldest}", steps, finished_at=finished_at)
    return LoggedTrajectory(LogPosition("trajectories", 0, oldest), replace(played, is_expert=is_expert))


def update(version: int, journalled_at: int) -> Update:
    return Update(3, (), "", journalled_at, version=version)


def test_the_lag_is_from_the_oldest_version_that_acted_to_the_newest_at_the_update() -> None:
    window = [logged(2, 1_000), logged(5, 3_000), logged(0, 0, is_expert=True)]
    found = window_metrics(window, update(6, 5_000))
    assert found == {"window_lag_mean": 2.5, "window_lag_max": 4.0, "window_age_seconds": 3.0}


def test_a_window_of_demonstrations_has_no_lag_and_no_clock_makes_one_negative() -> None:
    assert window_metrics([logged(0, 0, is_expert=True)], update(6, 5_000)) == {}
    ahead = window_metrics([logged(7, 9_000)], update(6, 5_000))
    assert ahead == {"window_lag_mean": 0.0, "window_lag_max": 0.0, "window_age_seconds": 0.0}


def test_time_is_counted_whatever_becomes_of_an_attempt_and_an_update_shows_once_there_was_one() -> None:
    ticks = iter((10.0, 13.0, 20.0, 21.0))
    metrics = LearnerMetrics(Clock(lambda: 0.0, lambda: next(ticks)))
    try:
        with metrics.spending(FOLDING):
            raise OSError("the store is away")
    except OSError:
        pass
    with metrics.spending(FOLDING):
        pass
    assert metrics.metrics() == {"folding_seconds": 4.0, "waiting_seconds": 0.0, "stalled": 0.0}
    metrics.folded({"update": 4.0}, [logged(2, 1_000)], update(3, 2_000))
    metrics.update_seconds = 1.5
    shown = metrics.metrics()
    assert (shown["update"], shown["update_seconds"], shown["window_lag_max"]) == (4.0, 1.5, 1.0)
