"""Writing records: idempotent, acknowledged by every in-sync replica, zstd, with a bounded queue.

Life cycle: the constructor starts one thread, which serves acknowledgements until `close`. `publish` never waits: it
queues the record and returns a future that the thread completes. A record stays queued while the broker is away, for
as long as the process lives; `waiting` says how many do, and a caller that sees it grow stops starting new work.

A client that has met what it cannot go on after sends nothing more: its records fail, and `publish` raises.

The broker takes or refuses a batch as a whole. Where it refuses one as too large, each record of it is sent again, in a
batch of its own: the one that is too large fails, and its neighbours do not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from distrl.broker.connect import BATCH_OVERHEAD_BYTES, Settings, explain, settings
from distrl.broker.topics import topic_name
from distrl.config import Config, Kafka
from distrl.errors import BrokerError
from distrl.types import LogPosition, Record
from distrl.wire.codec import encode

QUEUE_RECORDS = 10_000
QUEUE_KBYTES = 65_536
"""Bounds of the local queue: a process must not fill its memory while the broker is away."""

LINGER_MS = 5
"""Gathers the records of several phones into one compressed batch; small beside an episode of seconds."""

POLL_S = 0.1
"""Longest sleep of the acknowledgement thread; it wakes at once when one arrives."""

PURGE_S = 1.0
"""Longest wait for the callbacks of records that were given up; they are there at once."""

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
    future: Future[LogPosition] = field(default_factory=Future)


class RecordProducer:
    """Publishes records of one run. Every method may be called from any thread."""

    def __init__(self, config: Config, client_id: str) -> None:
        self._config = config
        made = settings(config.kafka, client_id) | {
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "zstd",
            "linger.ms": LINGER_MS,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "queue.buffering.max.kbytes": QUEUE_KBYTES,
            "message.timeout.ms": 0,  # never given up: a lost acknowledgement must not lose a finished trajectory
        }
        self._settings = made
        self._producer = self._made({})
        self._lonely: Producer | None = None  # whose batches hold one record; made when it is needed
        self._lock = threading.Lock()
        self._waiting = 0  # counted here: librdkafka's own length counts its pending error events too
        self._closing = threading.Event()
        self._over: BrokerError | None = None
        self._thread = threading.Thread(target=self._serve, name=f"acknowledgements of {client_id}", daemon=True)
        self._thread.start()

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
            return self._waiting

    def publish(self, topic: str, key: str, record: Record) -> Future[LogPosition]:
        """Queue `record` for `topic` (a key of TOPICS). The future holds its position once it is acknowledged.

        Callbacks of the future run in the acknowledgement thread, so they must be short.
        Raises RecordTooLargeError, BeyondUseError, and BrokerError when the local queue is full.
        """
        return self.publish_bytes(topic_name(self._config.run, topic), key.encode(), encode(record))

    def publish_bytes(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int = BY_KEY
    ) -> Future[LogPosition]:
        """As `publish`, for bytes as they are and a topic's full name."""
        kafka = self._config.kafka
        header_bytes = sum(len(name.encode()) + len(said or b"") for name, said in headers)
        most = kafka.max_record_bytes - max(0, header_bytes - HEADER_ROOM_BYTES)
        refuse_too_large(topic, key, value, most)
        queued = _Queued(topic, key, value, headers, partition)
        queued.future.set_running_or_notify_cancel()  # what is queued cannot be called back
        self._count(+1)
        try:
            self._produce(self._producer, queued)
        except BrokerError:
            self._count(-1)
            raise
        return queued.future

    def _produce(self, producer: Producer, queued: _Queued) -> None:
        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is not None and error.code() == KafkaError.MSG_SIZE_TOO_LARGE and not queued.alone:
                self._produce_alone(queued)
                return
            self._count(-1)
            if error is None:
                queued.future.set_result(position_of(message))
            else:
                queued.future.set_exception(self._over or _refused(error, queued.topic, self._config.kafka))

        try:
            producer.produce(
                queued.topic, value=queued.value, key=queued.key, headers=list(queued.headers),
                partition=queued.partition, on_delivery=acknowledged,
            )  # fmt: skip
        except BufferError:
            raise BrokerError(
                "kafka.bootstrap",
                f"{self.waiting - 1} records wait for {self._config.kafka.bootstrap} to acknowledge them, and no more "
                "fit",
                "start the broker; what waits is sent as soon as it answers",
            ) from None
        except KafkaException as error:
            raise explain(error.args[0], queued.topic, "publish a record", self._config.kafka) from None

    def _produce_alone(self, queued: _Queued) -> None:
        """Within an acknowledgement, so whatever goes wrong is the record's own end."""
        try:
            with self._lock:
                if self._lonely is None:
                    self._lonely = self._made({"batch.num.messages": 1})
            self._produce(self._lonely, replace(queued, alone=True))
        except BrokerError as error:
            self._count(-1)
            queued.future.set_exception(error)

    def _made(self, more: Settings) -> Producer:
        try:
            return Producer(self._settings | more)
        except KafkaException as error:
            raise explain(error.args[0], "kafka", "make a producer", self._config.kafka) from None

    def flush(self, timeout_s: float) -> int:
        """Wait until everything is acknowledged, at most `timeout_s`. Returns how many records still wait."""
        deadline = time.monotonic() + timeout_s
        self._wait(self._producer, self._producer.flush, timeout_s)  # may leave records to the lonely one
        if self._lonely is not None:
            self._wait(self._lonely, self._lonely.flush, max(0.0, deadline - time.monotonic()))
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

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change

    def _serve(self) -> None:
        while not self._closing.is_set():
            if self._lonely is None:
                self._wait(self._producer, self._producer.poll, POLL_S)
            else:
                self._wait(self._producer, self._producer.poll, POLL_S / 2)
                self._wait(self._lonely, self._lonely.poll, POLL_S / 2)

    def _wait(self, producer: Producer, serve: Callable[[float], int], timeout_s: float) -> None:
        """Serve callbacks. The client raises here what it cannot go on after, and would keep its records for ever."""
        try:
            serve(timeout_s)
        except KafkaException as error:
            self._over = explain(error.args[0], f"run {self._config.run}", "publish any record", self._config.kafka)
            producer.purge()
            self._wait(producer, producer.flush, PURGE_S)

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


def position_of(message: Message) -> LogPosition:
    """Where an acknowledged or a read message stands."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    if topic is None or partition is None or offset is None:
        raise BrokerError(str(topic), "a message without a position", "report this: librdkafka never makes one")
    return LogPosition(topic, partition, offset)
