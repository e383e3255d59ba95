"""Which of several processes has a role that a run has once, where each may open the role's producer again.

The broker refuses a producer that another process has opened since (fenced.py). It does not say whether that one is a
successor, or a predecessor whose own producer had failed. So each process claims the role when it has opened the
producer, and its heartbeats name the claim and the process in headers. The greatest claim has the role:

    open ─▶ claim ─▶ write ─▶ fenced, or no answer ─▶ is there a greater claim? ─▶ open ─▶ is there one now? ─┐
                       ▲                                                                                     │
                       └────────────────────────────── read the log ◀────────────────────────────────────────┘

A process that finds a greater claim ends. The second look decides: whoever claims after it has yet to write, and finds
the greatest claim to be its own, if it was fenced. So an older process fences a newer one at most once, and writes
nothing that the newer one does not read.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from distrl.broker.connect import failover_s
from distrl.broker.fenced import TRANSACTION_TIMEOUT_S, FencedError, this_process
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import Heartbeat, LogPosition
from distrl.wire.codec import encode

HEADER: Final = "distrl.claim"
PROCESS_HEADER: Final = "distrl.process"
SUCCESSOR_S: Final = 5.0
"""How long a fenced process looks for another one's claim, which that one makes once it has opened its producer."""
POLL_S: Final = 0.2
LOOKED_BACK: Final = 30_000
"""Heartbeats searched for claims, about ten minutes of a hundred processes: a claim is made on taking over and repeated
in each heartbeat, and a fenced learner may have folded for minutes before it tried to write."""
NAMELESS: Final = "a process without a name"
LONGEST_NUMBER: Final = 18
LONGEST_NONCE: Final = 32
"""Characters of a claim that is read: headers are untrusted."""


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A process's claim to a role."""

    number: int
    """ms since the epoch at which it was made; above the number of every claim that was there, whatever its clock."""
    nonce: str
    """Tells apart claims that are made at once."""

    @classmethod
    def after(cls, others: Iterable[Claim], now_ms: int) -> Claim:
        return cls(max([now_ms, *(each.number + 1 for each in others)]), secrets.token_hex(8))

    @classmethod
    def parsed(cls, header: bytes | None) -> Claim | None:
        """None for what is no claim."""
        number, _, nonce = (header or b"").decode("ascii", "replace").partition(" ")
        fits = number.isdecimal() and len(number) <= LONGEST_NUMBER and 0 < len(nonce) <= LONGEST_NONCE
        return cls(int(number), nonce) if fits else None

    @property
    def header(self) -> tuple[str, bytes]:
        return HEADER, f"{self.number} {self.nonce}".encode()


class ReplacedError(FencedError):
    """Another process has the role; this one must end."""


def fenced(run: str, role: str) -> FencedError:
    """Of a producer that the broker refuses, whoever opened it since."""
    return FencedError(
        f"{role} of run {run}",
        f"its producer was fenced: another {role} opened its own, or this one stalled for {TRANSACTION_TIMEOUT_S:g} s",
        f"wait: it goes on unless another {role} has taken over",
    )


def replaced(run: str, role: str) -> ReplacedError:
    return ReplacedError(
        f"{role} of run {run}",
        f"another {role} has taken over run {run}; this one writes nothing more",
        f"let this process end; start one {role} per run, or choose another `run`",
    )


def claim(config: Config, role: str) -> Claim:
    """Claim `role`, whose producer this process has opened. Every process can read the claim once this returns.

    Raises BrokerError.
    """
    now = SYSTEM_CLOCK.now_ms()
    made = Claim.after((found for found, _ in _claims(config, role)), now)
    longest_s = failover_s(config.kafka)
    with RecordProducer(config, role) as producer:
        try:
            beat = Heartbeat(role, role, now, None, None)
            send(producer, config, beat, made).result(longest_s)
        except TimeoutError:
            raise BrokerError(
                f"{role} of run {config.run}",
                f"its first heartbeat was not acknowledged within {longest_s:g} s",
                "see what `distrl doctor` says of the brokers, then start this again",
            ) from None
    return made


def send(producer: RecordProducer, config: Config, beat: Heartbeat, mine: Claim) -> Future[LogPosition | None]:
    """Publish a role's heartbeat with its claim and this process's name. Raises BrokerError if it cannot be queued."""
    headers = [(PROCESS_HEADER, this_process().encode()), mine.header]
    return producer.publish_bytes(topic_name(config.run, "heartbeats"), beat.process.encode(), encode(beat), headers)


def refuse_replaced(mine: Claim, config: Config, role: str, longest_s: float = 0.0) -> None:
    """Raises ReplacedError, with the name of the process that has the role, if there is a greater claim than `mine`.

    longest_s: how long to look for one. Raises BrokerError if the heartbeats cannot be read.
    """
    deadline = time.monotonic() + longest_s
    while (found := max(_claims(config, role), default=(mine, "")))[0] <= mine:
        if time.monotonic() >= deadline:
            return
        time.sleep(POLL_S)
    error = replaced(config.run, role)
    raise ReplacedError(error.where, f"{error.what}. It is {found[1]}", error.hint)


def _claims(config: Config, role: str) -> list[tuple[Claim, str]]:
    """The claims in the newest heartbeats of `role`, and the names of their processes."""
    with LogReader(config, "heartbeats") as whole:
        start = {p: max(first, whole.ends[p] - LOOKED_BACK) for p, first in whole.next_offsets.items()}
    with LogReader(config, "heartbeats", start) as reader:
        headers = [dict(raw.headers) for batch in reader.to_end() for raw in batch if raw.key == role.encode()]
    found = [(Claim.parsed(each.get(HEADER)), each.get(PROCESS_HEADER) or b"") for each in headers]
    return [(made, name.decode("utf-8", "replace") or NAMELESS) for made, name in found if made is not None]
