"""`LogReader.to_end`: the brokers' silence ends it, the caller's own work does not. On a clock and a log made here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distrl.broker import reader
from distrl.broker.reader import LogReader, RawRecord
from distrl.config import load
from distrl.errors import BrokerError
from distrl.types import LogPosition


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Scripted(LogReader):
    """Two records, and `silent` reads between them that find nothing and take a second each."""

    def __init__(self, clock: Clock, silent: int) -> None:
        self._config = load(sets=["kafka.connect_timeout_s=1"], environ={})
        self.topic, self.ends, self._next, self._at_end = "t", {0: 2}, {0: 0}, {}
        self._clock, self._reads = clock, self._script(silent)

    def read(self, timeout_s: float, most: int = 1) -> list[RawRecord]:
        return next(self._reads)

    def _script(self, silent: int) -> Iterator[list[RawRecord]]:
        for offset in (0, 1):
            self._next[0] = offset + 1
            yield [RawRecord(LogPosition("t", 0, offset), b"", b"", 0)]
            for _ in range(silent):
                self._clock.now += 1.0
                yield []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(reader, "time", made)
    return made


def test_a_caller_that_takes_its_time_is_not_the_brokers_silence(clock: Clock) -> None:
    read = []
    for batch in Scripted(clock, silent=1).to_end():
        read += batch
        clock.now += 600.0
    assert len(read) == 2


def test_brokers_that_send_nothing_end_it(clock: Clock) -> None:
    with pytest.raises(BrokerError, match="sent nothing for 2 s"):
        list(Scripted(clock, silent=4).to_end())
