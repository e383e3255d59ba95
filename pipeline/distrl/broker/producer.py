"""Writing records: idempotent, acknowledged by every in-sync replica, zstd, with a bounded queue.

Life cycle: the constructor starts one thread, which serves acknowledgements until `close`. `publish` never waits: it
queues the record and returns a future that the thread completes. A record stays queued while the broker is away, for
as long as the process lives; `waiting` says how many do, and a caller that sees it grow stops starting new work.

A broker that has lost acknowledged records, as after a loss of power, refuses whatever this client sends next. The
client is then made anew and sends again what is not acknowledged. Some of it may be in the log twice then, which every
reader of a topic takes for one record.

A client that has met what it cannot go on after sends nothing more: its records fail, and `publish` raises. The same
holds where the thread has ended unexpectedly: nobody waits for an acknowledgement that cannot come.

An acknowledged record has a position, or None: where a broker finds that it holds a record already and no longer knows
at which offset (a retry after its answer was lost or late), the record is safe and its place is not told. Who needs
the place reads the log.

The broker takes or refuses a batch as a whole. Where it refuses one as too large, each record of it is sent again, in a
batch of its own: the one that is too large fails, and its neighbours do not.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from distrl.broker.connect import (
    ACKNOWLEDGE_TIMEOUT_S,
    BATCH_OVERHEAD_BYTES,
    BeyondUseError,
    explain,
    settings,
)
from distrl.broker.passed import Settings
from distrl.broker.topics import topic_name
from distrl.config import Config, Kafka
from distrl.errors import BrokerError
from distrl.supervised import SupervisedThread
from distrl.types import LogPosition, Record
from distrl.wire.codec import encode

LOG = logging.getLogger("distrl.broker.producer")

QUEUE_RECORDS = 10_000
QUEUE_KBYTES = 65_536
"""Bounds of the local queue: a process must not fill its memory while the broker is away."""

LINGER_MS = 5
"""Gathers the records of several phones into one compressed batch; small beside an episode of seconds."""

POLL_S = 0.1
"""Longest sleep of the acknowledgement thread; it wakes at once when one arrives."""

SAY_AFTER_S = 5.0
SAY_EVERY_S = 12.0
"""From when on, and how often, it is said that records wait to be acknowledged."""

PURGE_S = 1.0
"""Longest wait for the callbacks of records that were given up; they are there at once."""

FORGOTTEN = {KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, KafkaError.UNKNOWN_PRODUCER_ID}
"""What a broker answers that no longer has the records which this client wrote before."""

BY_KEY = -1
"""The partition that the key's hash gives (librdkafka's PARTITION_UA)."""

HEADER_ROOM_BYTES = BATCH_OVERHEAD_BYTES // 2
"""Headers up to here find room beside the largest record; what is longer counts towards its size."""

Headers = Sequence[tuple[str, bytes | None]]


class RecordTooLargeError(BrokerError):
    """A record that the broker would refuse, told to its author before anything is sent; or one that it has refused,
    because its topic takes less than kafka.max_record_bytes says."""


@dataclass(frozen=True, slots=True)
class _Queued:
    """A record that is under way. alone: in a batch of its own."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers
    partition: int
    alone: bool = False
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
            "message.timeout.ms": 0,  # never given up: a lost acknowledgement must not lose a finished trajectory
        }
        self._settings = settings(config.kafka, client_id, own)
        self._producer = self._made({})
        self._lonely: Producer | None = None  # whose batches hold one record; made when it is needed
        self._lock = threading.RLock()
        # In the order of publication, with when that was; librdkafka's own length counts its pending error events too.
        self._unacknowledged: dict[Future[LogPosition | None], tuple[_Queued, float]] = {}
        self._generation = 0
        """Counts the clients that were made anew: what an old one says of its records' ends is not heard."""
        self._closing = threading.Event()
        self._over: BrokerError | None = None
        self._next_word = 0.0
        self._told = False
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

    def publish(self, topic: str, key: str, record: Record) -> Future[LogPosition | None]:
        """Queue `record` for `topic` (a key of TOPICS). The future is done once it is acknowledged, and holds its
        position, or None where the broker does not tell it.

        Callbacks of the future run in the acknowledgement thread, so they must be short.
        Raises RecordTooLargeError, BeyondUseError, and BrokerError when the local queue is full.
        """
        return self.publish_bytes(topic_name(self._config.run, topic), key.encode(), encode(record))

    def publish_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int = BY_KEY
    ) -> Future[LogPosition | None]:
        """As `publish`, for bytes as they are and a topic's full name."""
        kafka = self._config.kafka
        header_bytes = sum(len(name.encode()) + len(said or b"") for name, said in headers)
        most = kafka.max_record_bytes - max(0, header_bytes - HEADER_ROOM_BYTES)
        refuse_too_large(topic, key, value, most)
        queued = _Queued(topic, key, value, headers, partition)
        queued.future.set_running_or_notify_cancel()  # what is queued cannot be called back
        with self._lock:  # a client that is made anew in between would send the record twice
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
                return  # it was sent again
            try:
                self._acknowledged(queued, error, message)
            except Exception as unforeseen:  # raised out of here, it would end the thread for all records
                LOG.exception("the acknowledgement of a record of %s is not understood", queued.topic)
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
                f"{self.waiting - 1} records wait for {self._config.kafka.bootstrap} to acknowledge them, and no more "
                "fit",
                "start the broker; what waits is sent as soon as it answers",
            ) from None
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                return  # for a reason that the thread is about to learn: it sends the record again, or fails it
            raise explain(error.args[0], queued.topic, "publish a record", self._config.kafka) from None

    def _acknowledged(self, queued: _Queued, error: KafkaError | None, message: Message) -> None:
        if error is None:
            position = told_position(message)
            if self._forget(queued.future):
                queued.future.set_result(position)
        elif error.code() == KafkaError.MSG_SIZE_TOO_LARGE and not queued.alone:
            self._produce_alone(queued)
        else:
            self._fail(queued.future, self._over or _refused(error, queued.topic, self._config.kafka))

    def _produce_alone(self, queued: _Queued) -> None:
        """Within an acknowledgement, so whatever goes wrong is the record's own end."""
        try:
            with self._lock:
                if self._lonely is None:
                    self._lonely = self._made({"batch.num.messages": 1})
            self._produce(self._lonely, replace(queued, alone=True))
        except BrokerError as error:
            self._fail(queued.future, error)

    def _made(self, more: Settings) -> Producer:
        try:
            return Producer(self._settings | more)
        except KafkaException as error:
            raise explain(error.args[0], "kafka", "make a producer", self._config.kafka) from None

    def flush(self, timeout_s: float) -> int:
        """Wait until everything is acknowledged, at most `timeout_s`. Returns how many records still wait."""
        deadline = time.monotonic() + timeout_s
        while True:
            generation = self._generation
            self._wait(self._producer, self._producer.flush, max(0.0, deadline - time.monotonic()))
            if self._lonely is not None:  # to which the other may have left records
                self._wait(self._lonely, self._lonely.flush, max(0.0, deadline - time.monotonic()))
            if generation == self._generation or time.monotonic() >= deadline:
                return self.waiting

    def close(self, timeout_s: float) -> int:
        """Flush, give up what still waits (its futures fail), and end the thread. Returns how many were given up."""
        if self._closing.is_set():
            return 0
        left = self.flush(timeout_s)
        self._closing.set()
        self._thread.join()  # from here on this thread alone serves callbacks, one after the other
        if left:
            self._give_up(self._producer)  # may serve a refusal, and so leave a record to the lonely one
            if self._lonely is not None:
                self._give_up(self._lonely)
        return left

    def _forget(self, future: Future[LogPosition | None]) -> bool:
        """The record waits no longer. False where it was told so before: each future is completed once."""
        with self._lock:
            return self._unacknowledged.pop(future, None) is not None

    def _fail(self, future: Future[LogPosition | None], error: Exception) -> None:
        if self._forget(future):
            future.set_exception(error)

    def _ended(self, error: Exception) -> None:
        """The thread has ended unexpectedly: no acknowledgement is served any more."""
        with self._lock:
            self._over = BeyondUseError(
                f"acknowledgements of run {self._config.run}",
                f"the thread that serves them has ended: {type(error).__name__}: {error}",
                "start this process again, and report what the log says of it",
            )
        self._fail_all(self._over)

    def _fail_all(self, error: BrokerError) -> None:
        with self._lock:
            waiting = list(self._unacknowledged)
        for future in waiting:
            self._fail(future, error)

    def _serve(self) -> None:
        while not self._closing.is_set():
            if self._lonely is None:
                self._wait(self._producer, self._producer.poll, POLL_S)
            else:
                self._wait(self._producer, self._producer.poll, POLL_S / 2)
                if self._lonely is not None:  # the clients may have been made anew meanwhile
                    self._wait(self._lonely, self._lonely.poll, POLL_S / 2)
            self._say_waiting(time.monotonic())

    def _say_waiting(self, now: float) -> None:
        """Whoever waits for an acknowledgement stands still, so that it is told now and then, and when it is over."""
        with self._lock:
            count = len(self._unacknowledged)
            oldest = next((since for _, since in self._unacknowledged.values()), now)
        late = now - oldest > SAY_AFTER_S
        if late and now >= self._next_word:
            self._told, self._next_word = True, now + SAY_EVERY_S
            where = self._config.kafka.bootstrap
            LOG.warning("%d records wait to be acknowledged by %s, the oldest for %.0f s", count, where, now - oldest)
        elif self._told and not late:
            self._told, self._next_word = False, 0.0
            LOG.info("what waited to be acknowledged is acknowledged")

    def _wait(self, producer: Producer, serve: Callable[[float], int], timeout_s: float) -> None:
        """Serve callbacks. The client raises here what it cannot go on after, and would keep its records for ever."""
        try:
            serve(timeout_s)
        except KafkaException as error:
            if error.args[0].code() in FORGOTTEN and not self._closing.is_set():
                self._begin_again(producer, error.args[0])
                return
            over = explain(error.args[0], f"run {self._config.run}", "publish any record", self._config.kafka)
            with self._lock:
                self._over = over
            producer.purge()
            self._wait(producer, producer.flush, PURGE_S)
            self._fail_all(over)

    def _begin_again(self, old: Producer, error: KafkaError) -> None:
        """Send what is not acknowledged by a new client, in the same order; `old` is beyond use."""
        with self._lock:
            waiting = [queued for queued, _ in self._unacknowledged.values()]
            LOG.warning(
                "%s has lost records that it had acknowledged (%s); %d that wait are sent again",
                self._config.kafka.bootstrap,
                error.str(),
                len(waiting),
            )
            self._generation += 1
            self._producer, self._lonely = self._made({}), None
            for queued in waiting:
                self._produce(self._producer, queued)
        old.purge()
        with suppress(KafkaException):  # it has said already what it died of
            old.flush(PURGE_S)

    def _give_up(self, producer: Producer) -> None:
        producer.purge()
        self._wait(producer, producer.flush, PURGE_S)  # serves the callbacks of what was purged


def refuse_too_large(topic: str, key: bytes | None, value: bytes | None, most: int) -> None:
    """Raises RecordTooLargeError where key and value together have more than `most` bytes."""
    size = len(key or b"") + len(value or b"")
    if size > most:
        raise RecordTooLargeError(
            topic,
            f"a record of {size} bytes is larger than the {most} that are allowed",
            "raise kafka.max_record_bytes (and run `distrl topics ensure --alter`), or lower the steps of an episode",
        )


def _refused(error: KafkaError, topic: str, kafka: Kafka) -> BrokerError:
    if error.code() != KafkaError.MSG_SIZE_TOO_LARGE:
        return explain(error, topic, "publish a record", kafka)
    return RecordTooLargeError(
        topic,
        f"the broker refuses a record as too large, which kafka.max_record_bytes ({kafka.max_record_bytes}) allows",
        "run `distrl topics ensure --alter`; see max.message.bytes of the topic and message.max.bytes of the broker",
    )


def _not_understood(topic: str, error: Exception) -> BrokerError:
    return BrokerError(
        topic,
        f"the acknowledgement of a record is not understood: {type(error).__name__}: {error}",
        "start this process again: whether the record is in the log, its readers see",
    )


def told_position(message: Message) -> LogPosition | None:
    """Where an acknowledged record stands; None where the broker did not tell."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None or offset < 0:
        return None
    return LogPosition(topic, partition, offset)


def position_of(message: Message) -> LogPosition:
    """Where a message that was read stands: each one has a place."""
    position = told_position(message)
    if position is None:
        raise BrokerError(str(message.topic()), "a message without a position", "report this: a reader never has one")
    return position
