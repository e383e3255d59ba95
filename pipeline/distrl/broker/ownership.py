"""Names the process that has taken over as learner or feeder, for the error of the fenced one. Only for people.

The broker does not report who has taken over. So each owner sends its name in a header of its heartbeats, the first as
soon as it has fenced the others; a fenced learner looks for the newest name that is not its own. A feeder goes by the
claims of claims.py, which have these names.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Final

from distrl.broker.fenced import TRANSACTION_TIMEOUT_S, FencedError, this_process
from distrl.broker.producer import Headers, RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import Heartbeat, LogPosition
from distrl.wire.codec import encode

HEADER: Final = "distrl.process"
POLL_S: Final = 0.2
LOOKED_BACK: Final = 30_000
"""Heartbeats searched for the successor's name, about ten minutes of a hundred processes: it announces itself on taking
over, and a fenced learner may have folded for minutes before it tried to write."""


def send(producer: RecordProducer, config: Config, beat: Heartbeat, more: Headers = ()) -> Future[LogPosition | None]:
    """Publish a role's heartbeat with this process's name. more: other headers.

    Raises BrokerError if it cannot be queued.
    """
    headers = [(HEADER, this_process().encode()), *more]
    return producer.publish_bytes(topic_name(config.run, "heartbeats"), beat.process.encode(), encode(beat), headers)


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
    names = [name for each in newest_headers(config, role) if (name := process_of(each))]
    me = this_process()
    since = names.index(me) if me in names else 0
    return next((who for who in reversed(names[since:]) if who != me), None)


def newest_headers(config: Config, role: str) -> list[dict[str, bytes | None]]:
    """The headers of a role's newest heartbeats, in log order."""
    with LogReader(config, "heartbeats") as whole:
        start = {p: max(first, whole.ends[p] - LOOKED_BACK) for p, first in whole.next_offsets.items()}
    with LogReader(config, "heartbeats", start) as reader:
        return [dict(raw.headers) for batch in reader.to_end() for raw in batch if raw.key == role.encode()]


def process_of(headers: Mapping[str, bytes | None]) -> str:
    """The name of the process that sent a heartbeat with these headers; "" if they have none."""
    return (headers.get(HEADER) or b"").decode("utf-8", "replace")
