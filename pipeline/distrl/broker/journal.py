"""The learner's journal, and the one door through which its versions leave.

Both go through one transactional producer whose id is the run's. Opening it makes the broker refuse, for ever, whoever
opened it before: a learner that was thought dead and comes back publishes nothing.
"""

from __future__ import annotations

from types import TracebackType

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from distrl.broker.connect import explain, settings
from distrl.broker.producer import position_of, refuse_too_large
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import LogPosition, Record, Update, Version
from distrl.wire.codec import encode

TRANSACTION_TIMEOUT_S = 15.0
"""The broker aborts what a dead learner left open after this long; until then, followers see no new version."""

COMMIT_TIMEOUT_S = 10.0
"""How long an append waits for a broker that is away. Shorter than TRANSACTION_TIMEOUT_S, as the broker answers who
comes after that as if another learner had taken over. (librdkafka gives up a record of a transaction by then, too.)"""

FENCED = {
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.FENCED_INSTANCE_ID,
}


class FencedError(BrokerError):
    """Another learner has taken over the run; this process must end."""


class Journal:
    """Appends updates and publishes versions, each in a transaction of its own, as the only learner of a run.

    Life cycle: `open` (fences every earlier opener), then `append` and `publish_version`, then `close`. One thread.
    After an error, make a new Journal, open it and read `journalled`: only the log says whether the last record is in
    it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._updates = topic_name(config.run, "updates")
        self._versions = topic_name(config.run, "versions")
        made = settings(config.kafka, f"{config.run}-learner") | {
            "transactional.id": f"distrl.{config.run}.learner",
            "transaction.timeout.ms": int(TRANSACTION_TIMEOUT_S * 1000),
            "compression.type": "zstd",
            "linger.ms": 0,  # a transaction holds one record: there is nothing to wait for
        }
        self._failure: BrokerError | None = None
        try:
            self._producer = Producer(made)
        except KafkaException as error:
            raise explain(error.args[0], "kafka", "make the journal's producer", config.kafka) from None

    def __enter__(self) -> Journal:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Become the learner of the run: older ones are fenced and what they left half-written is aborted."""
        try:
            self._producer.init_transactions(self._config.kafka.connect_timeout_s)
        except KafkaException as error:
            raise self._explained(error.args[0], self._updates, "open the journal") from None

    def append(self, update: Update) -> LogPosition:
        """Write `update` down; when this returns, every later learner will redo it.

        Raises FencedError if another learner has taken over, else BrokerError.
        """
        return self._write(self._updates, self._config.run, update)

    def publish_version(self, version: Version) -> LogPosition:
        """Tell every worker of `version`. Its objects must be in the store already. Raises as `append` does."""
        return self._write(self._versions, str(version.version), version)

    def close(self) -> None:
        """Nothing is open between two calls, so there is nothing to wait for."""
        self._producer.flush(0)

    def _write(self, topic: str, key: str, record: Record) -> LogPosition:
        if self._failure is not None:
            raise self._failure
        key_bytes, value = key.encode(), encode(record)
        refuse_too_large(topic, key_bytes, value, self._config.kafka.max_record_bytes)
        delivered: list[Message] = []
        failed: list[KafkaError] = []

        def acknowledged(error: KafkaError | None, message: Message) -> None:
            if error is None:
                delivered.append(message)
            else:
                failed.append(error)

        try:
            self._producer.begin_transaction()
            self._producer.produce(topic, value=value, key=key_bytes, on_delivery=acknowledged)
            self._producer.commit_transaction(COMMIT_TIMEOUT_S)
        except KafkaException as error:
            # Not aborted here: whoever opens the journal next does that, and the broker does after a time-out.
            reason = next((e for e in [*failed, error.args[0]] if e.code() in FENCED), error.args[0])
            self._failure = self._explained(reason, topic, "write")
            raise self._failure from None
        return position_of(delivered[0])

    def _explained(self, error: KafkaError, topic: str, doing: str) -> BrokerError:
        if error.code() in FENCED:
            return fenced(self._config.run)
        return explain(error, topic, doing, self._config.kafka)


def journalled(config: Config) -> list[Update]:
    """Every update in the journal of a run, in the order of the log.

    Complete and final where the caller has a Journal open: `open` waits for what an older learner has committed, and
    nobody else can add one then. What is appended shows a few milliseconds later.
    """
    with LogReader(config, "updates") as reader:
        return [decoded(raw, Update) for batch in reader.to_end() for raw in batch]


def fenced(run: str) -> FencedError:
    return FencedError(
        f"learner of run {run}",
        f"another learner has taken over run {run}; this one may write no more",
        "let this process end; start one learner per run, or choose another `run`",
    )
