"""Writing records: idempotent, acknowledged by every in-sync replica, zstd, with a bounded queue.

Life cycle: the constructor starts one thread, which serves acknowledgements until `close`. `publish` never waits: it
queues the record and returns a future that the thread completes. A record stays queued while the broker is unavailable,
for as long as the process lives; `waiting` counts them, and a caller that sees it grow starts no new work.

A broker that has lost acknowledged records, as after a power loss, refuses everything this client sends next; and a
client may be stuck (client_watch.py). A new client then sends the unacknowledged records again. Some may be in the log
twice, which every reader of a topic takes for one record.

After a fatal error of the client its records fail and `publish` raises. So it is if the thread ends unexpectedly:
nobody waits for an acknowledgement that cannot come.

The position of an acknowledged record may be None: on a retry after a lost or late answer the broker may know that it
has the record, and not at which offset. The record is safe; read the log for its position.

The broker accepts or refuses a batch as a whole. If it refuses one as too large, each record of it is sent again in a
batch of its own, so that only the one that is too large fails.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from distrl.broker.client_settings import Settings
from distrl.broker.client_watch import AGAIN_S, ClientWatch
from distrl.broker.connect import (
    ACKNOWLEDGE_TIMEOUT_S,
    BATCH_OVERHEAD_BYTES,
    BeyondUseError,
    explain,
    log_error,
    settings,
)
from distrl.broker.framing import sent_as
from distrl.broker.topics import topic_name
from distrl.config import Config, KafkaSettings
from distrl.errors import BrokerError
from distrl.supervised import SupervisedThread
from distrl.types import LogPosition, Record
from distrl.wire.cloud_events import event_headers
from distrl.wire.codec import encode
from distrl.wire.confluent import Headers as Headers

LOG = logging.getLogger("distrl.broker.producer")

QUEUE_RECORDS = 10_000
QUEUE_KBYTES = 65_536
"""Bounds of the local queue, which fills while the broker is unavailable."""

LINGER_MS = 5
"""Collects the records of several phones into one compressed batch; short compared with an episode of seconds."""

POLL_S = 0.1
"""Longest sleep of the acknowledgement thread; it wakes at once when one arrives."""

WARN_AFTER_S = 5.0
WARN_EVERY_S = 12.0
"""After this long, and then at this interval, unacknowledged records are warned about."""

PURGE_S = 1.0
"""Longest wait for the callbacks of purged records; they are served at once."""

RECORDS_LOST = {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID}
"""Errors of a broker that has lost records which this client wrote before."""

BY_KEY = -1
"""Choose the partition by the key's hash (librdkafka's PARTITION_UA)."""

HEADER_ROOM_BYTES = BATCH_OVERHEAD_BYTES // 2
"""Headers up to this size do not count towards a record's size; what exceeds it does."""


class RecordTooLargeError(BrokerError):
    """The record is larger than kafka.max_record_bytes (nothing was sent), or the broker has refused it because its
    topic allows less."""


@dataclass(frozen=True, slots=True)
class _Queued:
    """A record that is not acknowledged yet."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int
    alone: bool = False
    """Sent in a batch of its own."""
    future: Future[LogPosition | None] = field(default_factory=Future)


class RecordProducer:
    """Publishes records of one run. Every method may be called from any thread."""

    def __init__(self, config: Config, client_id: str) -> None:
        self._config = config
        own = {
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "zstd",
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
            "request.timeout.ms": int(ACKNOWLEDGE_TIMEOUT_S * 1000),
            "message.timeout.ms": 0,  # no time-out: a lost acknowledgement must not lose a finished trajectory
        }
        self._sent_as = sent_as(config.kafka)
        self._reported: deque[KafkaError] = deque()
        """By the clients, and not logged yet."""
        self._settings = settings(config.kafka, client_id, own, self._reported.append)
        self._producer, watch = self._made({})
        self._watches = [watch]
        """Of each client."""
        self._unbatched: Producer | None = None  # one record per batch; made when needed
        self._lock = threading.RLock()
        # In order of publication, with its time. Not librdkafka's own length: that counts pending error events too.
        self._unacknowledged: dict[Future[LogPosition | None], tuple[_Queued, float]] = {}
        self._generation = 0
        """Counts the clients: failures reported by an earlier one are ignored."""
        self._closing = threading.Event()
        self._over: BrokerError | None = None
        self._next_warning = 0.0
        self._warned = False
        self._thread = SupervisedThread(self._serve, f"acknowledgements of {client_id}", self._ended)

    def __enter__(self) -> RecordProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(timeout_s=self._config.kafka.connect_timeout_s)

    @property
    def waiting(self) -> int:
        """Records published and not acknowledged yet."""
        with self._lock:
            return len(self._unacknowledged)

    def publish(self, topic: str, key: str, record: Record, headers: Headers = ()) -> Future[LogPosition | None]:
        """Queue `record` for `topic` (a key of TOPICS), with its CloudEvents headers behind `headers`. The future is
        done once it is acknowledged; its result is the position, or None if the broker does not report it.

        It is sent in the form of kafka.framing. Callbacks of the future run in the acknowledgement thread, so they must
        be short. Raises RecordTooLargeError, BeyondUseError, and BrokerError if the local queue is full.
        """
        run, value = self._config.run, encode(record)
        described = [*headers, *event_headers(record, value, run, topic)]
        return self.publish_bytes(topic_name(run, topic), key.encode(), value, described)

    def publish_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int = BY_KEY
    ) -> Future[LogPosition | None]:
        """As `publish`, with raw bytes and a topic's full name."""
        kafka = self._config.kafka
        header_bytes = sum(len(name.encode()) + len(text or b"") for name, text in headers)
        most = kafka.max_record_bytes - max(0, header_bytes - HEADER_ROOM_BYTES)
        refuse_too_large(topic, key, value, most)
        queued = _Queued(topic, key, *self._sent_as(value, headers), partition)
        queued.future.set_running_or_notify_cancel()  # a queued record cannot be cancelled
        with self._lock:  # if the client were replaced in between, the record would be sent twice
            if self._over is not None:
                raise self._over
            self._unacknowledged[queued.future] = queued, time.monotonic()
            try:
                self._produce(self._producer, queued)
            except BrokerError:
                self._forget(queued.future)
                raise
        return queued.future

    def _produce(self, producer: Producer, queued: _Queued) -> None:
        generation = self._generation

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is not None and generation != self._generation:
                return  # sent again by the new client
            try:
                self._acknowledged(queued, error, message)
            except Exception as unforeseen:  # raised here, it would end the thread for all records
                LOG.exception("cannot handle the acknowledgement of a record of %s", queued.topic)
                self._fail(queued.future, _not_understood(queued.topic, unforeseen))

        try:
            producer.produce(
                queued.topic,
                value=queued.value,
                key=queued.key,
                headers=list(queued.headers),
                partition=queued.partition,
                on_delivery=acknowledged,
            )
        except BufferError:
            raise BrokerError(
                "kafka.bootstrap",
                f"the local queue is full: {self.waiting - 1} records are not acknowledged by "
                f"{self._config.kafka.bootstrap}",
                "start the broker; the records are sent as soon as it answers",
            ) from None
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                return  # the thread is about to get the reason: it sends the record again, or fails it
            raise explain(error.args[0], queued.topic, "publish a record", self._config.kafka) from None

    def _acknowledged(self, queued: _Queued, error: KafkaError | None, message: Message) -> None:
        if error is None:
            position = position_or_none(message)
            if self._forget(queued.future):
                queued.future.set_result(position)
        elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and not queued.alone:
            self._produce_alone(queued)
        else:
            self._fail(queued.future, self._over or _refused(error, queued.topic, self._config.kafka))

    def _produce_alone(self, queued: _Queued) -> None:
        """Called within an acknowledgement, so any error fails only this record."""
        try:
            with self._lock:
                if self._unbatched is None:
                    self._unbatched, watch = self._made({"batch.num.messages": 1})
                    self._watches.append(watch)
            self._produce(self._unbatched, replace(queued, alone=True))
        except BrokerError as error:
            self._fail(queued.future, error)

    def _made(self, more: Settings, before: ClientWatch | None = None) -> tuple[Producer, ClientWatch]:
        watch = ClientWatch(self._config.kafka, before=before)
        try:
            return Producer(self._settings | watch.settings() | more), watch
        except KafkaException as error:
            raise explain(error.args[0], "kafka", "make a producer", self._config.kafka) from None

    def flush(self, timeout_s: float) -> int:
        """Wait until everything is acknowledged, at most `timeout_s`. Returns how many records are not."""
        deadline = time.monotonic() + timeout_s
        while True:
            generation = self._generation
            self._wait(self._producer, self._producer.flush, max(0.0, deadline - time.monotonic()))
            if self._unbatched is not None:  # the other may have passed records on to it
                self._wait(self._unbatched, self._unbatched.flush, max(0.0, deadline - time.monotonic()))
            if generation == self._generation or time.monotonic() >= deadline:
                return self.waiting

    def close(self, timeout_s: float) -> int:
        """Flush, drop unacknowledged records (their futures fail), end the thread. Returns how many were dropped."""
        if self._closing.is_set():
            return 0
        left = self.flush(timeout_s)
        self._closing.set()
        self._thread.join()  # from here on only this thread serves callbacks
        if left:
            self._give_up(self._producer)  # may serve a refusal, and so pass a record on to `_unbatched`
            if self._unbatched is not None:
                self._give_up(self._unbatched)
        return left

    def _forget(self, future: Future[LogPosition | None]) -> bool:
        """Remove the record from the unacknowledged ones. False if it was removed before: a future completes once."""
        with self._lock:
            return self._unacknowledged.pop(future, None) is not None

    def _fail(self, future: Future[LogPosition | None], error: Exception) -> None:
        if self._forget(future):
            future.set_exception(error)

    def _ended(self, error: BaseException) -> None:
        """The thread has ended unexpectedly: no further acknowledgements are served."""
        with self._lock:
            self._over = BeyondUseError(
                f"acknowledgements of run {self._config.run}",
                f"the thread that serves them has ended: {type(error).__name__}: {error}",
                "start this process again, and report the traceback in the log",
            )
        self._fail_all(self._over)

    def _fail_all(self, error: BrokerError) -> None:
        with self._lock:
            waiting = list(self._unacknowledged)
        for future in waiting:
            self._fail(future, error)

    def _serve(self) -> None:
        while not self._closing.is_set():
            if self._unbatched is None:
                self._wait(self._producer, self._producer.poll, POLL_S)
            else:
                self._wait(self._producer, self._producer.poll, POLL_S / 2)
                if self._unbatched is not None:  # the clients may have been replaced meanwhile
                    self._wait(self._unbatched, self._unbatched.poll, POLL_S / 2)
            while self._reported:
                log_error(self._reported.popleft())
            if stuck := next((each.stuck for each in self._watches if each.stuck), ""):
                self._replace(stuck)
            self._warn_waiting(time.monotonic())

    def _warn_waiting(self, now: float) -> None:
        """Warn about late acknowledgements, rate-limited, and log when they have arrived."""
        with self._lock:
            count = len(self._unacknowledged)
            oldest = next((since for _, since in self._unacknowledged.values()), now)
        late = now - oldest > WARN_AFTER_S
        if late and now >= self._next_warning:
            self._warned, self._next_warning = True, now + WARN_EVERY_S
            where = self._config.kafka.bootstrap
            LOG.warning("%d records are not acknowledged by %s, the oldest for %.0f s", count, where, now - oldest)
        elif self._warned and not late:
            self._warned, self._next_warning = False, 0.0
            LOG.info("all late records are acknowledged")

    def _wait(self, producer: Producer, serve: Callable[[float], int], timeout_s: float) -> None:
        """Serve callbacks. The client raises a fatal error here and then keeps its records for ever, so they are sent
        by a new client, or purged and failed."""
        try:
            serve(timeout_s)
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() in RECORDS_LOST and not self._closing.is_set():
                where = self._config.kafka.bootstrap
                self._begin_again(f"{where} has lost records that it had acknowledged ({reason.str()})")
                return
            over = explain(reason, f"run {self._config.run}", "publish any record", self._config.kafka)
            with self._lock:
                self._over = over
            producer.purge()
            self._wait(producer, producer.flush, PURGE_S)
            self._fail_all(over)

    def _replace(self, stuck: str) -> None:
        """stuck: as ClientWatch has it."""
        try:
            self._begin_again(f"the client {stuck}, and is replaced")
        except BrokerError as error:  # a file that its settings name is being changed, say: the records wait on
            LOG.warning("the client %s, and cannot be replaced yet: %s", stuck, error)
            self._closing.wait(AGAIN_S)

    def _begin_again(self, reason: str) -> None:
        """Send the unacknowledged records by a new client, in the same order; one of the old ones has failed for
        good."""
        with self._lock:
            made, watch = self._made({}, self._watches[0])
            waiting = [queued for queued, _ in self._unacknowledged.values()]
            LOG.warning("%s; sending %d unacknowledged records again", reason, len(waiting))
            self._generation += 1
            old = [each for each in (self._producer, self._unbatched) if each is not None]
            self._producer, self._unbatched, self._watches = made, None, [watch]
            for queued in waiting:
                self._produce(self._producer, queued)
        for each in old:
            each.purge()
            with suppress(KafkaException):  # it has raised its fatal error already
                each.flush(PURGE_S)

    def _give_up(self, producer: Producer) -> None:
        producer.purge()
        self._wait(producer, producer.flush, PURGE_S)  # serves the callbacks of purged records


def refuse_too_large(topic: str, key: bytes | None, value: bytes | None, most: int) -> None:
    """Raises RecordTooLargeError if key and value together have more than `most` bytes."""
    size = len(key or b"") + len(value or b"")
    if size > most:
        raise RecordTooLargeError(
            topic,
            f"a record of {size} bytes is larger than the {most} that are allowed",
            "raise kafka.max_record_bytes (and run `distrl topics ensure --alter`), or allow fewer steps in an episode",
        )


def _refused(error: KafkaError, topic: str, kafka: KafkaSettings) -> BrokerError:
    if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return explain(error, topic, "publish a record", kafka)
    return RecordTooLargeError(
        topic,
        f"the broker refuses as too large a record that kafka.max_record_bytes ({kafka.max_record_bytes}) allows",
        "run `distrl topics ensure --alter`; see max.message.bytes of the topic and message.max.bytes of the broker",
    )


def _not_understood(topic: str, error: Exception) -> BrokerError:
    return BrokerError(
        topic,
        f"cannot handle the acknowledgement of a record: {type(error).__name__}: {error}",
        "start this process again; the record may or may not be in the log",
    )


def position_or_none(message: Message) -> LogPosition | None:
    """The position of an acknowledged record; None if the broker did not report it."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None or offset < 0:
        return None
    return LogPosition(topic, partition, offset)


def position_of(message: Message) -> LogPosition:
    """The position of a message that was read."""
    position = position_or_none(message)
    if position is None:
        raise BrokerError(str(message.topic()), "a message without a position", "report this: it should be impossible")
    return position
