"""Prints the last records of a topic and follows it, for people."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import TypeVar

from distrl.broker.reader import LogReader, decoded
from distrl.config import Config
from distrl.errors import WireError
from distrl.types import LogPosition, Record

R = TypeVar("R", bound=Record)

LOG = logging.getLogger("distrl.broker.tail")

FOLLOW_S = 0.5
"""Longest wait before `stop` is checked; a record ends it at once."""


def tail(
    config: Config, topic: str, expected: type[R], last: int, follow: bool, stop: threading.Event
) -> Iterator[tuple[LogPosition, R]]:
    """The last `last` records of each partition of `topic`, then, if `follow`, new ones until `stop` is set.

    An unreadable record is logged and skipped.
    """
    with LogReader(config, topic) as whole:
        start = {p: max(first, whole.ends[p] - last) for p, first in whole.next_offsets.items()}
    with LogReader(config, topic, start) as reader:
        while not stop.is_set() and (follow or not reader.caught_up):
            for raw in reader.read(FOLLOW_S):
                try:
                    yield raw.position, decoded(raw, expected)
                except WireError as error:
                    LOG.error("record skipped: %s", error)
