"""Feeders killed and doubled: every task is fed once."""

from __future__ import annotations

import socket
import threading
from collections import Counter

import factories
import pytest
from distrl.broker.group import uncommitted
from distrl.feeder.publish import TaskPublisher

from faults.live import LiveRun
from faults.roles import KILLED
from faults.test_away import StandsStill

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

MOST = 12
"""feeder.outstanding of these runs."""


def test_of_two_feeders_the_older_is_fenced_and_feeds_nothing_more(run: LiveRun) -> None:
    run.publish_version(0)
    older = run.start("feeder", "feed")
    run.until("it to feed", lambda: len(run.tasks()) == MOST)
    newer = run.start("newer", "feed")
    run.until("the other to begin", lambda: f"{MOST} tasks fed before" in newer.said())
    del run.roles["feeder"]
    run.worker()
    assert older.wait() == 1
    words = " ".join(older.said().split())
    assert f"another feeder has taken over run {run.config.run}" in words
    assert f"It is process {newer.pid} on {socket.gethostname()}" in words
    run.until("the newer one to go on", lambda: len(run.tasks()) >= 3 * MOST)
    run.stop("newer")
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.stop()
    assert max(Counter(run.tasks()).values()) == 1
    assert run.duplicates() == 0


@pytest.mark.faults_long
def test_a_feeder_that_stood_still_in_a_write_goes_on_where_no_other_has_taken_over(run: LiveRun) -> None:
    """The broker ends its transaction then, and refuses it as if another feeder had taken over."""
    begin = dict.fromkeys(range(run.config.kafka.task_partitions), 0)
    with TaskPublisher(run.config) as here:
        assert here._producer is not None
        here._producer._producer = StandsStill(here._producer._producer, run.config, "tasks")  # type: ignore[assignment]
        for name in ("first", "second"):
            here.feed([(factories.task(name), 0)], begin, threading.Event())
    assert run.tasks() == ["first", "second"]


@pytest.mark.parametrize("nth", [1, 2])
def test_a_feeder_killed_between_publish_and_commit_loses_no_task_and_feeds_none_twice(run: LiveRun, nth: int) -> None:
    run.publish_version(0)
    killed = run.start("feeder", "feed", point="tasks_published", nth=nth)
    run.worker()
    run.until("the feeder to die", lambda: killed.code is not None)
    assert killed.code == KILLED
    standing = set(run.tasks())
    assert len(standing) >= MOST
    another = run.start("feeder", "feed")
    run.until("another to go on", lambda: len(run.tasks()) >= len(standing) + MOST)
    run.stop("feeder")
    counts = [beat.metrics["fed"] for beat in run.beats("feeder", another) if "fed" in beat.metrics]
    assert counts == sorted(counts), "a counter never goes back"
    assert all(count >= len(standing) for count in counts), "nor behind that of the feeder before"
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.until("every task to be committed", lambda: uncommitted(run.config) == [])
    run.stop()
    assert standing < set(run.tasks())
    assert max(Counter(run.tasks()).values()) == 1
    assert run.duplicates() == 0
