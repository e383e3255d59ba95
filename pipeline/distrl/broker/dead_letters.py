"""Records that cannot be read: put aside with their own key, bytes and headers, acknowledged before anyone goes on.

A role that meets one `put`s it, hands out or journals nothing past it until `settled` names it, and polls meanwhile.
Where the dead-letter topic cannot be written, that takes as long as it takes: nothing is ever skipped. A record that
is met again after a crash is not written again where its letter is among those read at the start; where it is,
both letters name one origin, and a reader of them takes the first (letters.py). A record for whose letter the topic
has no room is put aside cut, which its letter says: to wait for room, or to end, would stop the role for ever.
"""

from __future__ import annotations

import hashlib
import logging
import time
import traceback
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from distrl.broker.connect import BeyondUseError
from distrl.broker.producer import Headers, RecordProducer, RecordTooLargeError
from distrl.broker.reader import LogReader, RawRecord
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, DistrlError, WireError
from distrl.types import LogPosition

LOG = logging.getLogger("distrl.broker.dead_letters")

TOPIC = "trajectories.dlq"

PREFIX = "__connect.errors."
"""What the names of Kafka Connect's DeadLetterQueueReporter begin with; its tools read our letters too."""

ERROR_TEXT_BYTES = 2_048
"""Longest text in one header of ours: together they stay within what a topic allows beside its largest record."""

KNOWN_LETTERS = 1_000
"""Letters read back at the start, the newest ones: far more than a window may hold, and a moment to read."""

CUT_BYTES, CUT_SHA256, CUT_LOST = "distrl.cut.bytes", "distrl.cut.sha256", "distrl.cut.lost"
"""Headers of a letter that was cut: bytes of the record's key and value, sha256 of the whole value, what is missing."""

LEAST_ROOM_BYTES = 512
"""A topic that has no room for as much takes no letter at all."""

RETRY_S = 1.0
"""Between two tries of a letter that could not be written; a broker that is away is waited for by the client itself."""


class BadRecordsError(DistrlError):
    """So many records cannot be read that going on would drain the topic into the dead letters."""


class Publish(Protocol):
    """RecordProducer.publish_bytes."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Future[LogPosition | None]: ...


class BadWindow:
    """Which bad records stand close together in the log. Pure.

    The window is counted in records of a partition and not in seconds: the same log then gives the same verdict however
    fast it is read, after a restart too, and a slow topic that holds nothing but bad records is stopped as surely.
    """

    def __init__(self, window: int, bad: Iterable[LogPosition] = ()) -> None:
        self._window = window
        self._bad: dict[tuple[str, int], list[int]] = defaultdict(list)
        for position in bad:
            self.add(position)

    def add(self, position: LogPosition) -> int:
        """Note a bad record. Returns how many of the `window` records that end with it are bad."""
        offsets = self._bad[position.topic, position.partition]
        at = bisect_left(offsets, position.offset)
        if at == len(offsets) or offsets[at] != position.offset:
            insort(offsets, position.offset)
        return bisect_right(offsets, position.offset) - bisect_right(offsets, position.offset - self._window)


@dataclass(slots=True)
class _Waiting:
    """headers: those that say what happened. room: bytes of a letter that has to be cut; None for a whole one."""

    raw: RawRecord
    headers: Headers
    room: int | None = None
    future: Future[LogPosition | None] | None = None
    again_at: float = 0.0


class DeadLetters:
    """The bad records that one role has met. One thread; `settled` is called again and again while `waiting`.

    publish: RecordProducer.publish_bytes. known: the origins of letters that the log holds already.
    """

    def __init__(
        self,
        config: Config,
        publish: Publish,
        known: Iterable[LogPosition] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._publish, self._clock = config, publish, clock
        self._target = topic_name(config.run, TOPIC)
        self._known = set(known)
        self._window = BadWindow(config.kafka.dead_letter_window, self._known)
        self._waiting: dict[LogPosition, _Waiting] = {}
        self._settled: list[LogPosition] = []
        self.written = 0

    @classmethod
    def of(cls, config: Config, producer: RecordProducer) -> DeadLetters:
        """With the newest letters of the log as the known ones. Raises BrokerError where they cannot be read."""
        return cls(config, producer.publish_bytes, known_origins(config))

    @property
    def waiting(self) -> bool:
        """A record is put aside and its letter not acknowledged."""
        return bool(self._waiting)

    def waits_before(self, topic: str, partition: int, offset: int) -> bool:
        """A record before this place is put aside and its letter not acknowledged."""
        return any((at.topic, at.partition) == (topic, partition) and at.offset < offset for at in self._waiting)

    def put(self, raw: RawRecord, error: WireError) -> None:
        """Put a record aside that cannot be read. One whose letter is known is settled at once, and breaks no limit.

        Raises BadRecordsError, and writes nothing, where it is the `kafka.dead_letter_limit`-th bad one of its window.
        """
        position, limit = raw.position, self._config.kafka.dead_letter_limit
        if position in self._waiting:
            return
        if position in self._known:
            self._settled.append(position)
            return
        found = self._window.add(position)
        if 0 < limit <= found:
            raise _too_many(found, self._config, error)
        LOG.error("record put aside: %s", error)
        letter = self._waiting[position] = _Waiting(raw, error_headers(position, error))
        self._send(letter)

    def settled(self) -> list[LogPosition]:
        """The records whose letters were acknowledged since the last call; sends again what could not be sent.

        Raises RecordTooLargeError where the topic takes no letter at all: to wait would not help.
        """
        for position, letter in list(self._waiting.items()):
            if letter.future is None:
                if self._clock() >= letter.again_at:
                    self._send(letter)
            elif letter.future.done():
                failure = letter.future.exception()
                if isinstance(failure, RecordTooLargeError):
                    self._shorten(letter, failure)
                    self._send(letter)
                elif failure is None:
                    del self._waiting[position]
                    self._known.add(position)
                    self._settled.append(position)
                    self.written += 1
                else:
                    self._later(letter, failure)
        settled, self._settled = self._settled, []
        return settled

    def _send(self, letter: _Waiting) -> None:
        raw, room = letter.raw, letter.room
        whole = raw.key, raw.value, [*raw.headers, *letter.headers]
        key, value, headers = whole if room is None else cut(raw, letter.headers, room)
        try:
            letter.future = self._publish(self._target, key, value, headers)
        except RecordTooLargeError as failure:
            self._shorten(letter, failure)
            self._send(letter)
        except BeyondUseError:
            raise
        except BrokerError as failure:
            self._later(letter, failure)

    def _shorten(self, letter: _Waiting, failure: RecordTooLargeError) -> None:
        """To what this side allows, then to half as often as the broker refuses it."""
        room = self._config.kafka.max_record_bytes if letter.room is None else letter.room // 2
        if room < LEAST_ROOM_BYTES:
            raise failure
        LOG.warning("the dead letter of %s is cut to %d bytes: %s", letter.raw.position, room, failure)
        letter.room = room

    def _later(self, letter: _Waiting, failure: BaseException) -> None:
        LOG.error("nothing goes on past %s until its dead letter is written: %s", letter.raw.position, failure)
        letter.future, letter.again_at = None, self._clock() + RETRY_S


def cut(raw: RawRecord, headers: Headers, room: int) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers of a letter of about `room` bytes: the head of the value, and headers that say so.

    headers: what happened. The record's own, and its key, stay where they take no more than half of the room.
    """
    value = raw.value or b""
    key, own, lost = raw.key, raw.headers, "value"
    if len(key or b"") + _size(own) > room // 2:
        key, own, lost = None, (), "key, headers, value"
    said = [
        (CUT_BYTES, str(len(raw.key or b"") + len(value)).encode()),
        (CUT_SHA256, hashlib.sha256(value).hexdigest().encode()),
        (CUT_LOST, lost.encode()),
    ]
    made = [*own, *headers, *said]
    return key, value[: max(0, room - len(key or b"") - _size(made))], made


def _size(headers: Headers) -> int:
    return sum(len(name.encode()) + len(said or b"") for name, said in headers)


def known_origins(config: Config) -> list[LogPosition]:
    """Where the records came from that the newest letters hold."""
    with LogReader(config, TOPIC) as whole:
        start = {p: max(first, whole.ends[p] - KNOWN_LETTERS) for p, first in whole.next_offsets.items()}
    with LogReader(config, TOPIC, start) as reader:
        found = [origin_of(raw.headers) for batch in reader.to_end() for raw in batch]
    return [origin for origin in found if origin is not None]


def error_headers(origin: LogPosition, error: Exception) -> list[tuple[str, bytes]]:
    """What Kafka Connect's DeadLetterQueueReporter says of a record, under its names."""
    said = {
        "topic": origin.topic,
        "partition": str(origin.partition),
        "offset": str(origin.offset),
        "connector.name": "distrl",
        "task.id": "0",
        "stage": "VALUE_CONVERTER",
        "class.name": "distrl.wire.codec",
        "exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "exception.message": str(error),
        "exception.stacktrace": "".join(traceback.format_exception(error)),
    }
    return [(f"{PREFIX}{name}", text.encode(errors="replace")[:ERROR_TEXT_BYTES]) for name, text in said.items()]


def origin_of(headers: Headers) -> LogPosition | None:
    """Where the record of a letter came from; None where the headers, which anyone may write, name no place."""
    said = {name: (value or b"").decode(errors="replace") for name, value in headers}
    try:
        partition, offset = (int(said[f"{PREFIX}{name}"]) for name in ("partition", "offset"))
        topic = said[f"{PREFIX}topic"]
    except (KeyError, ValueError):
        return None
    fits = 0 <= partition < 2**31 and 0 <= offset < 2**63
    return LogPosition(topic, partition, offset) if fits else None


def _too_many(found: int, config: Config, error: WireError) -> BadRecordsError:
    kafka = config.kafka
    return BadRecordsError(
        error.where,
        f"{error.what}. With it, {found} of the last {kafka.dead_letter_window} records there cannot be read; it is "
        "not put aside, and nothing after it is read",
        "stop who writes them, or upgrade this reader where their schema is the newer one (`distrl dlq ls` lists those "
        "put aside, `distrl dlq show OFFSET` one of them), then start this role again; to put all of them aside, start "
        "it once with --set kafka.dead_letter_limit=0",
    )
