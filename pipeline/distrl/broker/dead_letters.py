"""Writes unreadable records to the dead-letter topic, with their own key, bytes and headers.

A role that meets one calls `put`, hands out or journals nothing past it until `settled` returns it, and keeps polling.
If the dead-letter topic cannot be written, the role waits: nothing is ever skipped. A record met again after a crash is
not written again if its dead letter is among those read at the start; else both dead letters name the same origin and
value, and dead_letter_log.py takes the first. A dead letter that is too large for the topic is truncated, and its
headers say so: waiting, or exiting, would stop the role for ever.
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
"""Header prefix of Kafka Connect's DeadLetterQueueReporter, so that its tools read our dead letters too."""

ERROR_TEXT_BYTES = 2_048
"""Longest text in one header of ours: together they fit into BATCH_OVERHEAD_BYTES."""

KNOWN_DEAD_LETTERS = 1_000
"""Newest dead letters read at the start: far more than a window may hold, and quickly read."""

CUT_BYTES, CUT_SHA256, CUT_LOST = "distrl.cut.bytes", "distrl.cut.sha256", "distrl.cut.lost"
"""Headers of a truncated dead letter: bytes of the whole key and value, sha256 of the whole value, what is missing."""

LEAST_ROOM_BYTES = 512
"""If the topic refuses even a dead letter of this size, the role ends."""

RETRY_S = 1.0
"""Pause between attempts to write a dead letter; while the broker is unavailable the client itself retries."""


class BadRecordsError(DistrlError):
    """So many records are unreadable that going on would drain the topic into the dead-letter topic."""


class Publish(Protocol):
    """RecordProducer.publish_bytes."""

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Future[LogPosition | None]: ...


DeadLetterId = tuple[LogPosition, str]
"""Which record a dead letter is of: its origin, and the sha256 (hex) of its value. Another record may stand at an
offset where the log lost its tail and has grown again."""


class BadWindow:
    """Counts the bad records among the last `window` of a partition. Pure.

    Counted in records and not in seconds, so that the same log gives the same verdict at any reading speed and after a
    restart, and a slow topic with nothing but bad records is stopped too.
    """

    def __init__(self, window: int, bad: Iterable[LogPosition] = ()) -> None:
        self._window = window
        self._bad: dict[tuple[str, int], list[int]] = defaultdict(list)
        for position in bad:
            self.add(position)

    def add(self, position: LogPosition) -> int:
        """Add a bad record. Returns how many of the `window` records up to and including it are bad."""
        offsets = self._bad[position.topic, position.partition]
        at = bisect_left(offsets, position.offset)
        if at == len(offsets) or offsets[at] != position.offset:
            insort(offsets, position.offset)
        return bisect_right(offsets, position.offset) - bisect_right(offsets, position.offset - self._window)


@dataclass(slots=True)
class _Waiting:
    raw: RawRecord
    headers: Headers
    """Ours, which describe the error."""
    room: int | None = None
    """Bytes to truncate the dead letter to; None: not truncated."""
    future: Future[LogPosition | None] | None = None
    again_at: float = 0.0


class DeadLetters:
    """The bad records that one role has met. One thread; `settled` is called again and again while `waiting`.

    publish: RecordProducer.publish_bytes. known: the dead letters that are in the log already.
    """

    def __init__(
        self,
        config: Config,
        publish: Publish,
        known: Iterable[DeadLetterId] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._publish, self._clock = config, publish, clock
        self._target = topic_name(config.run, TOPIC)
        self._known = set(known)
        self._window = BadWindow(config.kafka.dead_letter_window, (position for position, _ in self._known))
        self._waiting: dict[LogPosition, _Waiting] = {}
        self._settled: list[LogPosition] = []
        self.written = 0

    @classmethod
    def of(cls, config: Config, producer: RecordProducer) -> DeadLetters:
        """Knows the newest dead letters of the log. Raises BrokerError if they cannot be read."""
        return cls(config, producer.publish_bytes, known_dead_letters(config))

    @property
    def waiting(self) -> bool:
        """Whether a dead letter is not acknowledged yet."""
        return bool(self._waiting)

    def waits_before(self, topic: str, partition: int, offset: int) -> bool:
        """Whether the dead letter of a record before this offset is not acknowledged yet."""
        return any((at.topic, at.partition) == (topic, partition) and at.offset < offset for at in self._waiting)

    def put(self, raw: RawRecord, error: WireError) -> None:
        """Write the dead letter of an unreadable record. One that is known is settled at once and does not count.

        Raises BadRecordsError, and writes nothing, if it is the `kafka.dead_letter_limit`-th bad one of its window.
        """
        position, limit = raw.position, self._config.kafka.dead_letter_limit
        if position in self._waiting:
            return
        if (position, _sha256(raw.value)) in self._known:
            self._settled.append(position)
            return
        found = self._window.add(position)
        if 0 < limit <= found:
            raise _too_many(found, self._config, error)
        LOG.error("unreadable record, writing it to the dead-letter topic: %s", error)
        waiting = self._waiting[position] = _Waiting(raw, error_headers(position, error))
        self._send(waiting)

    def settled(self) -> list[LogPosition]:
        """The records whose dead letters were acknowledged since the last call. Retries failed ones.

        Raises RecordTooLargeError if the topic refuses even LEAST_ROOM_BYTES: waiting would not help.
        """
        for position, waiting in list(self._waiting.items()):
            if waiting.future is None:
                if self._clock() >= waiting.again_at:
                    self._send(waiting)
            elif waiting.future.done():
                failure = waiting.future.exception()
                if isinstance(failure, RecordTooLargeError):
                    self._shorten(waiting, failure)
                    self._send(waiting)
                elif failure is None:
                    del self._waiting[position]
                    self._known.add((position, _sha256(waiting.raw.value)))
                    self._settled.append(position)
                    self.written += 1
                else:
                    self._later(waiting, failure)
        settled, self._settled = self._settled, []
        return settled

    def _send(self, waiting: _Waiting) -> None:
        raw, room = waiting.raw, waiting.room
        whole = raw.key, raw.value, [*raw.headers, *waiting.headers]
        key, value, headers = whole if room is None else cut(raw, waiting.headers, room)
        try:
            waiting.future = self._publish(self._target, key, value, headers)
        except RecordTooLargeError as failure:
            self._shorten(waiting, failure)
            self._send(waiting)
        except BeyondUseError:
            raise
        except BrokerError as failure:
            self._later(waiting, failure)

    def _shorten(self, waiting: _Waiting, failure: RecordTooLargeError) -> None:
        """Truncate to kafka.max_record_bytes, then halve each time the broker refuses it."""
        room = self._config.kafka.max_record_bytes if waiting.room is None else waiting.room // 2
        if room < LEAST_ROOM_BYTES:
            raise failure
        LOG.warning("the dead letter of %s is truncated to %d bytes: %s", waiting.raw.position, room, failure)
        waiting.room = room

    def _later(self, waiting: _Waiting, failure: BaseException) -> None:
        LOG.error("cannot write the dead letter of %s, waiting before it: %s", waiting.raw.position, failure)
        waiting.future, waiting.again_at = None, self._clock() + RETRY_S


def cut(raw: RawRecord, headers: Headers, room: int) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers of a dead letter truncated to about `room` bytes: it has the head of the value.

    headers: ours. The record's own, and its key, stay if they take no more than half of the room.
    """
    value = raw.value or b""
    key, own, lost = raw.key, raw.headers, "value"
    if len(key or b"") + _size(own) > room // 2:
        key, own, lost = None, (), "key, headers, value"
    about_cut = [
        (CUT_BYTES, str(len(raw.key or b"") + len(value)).encode()),
        (CUT_SHA256, _sha256(raw.value).encode()),
        (CUT_LOST, lost.encode()),
    ]
    made = [*own, *headers, *about_cut]
    return key, value[: max(0, room - len(key or b"") - _size(made))], made


def _size(headers: Headers) -> int:
    return sum(len(name.encode()) + len(value or b"") for name, value in headers)


def value_sha256(raw: RawRecord) -> str:
    """sha256 (hex) of the value of the record that the dead letter `raw` is of, all of it where this is truncated."""
    cut_value = dict(raw.headers).get(CUT_SHA256)
    return _sha256(raw.value) if cut_value is None else cut_value.decode(errors="replace")


def _sha256(value: bytes | None) -> str:
    return hashlib.sha256(value or b"").hexdigest()


def known_dead_letters(config: Config) -> list[DeadLetterId]:
    """The KNOWN_DEAD_LETTERS newest of the log. Raises BrokerError."""
    with LogReader(config, TOPIC) as whole:
        start = {p: max(first, whole.ends[p] - KNOWN_DEAD_LETTERS) for p, first in whole.next_offsets.items()}
    with LogReader(config, TOPIC, start) as reader:
        raws = [raw for batch in reader.to_end() for raw in batch]
    return [(origin, value_sha256(raw)) for raw in raws if (origin := origin_of(raw.headers)) is not None]


def error_headers(origin: LogPosition, error: Exception) -> list[tuple[str, bytes]]:
    """The headers that Kafka Connect's DeadLetterQueueReporter writes."""
    texts = {
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
    return [(f"{PREFIX}{name}", text.encode(errors="replace")[:ERROR_TEXT_BYTES]) for name, text in texts.items()]


def origin_of(headers: Headers) -> LogPosition | None:
    """Where a dead-lettered record came from; None if the headers, which are untrusted, name no position."""
    texts = {name: (value or b"").decode(errors="replace") for name, value in headers}
    try:
        partition, offset = (int(texts[f"{PREFIX}{name}"]) for name in ("partition", "offset"))
        topic = texts[f"{PREFIX}topic"]
    except (KeyError, ValueError):
        return None
    fits = 0 <= partition < 2**31 and 0 <= offset < 2**63
    return LogPosition(topic, partition, offset) if fits else None


def _too_many(found: int, config: Config, error: WireError) -> BadRecordsError:
    kafka = config.kafka
    return BadRecordsError(
        error.where,
        f"{error.what}. With it, {found} of the last {kafka.dead_letter_window} records there are unreadable; it is "
        "not dead-lettered, and nothing after it is read",
        "stop the producer of these records, or upgrade this reader if their schema is newer (see `distrl dlq ls` and "
        "`distrl dlq show OFFSET`), then start this role again; to dead-letter all of them, start it once with "
        "--set kafka.dead_letter_limit=0",
    )
