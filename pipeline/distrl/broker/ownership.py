"""Names the process that has taken over as learner or feeder, for the error of the fenced one. Only for people.

The broker does not report who has taken over. So each owner sends its name in a header of its heartbeats, the first as
soon as it has fenced the others; the fenced process looks for the newest name that is not its own.
"""

from __future__ import annotations

import time
from typing import Final

from distrl.broker.fenced import TRANSACTION_TIMEOUT_S, FencedError, this_process
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import Heartbeat
from distrl.wire.codec import encode

HEADER: Final = "distrl.process"
POLL_S: Final = 0.2
LOOKED_BACK: Final = 30_000
"""Heartbeats searched for the successor's name, about ten minutes of a hundred processes: it announces itself on taking
over, and a fenced learner may have folded for minutes before it tried to write."""


def send(producer: RecordProducer, config: Config, beat: Heartbeat) -> None:
    """Publish a role's heartbeat with this process's name. Raises BrokerError if it cannot be queued."""
    producer.publish_bytes(
        topic_name(config.run, "heartbeats"), beat.process.encode(), encode(beat), ((HEADER, this_process().encode()),)
    )


def naming(error: FencedError, config: Config, role: str, longest_s: float) -> FencedError:
    """`error` with the name of the process that has taken over as `role`; searches at most `longest_s`."""
    deadline = time.monotonic() + longest_s
    try:
        while (found := successor(config, role)) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
    except BrokerError as unreadable:
        return FencedError(error.where, f"{error.what} (its name cannot be read: {unreadable.what})", error.hint)
    if found is not None:
        return FencedError(error.where, f"{error.what}. It is {found}", error.hint)
    nobody = f"this one stalled for longer than {TRANSACTION_TIMEOUT_S:g} s during a write"
    return FencedError(
        error.where,
        f"{error.what}. It has not announced its name yet; or there is none, and {nobody}",
        f"{error.hint}; if there is no other, start this one again",
    )


def successor(config: Config, role: str) -> str | None:
    """The process that last announced itself as `role`, if it is not this one and did so after this one."""
    with LogReader(config, "heartbeats") as whole:
        start = {p: max(first, whole.ends[p] - LOOKED_BACK) for p, first in whole.next_offsets.items()}
    with LogReader(config, "heartbeats", start) as reader:
        sent = (dict(raw.headers).get(HEADER) for batch in reader.to_end() for raw in batch if raw.key == role.encode())
        names = [who.decode("utf-8", "replace") for who in sent if who is not None]
    me = this_process()
    since = names.index(me) if me in names else 0
    return next((who for who in reversed(names[since:]) if who != me), None)
