"""What reads the windows of a journal ends where the brokers are silent. On a clock and a log made here."""

from __future__ import annotations

from typing import Any

import pytest
from distrl.broker.reader import LogReader, RawRecord
from distrl.config import load
from distrl.errors import BrokerError
from distrl.learner import verify
from distrl.learner.reading import pending_log_at
from distrl.types import Update, Watermark


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_brokers_that_send_nothing_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verification waited for ever for a broker that had gone."""
    config, clock = load(sets=["run=r", "kafka.connect_timeout_s=1"], environ={}), Clock()

    class Silent(LogReader):
        def __init__(self, config: Any, topic: str, *_: Any, **__: Any) -> None:
            self._config, self.topic, self.ends = config, f"distrl.r.{topic}", {0: 1}
            self._next, self._at_end = {0: 0}, {}

        def read(self, timeout_s: float, most: int = 1) -> list[RawRecord]:
            clock.now += timeout_s
            if clock.now > 60.0:
                pytest.fail("it still waits")
            return []

        def close(self) -> None: ...

    monkeypatch.setattr(verify, "LogReader", Silent)
    monkeypatch.setattr(verify, "time", clock, raising=False)
    updates = [Update(0, (Watermark("distrl.r.trajectories", 0, 1),), "", 0)]
    with pytest.raises(BrokerError, match="sent nothing for 2 s"):
        list(verify.windows(config, updates, pending_log_at(config, ()), ()))
