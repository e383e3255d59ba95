"""A run has one id from the first start on, also where the tracker is started before it has begun."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.runs.recorded import RecordedSettings
from distrl.trackers import follow
from distrl.trackers.follow import TrackerError, track, tracked_run
from distrl.trackers.protocol import TrackedRun, Tracker
from distrl.types import Settings

CONFIG = Config(run="r")
FIRST = Settings(77, "learner", "a-process", (), "1.0", "f" * 64, False, {"learner.seed": "3"})


def test_a_run_that_has_not_begun_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "LOOK_S", 0.0)
    looks = iter([None, None, RecordedSettings((FIRST,))])
    found = tracked_run(CONFIG, threading.Event(), follow=True, look=lambda _: next(looks))
    assert found == TrackedRun("r", 77, {"learner.seed": 3})
    assert found.id == "r-77"


def test_who_waits_can_be_stopped() -> None:
    stop = threading.Event()
    stop.set()
    assert tracked_run(CONFIG, stop, follow=True, look=lambda _: None) is None


def test_a_run_that_has_not_begun_is_refused_where_nobody_waits() -> None:
    with pytest.raises(ConfigError, match=r"run r: has no settings in its log.*\n  hint: .*--no-follow"):
        tracked_run(CONFIG, threading.Event(), follow=False, look=lambda _: None)


def test_a_library_that_fails_when_its_tracker_is_made_is_explained(tmp_path: Path) -> None:
    """As MLflow's does for an address of a scheme that it does not know."""

    def fails(folder: Path) -> Tracker:
        raise RuntimeError("unsupported URI 'foo://bar'")

    run = TrackedRun("demo", 0, {})
    with pytest.raises(TrackerError, match="has failed: RuntimeError: unsupported URI 'foo://bar'"):
        track(Config(run="demo"), run, fails, tmp_path, threading.Event(), follow=False)
