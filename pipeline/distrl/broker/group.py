"""The workers' group's committed offsets in `tasks`, read and written by processes that are not members.

Not by the admin client: its request aborts the whole process while the broker has no coordinator for the group, as for
a moment after a restart (librdkafka issue 5040).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from distrl.broker.connect import admin, explain, failover_s, no_answer, settings, with_retry
from distrl.broker.reader import RawRecord, read_since
from distrl.broker.topic_admin import offsets, partition_count
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, DistrlError
from distrl.supervised import SupervisedThread

ASK_S = 5.0
"""Longest wait for an answer; callers ask again later."""
HAS_MEMBERS = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION, KafkaError.REBALANCE_IN_PROGRESS}
"""What the broker answers to a commit by a process that is not a member of the group."""


def workers_group(config: Config) -> str:
    return f"distrl.{config.run}.{config.worker.group}"


class GroupOffsets:
    """Asks for the group's committed offsets. A context manager; one thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._topic = topic_name(config.run, "tasks")
        self._consumer = self._made()

    def __enter__(self) -> GroupOffsets:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """Partition of `tasks` -> the workers' next offset; partitions without a commit are left out.

        Raises BrokerError if there is no answer within ASK_S, or `failover_s` while the cluster is settling; and if the
        broker refuses to say it of one partition: that one may have a commit.
        """
        places = [TopicPartition(self._topic, partition) for partition in partitions]

        def ask() -> list[TopicPartition]:
            answers = self._consumer.committed(places, ASK_S)
            for each in answers:
                if each.error is not None:
                    raise KafkaException(each.error)
            return answers

        try:
            found = with_retry(self._config.kafka, ask)
        except KafkaException as error:
            old, self._consumer = self._consumer, self._made()  # it may be stuck (client_watch.py)
            old.close()
            raise explain(error.args[0], self._topic, "read the workers' offsets", self._config.kafka) from None
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def _made(self) -> Consumer:
        try:
            return Consumer(settings(self._config.kafka, "distrl-group", {"group.id": workers_group(self._config)}))
        except KafkaException as error:
            raise explain(error.args[0], self._topic, "ask for offsets", self._config.kafka) from None


def commit(config: Config, to: Mapping[int, int]) -> None:
    """Commit the workers' group, which has no members, to these offsets by partition of `tasks`.

    Raises BrokerError; where none has answered in time the process has to end, as the commit may come yet.
    """
    try:
        _commit(config, to)
    except KafkaException as error:
        raise _unwritten(error, config) from None


def begin(config: Config) -> int:
    """Commit the workers' group to the first task of each partition where it has no offset yet. Returns for how many
    partitions it did.

    For autoscalers that follow the workers' lag: of a group without offsets they read no lag, or the whole topic as
    lag. A group with members is left alone: they commit what they play. Raises BrokerError.
    """
    client = admin(config.kafka)
    name = topic_name(config.run, "tasks")
    count = partition_count(client, config, name, "begin the workers' group")
    with GroupOffsets(config) as group:
        known = group.committed(range(count))
    found = offsets(client, config, name, range(count), just_made=True)
    missing = {partition: first for partition, (first, _) in found.items() if partition not in known}
    try:
        if missing:
            _commit(config, missing)
    except KafkaException as error:
        if error.args[0].code() in HAS_MEMBERS:
            return 0
        raise _unwritten(error, config) from None
    return len(missing)


def _commit(config: Config, to: Mapping[int, int]) -> None:
    """Raises KafkaException where the broker refuses, BrokerError where none answers."""
    name = topic_name(config.run, "tasks")
    places = [TopicPartition(name, partition, offset) for partition, offset in to.items()]
    own = {"group.id": workers_group(config), "enable.auto.commit": False}
    done: Future[None] = Future()

    def work() -> None:
        try:
            with closing(Consumer(settings(config.kafka, "distrl-offsets", own))) as consumer:
                with_retry(config.kafka, lambda: consumer.commit(offsets=places, asynchronous=False))
        except (KafkaException, DistrlError) as error:
            done.set_exception(error)
        else:
            done.set_result(None)

    # librdkafka waits for the group's coordinator without a time-out (its issue 3740), so a daemon thread does.
    SupervisedThread(work, "committing the workers' offsets", done.set_exception)
    longest_s = 2 * failover_s(config.kafka)
    try:
        done.result(longest_s)
    except TimeoutError:
        raise no_answer(name, longest_s) from None


def _unwritten(error: KafkaException, config: Config) -> BrokerError:
    return explain(error.args[0], workers_group(config), "commit the workers' offsets", config.kafka)


def uncommitted(config: Config) -> list[RawRecord]:
    """The records of `tasks` that the workers' group has not committed. Raises BrokerError."""
    name = topic_name(config.run, "tasks")
    count = partition_count(admin(config.kafka), config, name, "see how far the workers are")
    with GroupOffsets(config) as group:
        committed = group.committed(range(count))
    return list(read_since(config, "tasks", committed))
