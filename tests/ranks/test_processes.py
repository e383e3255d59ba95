"""Ranks that were started here: none is left, and none is waited for that would not end."""

from __future__ import annotations

import logging
import signal
import subprocess
from typing import Any

import psutil
import pytest
from distrl.ranks import processes
from distrl.ranks.group import RankError
from distrl.ranks.processes import RankProcesses

WORLD = 3


def ranks_of(others: RankProcesses) -> list[subprocess.Popen[bytes]]:
    return list(others._children.values())


@pytest.mark.timeout(300)
def test_ranks_that_have_not_met_are_asked_to_end_and_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else each would wait for the others until it is killed."""
    monkeypatch.setattr(processes, "END_S", 60.0)
    with pytest.raises(RankError, match="rank 1 of 3"), RankProcesses(["learner"], WORLD) as others:  # noqa: PT012
        first, second = ranks_of(others)
        first.kill()
        first.wait()
        others.check()
    assert second.returncode in (0, -signal.SIGTERM)
    errors = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert errors == ["rank 1 of 3 has ended: killed by signal 9"], "none of who was asked"


@pytest.mark.timeout(300)
def test_ranks_that_hear_nothing_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "END_S", 0.2)
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)  # what is started meanwhile ignores it too
    try:
        with RankProcesses(["learner"], WORLD) as others:
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [child.returncode for child in ranks_of(others)] == [-signal.SIGKILL] * 2


@pytest.mark.timeout(300)
def test_where_one_cannot_be_started_those_before_it_are_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[subprocess.Popen[bytes]] = []

    def start(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
        if began:
            raise BlockingIOError("Resource temporarily unavailable")
        began.append(subprocess.Popen(*words, **more))
        return began[0]

    monkeypatch.setattr(processes, "subprocess", _With(start))
    with pytest.raises(BlockingIOError), RankProcesses(["learner"], WORLD):
        pass
    try:
        assert not psutil.pid_exists(began[0].pid)
    finally:
        began[0].kill()
        began[0].wait()


class _With:
    """The module subprocess with another Popen."""

    def __init__(self, start: Any) -> None:
        self.Popen = start

    def __getattr__(self, name: str) -> Any:
        return getattr(subprocess, name)
