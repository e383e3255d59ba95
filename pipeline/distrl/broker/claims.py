"""Decides which of several processes has a role that only one process of a run may have. Each of them could open the
role's producer again.

The broker refuses a producer that another process has opened since (fenced.py). It does not say whether that one is a
successor, or a predecessor whose own producer had failed. So each process claims the role when it has opened the
producer, in a topic that nobody but processes of the role may write. The greatest claim has the role:

    open ─▶ claim ─▶ write ─▶ fenced, or no answer ─▶ is there a greater claim? ─▶ open ─▶ is there one now? ─┐
                       ▲                                                                                     │
                       └────────────────────────────── read the log ◀────────────────────────────────────────┘

A process that finds a greater claim ends. The second look decides: a process that claims after it has not written yet,
and if it is fenced, it finds that the greatest claim is its own. So an older process fences a newer one at most once,
and writes nothing that the newer one does not read.

If the broker has lost a claim, the process that made it writes it again, with the same number, at its next look.
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
from distrl.broker.producer import Headers, RecordProducer
from distrl.broker.reader import LogReader, RawRecord
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import Heartbeat, LogPosition

HEADER: Final = "distrl.claim"
PROCESS_HEADER: Final = "distrl.process"
SUCCESSOR_S: Final = 5.0
"""How long a fenced process looks for another one's claim, which that one makes once it has opened its producer."""
POLL_S: Final = 0.2
LOOKED_BACK: Final = 1_000
"""How many of the newest claims are read. Each start of the role makes one."""
MOST_AHEAD_MS: Final = 24 * 3_600_000
"""A claim whose number is further ahead of the broker's clock is ignored. No clock is that wrong; and if such a claim
were the greatest, nobody could ever take over."""
NAMELESS: Final = "a process without a name"
LONGEST_NUMBER: Final = 18
LONGEST_NONCE: Final = 32
"""Characters of a claim that is read: headers are untrusted."""


@dataclass(frozen=True, slots=True, order=True)
class Claim:
    """A process's claim to a role."""

    number: int
    """ms since the epoch at which it was made, and above the number of every claim that counted then."""
    nonce: str
    """Tells apart claims that are made at once."""

    @classmethod
    def after(cls, others: Iterable[Claim], now_ms: int) -> Claim:
        return cls(max([now_ms, *(each.number + 1 for each in others)]), secrets.token_hex(8))

    @classmethod
    def parsed(cls, header: bytes | None) -> Claim | None:
        """The claim in a record's header; None if there is none, or it is invalid."""
        number, _, nonce = (header or b"").decode("ascii", "replace").partition(" ")
        fits = number.isdecimal() and len(number) <= LONGEST_NUMBER and 0 < len(nonce) <= LONGEST_NONCE
        return cls(int(number), nonce) if fits else None

    def counts(self, written_ms: int, highest: int = 0) -> bool:
        """Whether it is not too far in the future. written_ms: when it arrived at the broker, by the broker's clock.
        highest: the highest number that counted before. That one may be ahead, from when the broker's clock was."""
        return self.number <= max(written_ms, highest) + MOST_AHEAD_MS

    @property
    def header(self) -> tuple[str, bytes]:
        return HEADER, f"{self.number} {self.nonce}".encode()


class ReplacedError(FencedError):
    """Another process has the role; this one must end."""


def fenced(run: str, role: str) -> FencedError:
    """The error of a producer that the broker refuses, whoever has opened it since."""
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


def topic_of(role: str) -> str:
    """The topic of the role's claims (a key of TOPICS)."""
    return f"{role}.claims"


def claim(config: Config, role: str) -> Claim:
    """Claim `role`, whose producer this process has opened. Every process can read the claim once this returns.

    Raises BrokerError.
    """
    made = Claim.after((found for found, _ in _claims(config, role)), SYSTEM_CLOCK.now_ms())
    end = _announce(made, config, role)
    if all(found != made for found, _ in _claims(config, role, end)):
        raise BrokerError(
            f"{role} of run {config.run}",
            "its claim does not count: the clock of this machine is more than a day ahead of the brokers'",
            "set the clock, then start this again",
        )
    return made


def _announce(made: Claim, config: Config, role: str) -> int:
    """Write the claim, and wait until the broker has it. Returns the offset behind it; 0 where the broker says none."""
    longest_s, record = failover_s(config.kafka), Heartbeat(role, role, SYSTEM_CLOCK.now_ms(), None, None)
    with RecordProducer(config, role) as producer:
        sent = producer.publish(topic_of(role), role, record, _headers(made))
        try:
            place = sent.result(longest_s)
        except TimeoutError:
            raise BrokerError(
                f"{role} of run {config.run}",
                f"its claim was not acknowledged within {longest_s:g} s",
                "see what `distrl doctor` says of the brokers, then start this again",
            ) from None
    return 0 if place is None else place.offset + 1


def send(producer: RecordProducer, config: Config, beat: Heartbeat, mine: Claim) -> Future[LogPosition | None]:
    """Publish a role's heartbeat. Its headers hold the claim, too: processes of earlier versions look for it there.

    Raises BrokerError if it cannot be queued.
    """
    return producer.publish("heartbeats", beat.process, beat, _headers(mine))


def refuse_replaced(mine: Claim, config: Config, role: str, longest_s: float = 0.0) -> None:
    """Raises ReplacedError, with the name of the process that has the role, if there is a greater claim than `mine`.

    longest_s: how long to look for one. Raises BrokerError if the claims cannot be read, or a lost one not be made
    again.
    """
    deadline = time.monotonic() + longest_s
    while True:
        found = _claims(config, role)
        greatest, process = max(found, default=(mine, ""))
        if greatest > mine:
            error = replaced(config.run, role)
            raise ReplacedError(error.where, f"{error.what}. It is {process}", error.hint)
        if all(other != mine for other, _ in found):
            _announce(mine, config, role)
        if time.monotonic() >= deadline:
            return
        time.sleep(POLL_S)


def _headers(made: Claim) -> Headers:
    return (PROCESS_HEADER, this_process().encode()), made.header


def _claims(config: Config, role: str, end: int = 0) -> list[tuple[Claim, str]]:
    """The newest claims to `role` that count, and the names of their processes. end: an offset up to which they are
    known to have been written."""
    topic = topic_of(role)
    with LogReader(config, topic, reach={0: end}) as whole:
        start = {p: max(first, whole.ends[p] - LOOKED_BACK) for p, first in whole.next_offsets.items()}
    with LogReader(config, topic, start, reach=whole.ends) as reader:
        return _counting(raw for batch in reader.to_end() for raw in batch)


def _counting(records: Iterable[RawRecord]) -> list[tuple[Claim, str]]:
    """Of the records of one claims topic, in the order of the log."""
    found: list[tuple[Claim, str]] = []
    highest = 0
    for raw in records:
        headers = dict(raw.headers)
        made, name = Claim.parsed(headers.get(HEADER)), headers.get(PROCESS_HEADER) or b""
        if made is not None and made.counts(raw.timestamp, highest):
            highest = max(highest, made.number)
            found.append((made, name.decode("utf-8", "replace") or NAMELESS))
    return found
