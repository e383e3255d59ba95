"""A producer that only one process of a run may be at a time: opening it makes the broker refuse, for ever, whoever
opened it before, also one that was thought dead and comes back.

Each record is a transaction of its own: it is in the log once `write` returns. One whose process was killed before the
commit may stand there aborted; who reads uncommitted sees it, who reads committed never does.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from distrl.broker.connect import explain, settings
from distrl.broker.producer import BY_KEY, Headers, position_of, refuse_too_large
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import LogPosition

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
        made = settings(config.kafka, f"{config.run}-{name}") | {
            "transactional.id": self._id,
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
            "compression.type": "zstd",
            "linger.ms": 0,  # a transaction holds one record: there is nothing to wait for
        }
        self._failure: BrokerError | None = None
        try:
            self._producer = Producer(made)
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
            self._producer.init_transactions(self._config.kafka.connect_timeout_s)
        except KafkaException as error:
            raise self._explained(error.args[0], self._id, f"open {self._what}") from None

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = (), partition: int = BY_KEY
    ) -> LogPosition:
        """Write one record to a topic of this full name, acknowledged and committed.

        Raises FencedError if another process has taken over, else BrokerError; RecordTooLargeError before anything is
        sent, and the producer is then as good as before.
        """
        if self._failure is not None:
            raise self._failure
        refuse_too_large(topic, key, value, self._config.kafka.max_record_bytes)
        delivered: list[Message] = []
        failed: list[KafkaError] = []

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered.append(message)
            else:
                failed.append(error)

        try:
            self._producer.begin_transaction()
            self._producer.produce(
                topic, value=value, key=key, headers=list(headers), partition=partition, on_delivery=acknowledged
            )
            self._producer.commit_transaction(COMMIT_TIMEOUT_S)
        except KafkaException as error:
            # Not aborted here: whoever opens it next does that, and the broker does after a time-out.
            reason = next((e for e in [*failed, error.args[0]] if e.code() in FENCED), error.args[0])
            self._failure = self._explained(reason, topic, "write")
            raise self._failure from None
        return position_of(delivered[0])

    def close(self) -> None:
        """Nothing is open between two calls, so there is nothing to wait for."""
        with suppress(KafkaException):  # a client that was fenced may raise here what `write` has said already
            self._producer.flush(0)

    def _explained(self, error: KafkaError, where: str, doing: str) -> BrokerError:
        if error.code() in FENCED:
            return self._fenced()
        return explain(error, where, doing, self._config.kafka)
