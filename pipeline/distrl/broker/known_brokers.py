"""Notices a client that knows no broker any more, and so waits for ever.

A broker that has just started does not know the cluster yet: asked for it, it may name no broker. librdkafka then
forgets every broker, those of bootstrap.servers included, and in some of these cases never adds one again (librdkafka
issue 5301, open in 2.16.0). It reports no error; only its statistics show it. The client has to be replaced.
"""

from __future__ import annotations

import json
from typing import Any, Final

from distrl.broker.client_settings import Settings

LOOK_S: Final = 10.0
"""Interval of librdkafka's statistics, unless a client needs them more often. A client that is not polled keeps them
all, at 10 KB each."""

FORGOTTEN_S: Final = 5.0
"""A client that has known no broker for this long is replaced. Mostly librdkafka adds those of bootstrap.servers again
within a second."""

SOURCES: Final = frozenset(("configured", "learned"))
"""Where librdkafka has a broker's address from. The others (`logical`, `internal`) are no brokers."""


class KnownBrokers:
    """What a client's statistics say of its brokers. Give `settings()` to the client and poll it; `connected` and
    `forgotten` are as of the last poll. For one client."""

    def __init__(self, look_s: float = LOOK_S) -> None:
        self.connected = True
        """Whether a broker was connected when the statistics were made, at most `look_s` before the last poll. Errors
        do not show it: librdkafka reports once, or repeatedly, that all brokers are down, and never that one is back
        (librdkafka issue 5546)."""
        self._look_s = look_s
        self._without = 0
        """Statistics in a row without a broker."""

    def settings(self) -> Settings:
        return {"statistics.interval.ms": int(self._look_s * 1000), "stats_cb": self._look}

    @property
    def forgotten(self) -> bool:
        """Whether the client has known no broker for FORGOTTEN_S."""
        return (self._without - 1) * self._look_s >= FORGOTTEN_S

    def _look(self, text: str) -> None:
        """Called by librdkafka within any call of the client that polls."""
        brokers: list[dict[str, Any]] = list(json.loads(text)["brokers"].values())
        self.connected = any(broker["state"] == "UP" for broker in brokers)
        self._without = 0 if any(broker["source"] in SOURCES for broker in brokers) else self._without + 1
