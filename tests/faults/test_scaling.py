"""Workers added and taken away under load, as by an autoscaler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from distrl.broker.group import uncommitted
from distrl.stack import ports
from distrl.stack.part import Site
from distrl.stack.phones import start_phones
from distrl.stack.processes import find_all, stop_all
from fetching import cache

from faults.live import STOP_S, LiveRun, Servers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FEW, MANY = 2, 8


@pytest.fixture
def addresses(servers: Servers, tmp_path: Path) -> Iterator[list[str]]:
    """Of as many phones as there are ever workers."""
    first = ports.draw("the phones of a test", count=MANY)
    site = Site(tmp_path / "phones", cache(), threading.Event(), print)
    start_phones(site, servers.phones().model_copy(update={"count": MANY, "base_port": first}))
    yield [f"127.0.0.1:{first + number}" for number in range(MANY)]
    stop_all(find_all(site.directory), STOP_S)


def test_scaling_out_and_in_under_load_loses_nothing_counts_each_task_once_and_ends_like_a_fresh_fold(
    new_run: Callable[..., LiveRun], addresses: list[str]
) -> None:
    """A task that is played while its partition moves to a new worker is played there too; the first record counts.
    A worker that is asked to stop ends its episodes and commits them, so scaling in repeats nothing.
    """
    run = new_run(
        {
            "devices": {"addresses": addresses},
            "kafka": {"task_partitions": MANY},
            "feeder": {"outstanding": 3 * MANY},
        }
    )
    run.record(demonstrations=6)
    run.learner()
    run.start("feeder", "feed")

    def worker(number: int) -> str:
        run.worker(number, of=MANY)
        return f"worker-{number}"

    def episodes(name: str) -> float:
        return max((beat.metrics.get("episodes", 0.0) for beat in run.beats(name)), default=0.0)

    def partitions(name: str) -> int:
        beats = run.beats(name)
        return len(beats[-1].partitions or ()) if beats else 0

    def more_episodes(names: list[str]) -> Callable[[], bool]:
        """Two more of each, so that what was played at this moment is recorded."""
        before = {name: episodes(name) for name in names}
        return lambda: all(episodes(name) >= before[name] + 2 for name in names)

    stay = [worker(number) for number in range(FEW)]
    run.until("the first workers to play", more_episodes(stay))
    come = [worker(number) for number in range(FEW, MANY)]
    run.until("each to have a partition", lambda: all(partitions(name) == 1 for name in stay + come))
    run.until("each to play", more_episodes(stay + come))
    moved = run.duplicates()
    run.stop(*come)
    stopped = len(run.counted())
    run.until("those that stay to go on", lambda: len(run.counted()) >= stopped + 2 * MANY)
    run.stop("feeder")
    run.until("every task to be counted", lambda: set(run.counted()) == set(run.tasks()))
    run.until("every task to be committed", lambda: uncommitted(run.config) == [])
    run.stop(*stay)
    print(f"{len(run.tasks())} tasks; {moved} played twice as partitions moved to {MANY - FEW} new workers")
    assert run.duplicates() == moved, "who stops has ended and committed what it played"
    assert run.missing_objects() == []
    run.until_learned()
    run.end_learning()
