"""Writing records: idempotent, acknowledged by every in-sync replica, zstd, with a bounded queue.

Life cycle: the constructor starts one thread, which serves acknowledgements until `close`. `publish` never waits: it
queues the record and returns a future that the thread completes. A record stays queued while the broker is away, for
as long as the process lives; `waiting` says how many do, and a caller that sees it grow stops starting new work.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from distrl.broker.connect import BATCH_OVERHEAD_BYTES, explain, settings
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

BY_KEY = -1
"""The partition that the key's hash gives (librdkafka's PARTITION_UA)."""

HEADER_ROOM_BYTES = BATCH_OVERHEAD_BYTES // 2
"""Headers up to here find room beside the largest record; what is longer counts towards its size."""

Headers = Sequence[tuple[str, bytes | None]]


class RecordTooLargeError(BrokerError):
    """A record that the broker would refuse, told to its author before anything is sent; or one that it has refused,
    because its topic takes less than kafka.max_record_bytes says."""


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
        try:
            self._producer = Producer(made)
        except KafkaException as error:
            raise explain(error.args[0], "kafka", "make a producer", config.kafka) from None
        self._lock = threading.Lock()
        self._waiting = 0  # counted here: librdkafka's own length counts its pending error events too
        self._closing = threading.Event()
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
        Raises RecordTooLargeError, and BrokerError when the local queue is full or the producer is beyond use.
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
        future: Future[LogPosition] = Future()
        future.set_running_or_notify_cancel()  # what is queued cannot be called back

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            self._count(-1)
            if error is None:
                future.set_result(position_of(message))
            else:
                future.set_exception(_refused(error, topic, kafka))

        self._count(+1)
        try:
            self._producer.produce(
                topic, value=value, key=key, headers=list(headers), partition=partition, on_delivery=acknowledged
            )
        except BufferError:
            self._count(-1)
            raise BrokerError(
                "kafka.bootstrap",
                f"{self.waiting} records wait for {kafka.bootstrap} to acknowledge them, and no more fit",
                "start the broker; what waits is sent as soon as it answers",
            ) from None
        except KafkaException as error:
            self._count(-1)
            raise explain(error.args[0], topic, "publish a record", kafka) from None
        return future

    def flush(self, timeout_s: float) -> int:
        """Wait until everything is acknowledged, at most `timeout_s`. Returns how many records still wait."""
        self._producer.flush(timeout_s)
        return self.waiting

    def close(self, timeout_s: float) -> int:
        """Flush, give up what still waits (its futures fail), and end the thread. Returns how many were given up."""
        if self._closing.is_set():
            return 0
        left = self.flush(timeout_s)
        if left:
            self._producer.purge()
            self._producer.flush(1.0)  # serves the callbacks of what was purged
        self._closing.set()
        self._thread.join()
        return left

    def _count(self, change: int) -> None:
        with self._lock:
            self._waiting += change

    def _serve(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(POLL_S)


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
