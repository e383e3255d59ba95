"""A transactional producer that fences its predecessors: once it is open, the broker refuses every process that opened
it before, for ever, also one that was thought dead.

Each record, or each batch, is a transaction of its own: it is in the log once `write` returns. Records of a process
killed before the commit may stay in the log as aborted; only readers of uncommitted records see them.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from distrl.broker.connect import ACKNOWLEDGE_TIMEOUT_S, ErrorLog, explain, failover_s, settings
from distrl.broker.framing import sent_as
from distrl.broker.producer import BY_KEY, Headers, position_or_none, refuse_too_large
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.interruptions import interruptions_deferred
from distrl.types import LogPosition, Record
from distrl.wire.cloud_events import event_headers
from distrl.wire.codec import encode

LOG = logging.getLogger("distrl.broker.fenced")

TRANSACTION_TIMEOUT_S = 15.0
"""The broker aborts a dead process's open transaction after this long; until then, readers of committed records see
nothing new."""

COMMIT_TIMEOUT_S = 10.0
"""How long a write waits for an unavailable broker. Shorter than TRANSACTION_TIMEOUT_S, after which the broker answers
as if another process had taken over. (librdkafka also gives up a transaction's records by then.)"""

REGISTERED_S = 0.2
"""How long a broker that is not busy takes, from the first record on, to add a partition to a transaction."""

FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
}


def this_process() -> str:
    """Names this process for people. On Kubernetes the host is the pod."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class FencedError(BrokerError):
    """Another process has taken over this role; this one must end."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be written."""

    topic: str
    """Its full name."""
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = BY_KEY

    @classmethod
    def of(
        cls, run: str, topic: str, key: str, record: Record, headers: Headers = (), partition: int = BY_KEY
    ) -> Outgoing:
        """`record` for `topic` (a key of TOPICS), with its CloudEvents headers behind `headers`."""
        value = encode(record)
        described = (*headers, *event_headers(record, value, run, topic))
        return cls(topic_name(run, topic), key.encode(), value, described, partition)


class FencedProducer:
    """Writes records of one run as the only process that does so under `name`.

    name: the transactional id, without prefix and run. what: what is written, for messages. fenced: makes the error of
    a process that was fenced. linger_ms: how long a record waits for others before it is sent; a commit sends it.
    Life cycle: `open` (fences every earlier opener), then `write`, then `close`. One thread. After an error, make a new
    one, open it and read the log: only the log shows whether the last record was written.
    """

    def __init__(
        self, config: Config, name: str, what: str, fenced: Callable[[], FencedError], linger_ms: int = 0
    ) -> None:
        self._config, self._what, self._fenced = config, what, fenced
        self._id = f"distrl.{config.run}.{name}"
        self._errors = ErrorLog(LOG, f"writing to {what}")
        own = {
            "transactional.id": self._id,
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
            "request.timeout.ms": int(ACKNOWLEDGE_TIMEOUT_S * 1000),
            "compression.type": "zstd",
            "linger.ms": linger_ms,  # most transactions hold one record: there is nothing to wait for
        }
        self._failure: BrokerError | None = None
        try:
            self._producer = Producer(settings(config.kafka, f"{config.run}-{name}", own, self._errors))
        except KafkaException as error:
            raise explain(error.args[0], "kafka", f"make the producer of {what}", config.kafka) from None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Fence older producers and abort their open transactions."""
        self._sent_as = sent_as(self._config.kafka)
        try:
            self._producer.init_transactions(failover_s(self._config.kafka))
        except KafkaException as error:
            raise self._explained(error.args[0], self._id, f"open {self._what}") from None

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int = BY_KEY
    ) -> LogPosition | None:
        """Write one record, acknowledged and committed. topic: its full name. Returns the record's position, or None
        if the broker does not report it.

        Raises FencedError if another process has taken over, else BrokerError; RecordTooLargeError before anything is
        sent, after which the producer can still be used.
        """
        return self.write_one(Outgoing(topic, key, value, headers, partition))

    def write_one(self, record: Outgoing) -> LogPosition | None:
        """As `write`."""
        (message,) = self.write_all([record])
        return None if message is None else position_or_none(message)

    def write_all(self, records: Sequence[Outgoing]) -> list[Message | None]:
        """Write records in one transaction, as `write` does one; None for one whose delivery was not reported."""
        delivered = self._transact(records, lambda: self._producer.commit_transaction(COMMIT_TIMEOUT_S))
        return [*delivered, *[None] * (len(records) - len(delivered))]

    def leave_marker(self, topic: str, partition: int) -> None:
        """Abort a transaction before its record is sent, so that the log gets nothing but the abort marker. topic: its
        full name.

        The producer has to linger for longer than REGISTERED_S. A busy broker may not have added the partition to the
        transaction by then; there is no marker then, which the partition's end shows. Raises as `write`.
        """

        def abort() -> None:
            time.sleep(REGISTERED_S)
            self._producer.abort_transaction(COMMIT_TIMEOUT_S)  # drops what is not sent yet

        self._transact([Outgoing(topic, None, b"", (), partition)], abort)

    def end_of(self, topic: str, partition: int) -> int:
        """The offset at which the partition's leader writes a record now: a probe record is written, and its
        transaction aborted.

        A reader that reads up to there has read all that was committed before the call, whichever broker it asks.
        topic: the full name of a topic whose readers see only committed records. Raises as `write`.
        """

        def take_back() -> None:
            self._producer.flush(COMMIT_TIMEOUT_S)
            self._producer.abort_transaction(COMMIT_TIMEOUT_S)

        delivered = self._transact([Outgoing(topic, None, None, (), partition)], take_back)
        place = position_or_none(delivered[0]) if delivered else None
        if place is None:
            raise BrokerError(
                f"{topic}[{partition}]",
                f"its leader acknowledged nothing within {COMMIT_TIMEOUT_S:g} s",
                "see what `distrl doctor` says of the brokers, then start this again",
            )
        return place.offset

    def _transact(self, records: Sequence[Outgoing], end: Callable[[], object]) -> list[Message]:
        """Send `records` in one transaction, which `end` commits or aborts. Returns the messages that were
        delivered."""
        if self._failure is not None:
            raise self._failure
        for each in records:
            refuse_too_large(each.topic, each.key, each.value, self._config.kafka.max_record_bytes)
        sent = [(each, *self._sent_as(each.value, each.headers)) for each in records]
        delivered: list[Message] = []
        failed: list[KafkaError] = []

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered.append(message)
            else:
                failed.append(error)

        try:
            # confluent-kafka loses what is raised in a callback (OnError in connect.py), as KeyboardInterrupt may be.
            with interruptions_deferred():
                self._errors.polling()
                self._producer.poll(0)  # serves the errors since the last write
                self._errors.drained()
                self._producer.begin_transaction()
                for each, value, headers in sent:
                    self._producer.produce(
                        each.topic,
                        value=value,
                        key=each.key,
                        headers=list(headers),
                        partition=each.partition,
                        on_delivery=acknowledged,
                    )
                end()
        except KafkaException as error:
            # Not aborted here: the next opener does that, or the broker after a time-out.
            reason = next((e for e in [*failed, error.args[0]] if e.code() in FENCED), error.args[0])
            self._failure = self._explained(reason, records[0].topic, "write")
            raise self._failure from None
        return delivered

    def close(self) -> None:
        """Returns at once: no transaction is open between two calls."""
        with suppress(KafkaException):  # a fenced client may raise here what `write` has raised already
            self._producer.flush(0)

    def _explained(self, error: KafkaError, where: str, doing: str) -> BrokerError:
        if error.code() in FENCED:
            return self._fenced()
        return explain(error, where, doing, self._config.kafka)
