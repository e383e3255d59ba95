from __future__ import annotations

import threading
from typing import Any

import pytest
from distrl.broker.reader import CutError
from distrl.config import load
from distrl.feeder import run


def test_who_reads_all_topics_again_opens_no_second_publisher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening one claims the role anew: the older would replace whoever has taken over meanwhile."""
    opened, from_starts, stop, rounds = [], [], threading.Event(), iter((CutError("updates", "are void", "wait"), None))

    class Publisher:
        def __init__(self, config: Any, tracer: Any) -> None: ...
        def __enter__(self) -> Publisher:
            opened.append(self)
            return self

        def __exit__(self, *_: Any) -> None: ...

    def feed_until(config: Any, publisher: Any, stop: threading.Event, from_start: bool, monitor: Any) -> None:
        from_starts.append(from_start)
        error = next(rounds)
        if error is not None:
            raise error
        stop.set()

    monkeypatch.setattr(run, "TaskPublisher", Publisher)
    monkeypatch.setattr(run, "_feed_until", feed_until)
    monkeypatch.setattr(run, "AGAIN_S", 0.0)
    run.run_feeder(load(environ={}), stop)
    assert len(opened) == 1
    assert from_starts == [False, True], "a snapshot may be of what is void"
