"""How far the clocks differ is measured by records that were appended after the start was read, not by old ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from types import SimpleNamespace

import pytest
from distrl.broker.reader import RawRecord
from distrl.clock import Clock
from distrl.config import Config, load
from distrl.telemetry import feed as module
from distrl.telemetry.feed import AGES, HEARTBEATS, RunFeed
from distrl.telemetry.fleet import clock_findings
from distrl.types import Heartbeat, LogPosition
from distrl.wire.codec import encode

BEGAN_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


class World:
    """A broker with a topic of heartbeats, its clock, and that of the machine that asks, in ms since the epoch."""

    def __init__(self) -> None:
        self.now, self.ahead = BEGAN_MS, 0
        self.log: list[RawRecord] = []
        self.reading_ms = 0
        """How long reading the start takes."""
        self.came: list[tuple[int, str]] = []
        """(ms after that reading began, process) of heartbeats that are appended meanwhile."""
        self.later: list[tuple[int, int, str]] = []
        """(ms until it is appended, ms until it comes, process) of heartbeats of the time after."""

    def beat(self, process: str = "w") -> None:
        value = encode(Heartbeat(process, "worker", 0, None, None))
        self.log.append(RawRecord(LogPosition("heartbeats", 0, len(self.log)), None, value, self.now))

    def read_the_start(self) -> None:
        """The first time; heartbeats are read again at its end."""
        if self.now > BEGAN_MS:
            return
        began = self.now
        for after, process in self.came:
            self.now = began + after
            self.beat(process)
        self.now = began + self.reading_ms

    def go_on(self) -> None:
        if self.later:
            appended, delivered, process = self.later.pop(0)
            self.now += appended
            self.beat(process)
            self.now += delivered


class Reader:
    """Of a topic of a world. Only that of heartbeats has records."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._is_of_heartbeats, self._next = world, name == HEARTBEATS, 0
        self.ask_ends()
        self.next_offsets: Mapping[int, int] = {0: 0}

    @property
    def _log(self) -> list[RawRecord]:
        return self._world.log if self._is_of_heartbeats else []

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ask_ends(self) -> None:
        self.ends: Mapping[int, int] = {0: len(self._log)}

    def to_end(self) -> Iterator[list[RawRecord]]:
        found = self._log[self._next : self.ends[0]]
        self._next = self.ends[0]
        if found:
            yield found
        if self._is_of_heartbeats:
            self._world.read_the_start()

    def read(self, _: float) -> list[RawRecord]:
        if self._next == len(self._log) and self._is_of_heartbeats:
            self._world.go_on()
        found = self._log[self._next :]
        self._next += len(found)
        return found


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made, ticks = World(), count(step=0.01)
    monkeypatch.setattr(module, "restored", lambda *_: None)
    monkeypatch.setattr(module, "retained", lambda *_: {0: (0, len(made.log))})
    monkeypatch.setattr(module, "LogReader", lambda _, name, __: Reader(made, name))
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    return made


@pytest.fixture
def config() -> Config:
    return load(sets=["run=r"], environ={})


def listened(config: Config, world: World) -> tuple[RunFeed, list[str]]:
    """A feed that has listened, and who is alive."""
    with RunFeed(config, clock=Clock(now=lambda: (world.now + world.ahead) / 1000)) as feed:
        feed.listen()
        return feed, [each.process for each in feed.status().heard()]


def test_a_start_that_took_long_to_read_blames_no_clock_and_makes_no_dead_process_alive(
    config: Config, world: World
) -> None:
    world.beat()
    world.reading_ms, world.came = 60_000, [(5_000, "w"), (29_000, "w")]
    feed, heard = listened(config, world)
    assert (clock_findings(feed.ahead_s), heard) == ([], [])
    assert feed.status().silent == {"w"}


def test_a_heartbeat_that_a_frozen_broker_delivers_late_blames_no_clock_and_makes_no_dead_process_alive(
    config: Config, world: World
) -> None:
    world.beat()
    world.reading_ms, world.later = 60_000, [(1_000, 31_000, "w")]
    feed, heard = listened(config, world)
    assert (clock_findings(feed.ahead_s), heard) == ([], [])


@pytest.mark.parametrize("ahead_ms", [60_000, 25 * HOUR_MS, -60_000])
def test_a_clock_that_is_off_is_found_by_the_next_heartbeat_and_who_sent_it_is_alive(
    config: Config, world: World, ahead_ms: int
) -> None:
    """A day ahead, too, by which every process seems to be forgotten."""
    world.beat()
    world.reading_ms, world.came = 40_000, [(5_000, "w")]
    world.later, world.ahead = [(4_000, 0, "w")], ahead_ms
    feed, heard = listened(config, world)
    assert heard == ["w"]
    assert len(clock_findings(feed.ahead_s)) == 1
    assert abs(feed.ahead_s * 1000 - ahead_ms) <= 4_000


def test_who_follows_on_sees_by_the_newest_heartbeats_who_is_alive(config: Config, world: World) -> None:
    """As the live view does, however long after its start the first one comes."""
    world.beat()
    world.later, world.ahead = [(90_000, 0, "w")], 60_000
    with RunFeed(config, clock=Clock(now=lambda: (world.now + world.ahead) / 1000)) as feed:
        feed.wait(0.1)
        assert [each.process for each in feed.status().heard()] == ["w"]


def test_a_clock_that_is_set_right_meanwhile_is_taken_for_right_again(config: Config, world: World) -> None:
    world.beat()
    world.later, world.ahead = [(5_000, 0, "w")] * 4 * AGES, -60_000
    with RunFeed(config, clock=Clock(now=lambda: (world.now + world.ahead) / 1000)) as feed:
        feed.wait(0.1)
        assert (feed.ahead_s, bool(world.later)) == (-60, True)
        world.ahead = 0
        while world.later:
            feed.wait(0.1)
        assert (feed.ahead_s, feed.status().silent) == (0, set())


def test_who_reported_while_the_start_was_read_is_alive_at_once(config: Config, world: World) -> None:
    world.beat()
    world.reading_ms, world.came = 60_000, [(59_000, "w")]
    with RunFeed(config, clock=Clock(now=lambda: world.now / 1000)) as feed:
        assert [each.process for each in feed.status().heard()] == ["w"]
