"""Notices by its statistics that a client is stuck: it would wait for ever, without an error, and has to be replaced.

Three ways are known in which a librdkafka client gets stuck:

- It knows no broker. A broker that has just started may name none where it is asked for the cluster, as it does not
  know it yet. The client then forgets all, those of bootstrap.servers included, and in some of these cases never adds
  one again (librdkafka issue 5301).
- It asks a broker for a partition that another one leads, as where the leader moves away and back within a moment
  (issues 3399 and 4976).
- It does not begin to read a partition that it was given, as where the group's coordinator moves while it is asked for
  the committed offset (issue 5586).
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, TypeVar

from distrl.broker.client_settings import Settings
from distrl.config import KafkaSettings
from distrl.errors import BrokerError

T = TypeVar("T")

LOOK_S: Final = 10.0
"""Interval of librdkafka's statistics, unless a client needs them more often."""

PARTITIONS: Final = 16
"""Of a topic that is read with more partitions, statistics come less often, in proportion: they have about 1 KB for
each, and a client that is not polled, as while a write is retried, keeps them all."""

FORGOTTEN_S: Final = 5.0
"""A client that has known no broker for this long is stuck. Mostly librdkafka adds those of bootstrap.servers again
within a second."""

STILL_S: Final = 30.0
"""A client is stuck where a partition has stood still for this long. An election takes about ten seconds, and so does a
request that is repeated as a broker did not answer. Each client that takes the place of a stuck one has twice as long,
up to MOST_PATIENT times: where replacing does not help, it must not be done all the time."""

MOST_PATIENT: Final = 64

LONG_S: Final = 7200.0
"""A client that has worked for this long before it was stuck is replaced by one with the patience of the first."""

AGAIN_S: Final = 1.0
"""Pause before a client that cannot be made is tried again."""

SOURCES: Final = frozenset(("configured", "learned"))
"""Where librdkafka has a broker's address from. The others (`logical`, `internal`) are no brokers."""


class ClientWatch:
    """What the statistics of one client say of it. Give `settings()` to the client, poll it, and ask `stuck` after each
    poll. One thread, but for `connected`.

    topic: its full name. read: the partitions of it that the client is to read now. look_s: interval of statistics.
    before: the watch of the client that this one replaces.
    """

    def __init__(
        self,
        kafka: KafkaSettings,
        topic: str = "",
        read: Callable[[], Collection[int]] = frozenset,
        look_s: float = LOOK_S,
        before: ClientWatch | None = None,
    ) -> None:
        self.connected = True
        """Whether a broker was connected when the statistics were made, at most `look_s` before the last poll after
        which `stuck` was asked. Errors do not show it: librdkafka reports once, or repeatedly, that all brokers are
        down, and never that one is back (librdkafka issue 5546)."""
        self._topic, self._read, self._look_s = topic, read, look_s
        self._reads_from_followers = "client.rack" in kafka.client
        self._looks = 0
        again = before is not None and before._looks * before._look_s < LONG_S
        self._patience: float = min(MOST_PATIENT, 2 * before._patience) if before is not None and again else 1
        self._rows: dict[tuple[str, float], int] = {}
        """(what is wrong, after how many seconds a client is stuck by it) -> statistics in a row that say so."""
        self._new: deque[str] = deque()
        """Statistics that were not looked at yet, as JSON."""

    def settings(self) -> Settings:
        # The callback is not Python code, in which Ctrl-C would be lost (OnError in connect.py).
        return {"statistics.interval.ms": int(self._look_s * 1000), "stats_cb": self._new.append}

    @property
    def stuck(self) -> str:
        """What is wrong with a client that is stuck, as a predicate; empty for any other."""
        while self._new:
            self._look(self._new.popleft())
        return next(
            (what for (what, after_s), count in self._rows.items() if (count - 1) * self._look_s >= after_s), ""
        )

    def replacement(self, make: Callable[[], T], log: logging.Logger, doing: str) -> T | None:
        """What `make` makes in the place of the client, which is stuck; None, after a pause, where that raises
        BrokerError: a file that its settings name is being changed, say. doing: what the client is for, for the log."""
        try:
            made = make()
        except BrokerError as error:
            log.warning("%s: the client %s, and cannot be replaced yet: %s", doing, self.stuck, error)
            time.sleep(AGAIN_S)
            return None
        log.warning("%s: the client %s, and is replaced", doing, self.stuck)
        return made

    def _look(self, text: str) -> None:
        self._looks += 1
        found = json.loads(text)
        brokers: list[dict[str, Any]] = list(found["brokers"].values())
        up = {broker["nodeid"] for broker in brokers if broker["state"] == "UP"}
        self.connected = bool(up)
        wrong = [(what, STILL_S * self._patience) for what in self._of_partitions(found.get("topics", {}), up)]
        if not any(broker["source"] in SOURCES for broker in brokers):
            wrong.append(("has forgotten every broker", FORGOTTEN_S))
        self._rows = {each: self._rows.get(each, 0) + 1 for each in wrong}

    def _of_partitions(self, topics: dict[str, Any], up: Collection[int]) -> Iterator[str]:
        """up: the ids of the brokers that are connected. A partition whose leader is away is waited for."""
        for name, topic in topics.items():
            read = self._read() if name == self._topic else ()
            for partition in topic["partitions"].values():
                number, asked, leader = (partition[key] for key in ("partition", "broker", "leader"))
                if leader >= 0 and asked not in {leader, -1} and not self._reads_from_followers:
                    yield f"asks broker {asked} for {name}[{number}], which broker {leader} leads"
                if leader in up and number in read and partition["fetch_state"] != "active":
                    yield f"does not read {name}[{number}]"
