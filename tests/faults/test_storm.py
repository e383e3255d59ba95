"""The storm: everything is killed at random instants under load, and in the end nothing is missing or twice.

`make faults STORM=300` makes it that long, `SEED=` replays a schedule of kills.
"""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from faults.live import LiveRun

STORM_S = float(os.environ.get("STORM") or 25.0)
ROLES = ("worker-0", "worker-1", "learner", "feeder")
SERVERS = ("kafka", "s3")
AGAIN_S = (0.0, 2.0)
"""How long a killed one stays away, drawn between these."""
BETWEEN_S = (0.5, 4.0)
"""Between two kills: a killed worker is missed after 6 s only, and something should be done meanwhile."""
ROLE_SHARE = 0.8
"""Of the kills; a server takes longer to come back, and nothing else happens meanwhile."""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(STORM_S * 2 + 900)]


@dataclass(frozen=True, slots=True)
class Kill:
    """at: seconds after the storm's beginning. away_s: until it is started again."""

    at: float
    whom: str
    away_s: float


def schedule(rule: random.Random, seconds: float, servers: tuple[str, ...]) -> list[Kill]:
    """A function of the seed alone. The first kills are one of each, so that a short storm is a whole one."""
    first = [*ROLES, *servers]
    rule.shuffle(first)
    kills: list[Kill] = []
    at = rule.uniform(*BETWEEN_S)
    while at < seconds:
        drawn = rule.choice(ROLES if rule.random() < ROLE_SHARE else servers)
        kills.append(Kill(at, first.pop() if first else drawn, rule.uniform(*AGAIN_S)))
        at += rule.uniform(*BETWEEN_S)
    return kills


class Storm:
    """Kills by the schedule and starts again what was killed; one thread of its own for servers that come back."""

    def __init__(self, run: LiveRun) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(len(SERVERS))
        self._coming: dict[str, Future[None]] = {}
        self._due: list[tuple[float, str]] = []
        self.killed: list[str] = []

    def blow(self, kills: list[Kill], seconds: float) -> None:
        began = time.monotonic()
        waiting = list(kills)
        while (now := time.monotonic() - began) < seconds:
            if waiting and waiting[0].at <= now:
                self._kill(waiting.pop(0), now)
            for at, whom in [due for due in self._due if due[0] <= now]:
                self._due.remove((at, whom))
                self.start(whom)
            self._run.supervise()
            time.sleep(0.02)

    def calm(self) -> None:
        """Everything lives again."""
        for future in self._coming.values():
            future.result(120.0)
        self._run.servers.start(*SERVERS, "adb", "phones")
        for _, whom in self._due:
            self.start(whom)
        self._due.clear()
        self._pool.shutdown()

    def start(self, whom: str) -> None:
        run = self._run
        if whom == "learner":
            run.learner()
        elif whom == "feeder":
            run.start("feeder", "feed")
        else:
            run.worker(int(whom.removeprefix("worker-")), of=2)

    def _kill(self, kill: Kill, now: float) -> None:
        if kill.whom in SERVERS:
            coming = self._coming.get(kill.whom)
            if coming is not None and not coming.done():
                return  # it is away already
            self._run.servers.kill(kill.whom)
            self._coming[kill.whom] = self._pool.submit(self._run.servers.start, kill.whom)
        elif self._run.roles[kill.whom].code is None:
            self._run.roles[kill.whom].kill()
            self._due.append((now + kill.away_s, kill.whom))
        else:
            return
        self.killed.append(kill.whom)


def test_a_storm_of_kills_leaves_every_task_counted_once_and_a_learner_that_a_fresh_one_equals(
    run: LiveRun, rule: random.Random
) -> None:
    run.record(demonstrations=6)
    run.restarted = set(ROLES)
    storm = Storm(run)
    for role in ROLES:
        storm.start(role)
    run.until("the first records", lambda: len(run.counted()) >= 3)
    kills = schedule(rule, STORM_S, SERVERS if run.servers.store_can_be_killed() else SERVERS[:1])
    storm.blow(kills, STORM_S)
    storm.calm()
    before = len(run.counted())
    print(f"{len(storm.killed)} kills in {STORM_S:.0f} s: {' '.join(storm.killed)}; {before} tasks done by then")

    run.until("the run to go on", lambda: len(run.counted()) >= before + 6)
    run.stop("feeder")
    run.restarted -= {"feeder"}
    run.until("every task that was fed to be counted", lambda: set(run.counted()) >= set(run.tasks()))
    run.restarted -= {"worker-0", "worker-1"}
    run.stop("worker-0", "worker-1")
    assert set(run.counted()) == set(run.tasks())
    assert run.missing_objects() == []
    run.until_learned()
    run.restarted.clear()
    lived = run.end_learning()
    print(f"{len(run.tasks())} tasks fed, {run.duplicates()} records of a task that had one, {lived.updates} updates")
