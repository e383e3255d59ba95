"""A producer that only one process of a run may be at a time: opening it makes the broker refuse, for ever, whoever
opened it before, also one that was thought dead and comes back.

Each record is a transaction of its own, or each batch: it is in the log once `write` returns. What a process wrote that
was killed before the commit may stand there aborted; who reads uncommitted sees it, who reads committed never does.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from distrl.broker.connect import ACKNOWLEDGE_TIMEOUT_S, ErrorLog, explain, failover_s, settings
from distrl.broker.producer import BY_KEY, Headers, refuse_too_large, told_position
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import LogPosition

LOG = logging.getLogger("distrl.broker.fenced")

TRANSACTION_TIMEOUT_S = 15.0
"""The broker aborts what a dead process left open after this long; until then, who reads committed sees nothing new."""

COMMIT_TIMEOUT_S = 10.0
"""How long a write waits for a broker that is away. Shorter than TRANSACTION_TIMEOUT_S, as the broker answers who comes
after that as if another process had taken over. (librdkafka gives up a record of a transaction by then, too.)"""

FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
}


def this_process() -> str:
    """This process, as a person would look for it. On Kubernetes the host is the pod."""
    return f"process {os.getpid()} on {socket.gethostname()}"


class FencedError(BrokerError):
    """Another process has taken over what only one may do; this one must end."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to be written to the topic of this full name."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = BY_KEY


class FencedProducer:
    """Writes records of one run as the only process that does so under `name`.

    name: the transactional id, without what stands for the run. what: what a person calls that which is opened.
    fenced: what the one is told that was taken over from.
    Life cycle: `open` (fences every earlier opener), then `write`, then `close`. One thread. After an error, make a new
    one, open it and read the log: only that says whether the last record is in it.
    """

    def __init__(self, config: Config, name: str, what: str, fenced: Callable[[], FencedError]) -> None:
        self._config, self._what, self._fenced = config, what, fenced
        self._id = f"distrl.{config.run}.{name}"
        self._errors = ErrorLog(LOG, f"writing to {what}")
        own = {
            "transactional.id": self._id,
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
            "request.timeout.ms": int(ACKNOWLEDGE_TIMEOUT_S * 1000),
            "compression.type": "zstd",
            "linger.ms": 0,  # a transaction holds one record: there is nothing to wait for
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
        """Become the one: older ones are fenced and what they left half-written is aborted."""
        try:
            self._producer.init_transactions(failover_s(self._config.kafka))
        except KafkaException as error:
            raise self._explained(error.args[0], self._id, f"open {self._what}") from None

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int = BY_KEY
    ) -> LogPosition | None:
        """Write one record to a topic of this full name, acknowledged and committed. Returns its position, or None
        where the broker does not tell it.

        Raises FencedError if another process has taken over, else BrokerError; RecordTooLargeError before anything is
        sent, and the producer is then as good as before.
        """
        (message,) = self.write_all([Outgoing(topic, key, value, headers, partition)])
        return None if message is None else told_position(message)

    def write_all(self, records: Sequence[Outgoing]) -> list[Message | None]:
        """Write records in one transaction, as `write` does one; None for one whose delivery was not reported."""
        if self._failure is not None:
            raise self._failure
        for each in records:
            refuse_too_large(each.topic, each.key, each.value, self._config.kafka.max_record_bytes)
        delivered: list[Message] = []
        failed: list[KafkaError] = []

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered.append(message)
            else:
                failed.append(error)

        try:
            self._errors.polling()
            self._producer.poll(0)  # what was reported since the last write
            self._errors.drained()
            self._producer.begin_transaction()
            for each in records:
                self._producer.produce(
                    each.topic,
                    value=each.value,
                    key=each.key,
                    headers=list(each.headers),
                    partition=each.partition,
                    on_delivery=acknowledged,
                )
            self._producer.commit_transaction(COMMIT_TIMEOUT_S)
        except KafkaException as error:
            # Not aborted here: whoever opens it next does that, and the broker does after a time-out.
            reason = next((e for e in [*failed, error.args[0]] if e.code() in FENCED), error.args[0])
            self._failure = self._explained(reason, records[0].topic, "write")
            raise self._failure from None
        return [*delivered, *[None] * (len(records) - len(delivered))]

    def close(self) -> None:
        """Nothing is open between two calls, so there is nothing to wait for."""
        with suppress(KafkaException):  # a client that was fenced may raise here what `write` has said already
            self._producer.flush(0)

    def _explained(self, error: KafkaError, where: str, doing: str) -> BrokerError:
        if error.code() in FENCED:
            return self._fenced()
        return explain(error, where, doing, self._config.kafka)
