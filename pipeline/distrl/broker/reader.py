"""Reads the log in order, without a consumer group: from given offsets to the end captured at the start, or following.

A LogReader belongs to one thread. It has no thread of its own: librdkafka fetches ahead while the caller works.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from types import TracebackType
from typing import TypeVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from distrl.broker.client_settings import Settings
from distrl.broker.client_watch import LOOK_S, PARTITIONS, ClientWatch
from distrl.broker.connect import PERMANENT, ErrorLog, UnknownTopicError, admin, explain, failover_s, settings
from distrl.broker.producer import Headers, position_of
from distrl.broker.topic_admin import broker_count, offsets, partition_count
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition, Record
from distrl.wire.codec import decode
from distrl.wire.confluent import MAGIC, unframed

LOG = logging.getLogger("distrl.broker.reader")

R = TypeVar("R", bound=Record)

BATCH_RECORDS = 500
"""Most records of one `read`: enough that the cost of a call is negligible, few enough to stay in a cache."""

END_MARK_MS = 50
"""fetch.wait.max.ms of transactional topics. A transaction ends with a marker that is not a record, so a reader learns
that it is at the end only from an empty fetch; with FETCH_WAIT_MS every start of a worker or a learner would wait that
long."""

FETCH_WAIT_MS = 500
"""fetch.wait.max.ms elsewhere, Kafka's own. A record that comes ends the wait, so that it delays nothing."""

DELETED_MS = 5_000
"""How long a known topic may be missing from the brokers' metadata before it counts as deleted."""

COORDINATOR = "GroupCoordinator"
"""Prefix of errors about the group's coordinator; a reader names a group and never joins it."""

POLL_S = 0.5
"""Longest single wait inside a bounded read; a record ends it at once."""

OLD_LEADER_S = 5.0
"""How long a log that seems to end before an offset that it is known to have had is asked for again. A broker that was
frozen still believes to be the leader when it goes on, and answers with its old end until the cluster corrects it: up
to a tenth of a second, as measured. A broker that is cut off from the cluster does so for longer; each attempt may
reach another broker."""

ASK_AGAIN_S = 0.2

NO_EPOCH = -1


class CutError(BrokerError):
    """The log was truncated before the offset to read, and may have grown again: its broker lost acknowledged records.
    A follower starts again with what is left."""


@dataclass(frozen=True, slots=True)
class RawRecord:
    """A record as the broker holds it; one in Confluent's wire format as it was before it was framed."""

    position: LogPosition
    key: bytes | None
    value: bytes | None
    timestamp: int
    """By the broker's clock, ms since the epoch; -1: none."""
    headers: Headers = ()

    @classmethod
    def of(cls, message: Message) -> RawRecord:
        value, headers = message.value(), _headers_of(message)
        if value is not None and value.startswith(MAGIC):
            value, headers = unframed(value, headers)
        return cls(position_of(message), message.key(), value, message.timestamp()[1], headers)


_get_headers = methodcaller("headers")
"""`message.headers()`, called from C. The client may set an error and return all the same: the interpreter raises that
here at once, but with its own specialised calls only at some later call."""


def _headers_of(message: Message) -> Headers:
    """The headers; none if a name is not UTF-8, on which the client fails with a SystemError."""
    try:
        return tuple(cast(Headers, _get_headers(message) or ()))
    except SystemError:
        LOG.warning("the headers of %s are ignored: a name among them is not UTF-8", position_of(message))
        return ()


def decoded(raw: RawRecord, expected: type[R]) -> R:
    """The record in `raw`. Raises WireError with its position in the log."""
    try:
        return decode(raw.value or b"", expected)
    except WireError as error:
        raise WireError(f"{place_of(raw)}: {error.where}", error.what, error.hint) from None


def place_of(raw: RawRecord) -> str:
    """Where a record is, for people."""
    return f"{raw.position.topic}[{raw.position.partition}] offset {raw.position.offset}"


def retained(config: Config, topic: str) -> dict[int, tuple[int, int]]:
    """Partition -> (first retained offset, one past the last), asked of the broker now. topic: a key of TOPICS.

    Raises UnknownTopicError if the topic is missing, and BrokerError.
    """
    name, client = topic_name(config.run, topic), admin(config.kafka)
    count = partition_count(client, config, name, "read the log")
    return offsets(client, config, name, range(count), TOPICS[topic].transactional)


def has_topic(config: Config, topic: str) -> bool:
    """Whether the run has this topic (a key of TOPICS); a run of an earlier version may lack it. Raises BrokerError."""
    try:
        retained(config, topic)
    except UnknownTopicError:
        return False
    return True


def read_since(config: Config, topic: str, start: Mapping[int, int]) -> Iterator[RawRecord]:
    """The retained records of a topic from `start` to its end, as they are read; partitions left out, from their first
    record."""
    kept = retained(config, topic)
    clamped = {p: min(max(first, start.get(p, first)), end) for p, (first, end) in kept.items()}
    with LogReader(config, topic, clamped) as reader:
        yield from (raw for batch in reader.to_end() for raw in batch)


class LogReader:
    """The records of one topic of a run (a key of TOPICS), each partition in its order.

    start: partition -> first offset to read; a partition left out is read from its first retained record.
    reach: partition -> an offset up to which records are known to have been written, where `start` does not imply it:
    `ends` are not below it, unless the broker has lost records.
    follows: the reader mostly waits for new records. It polls the broker less often, and notices the log's end later.
    Transactional topics are read committed, so never what a fenced learner wrote.
    Raises BrokerError if the topic is missing, or `start` is outside of what the broker retains.
    """

    def __init__(
        self,
        config: Config,
        topic: str,
        start: Mapping[int, int] | None = None,
        follows: bool = False,
        reach: Mapping[int, int] | None = None,
    ) -> None:
        self._config, self._name = config, topic
        self.topic = topic_name(config.run, topic)
        self._committed_only = TOPICS[topic].transactional
        kept = self._kept_of_the_leader([*(start or {}).items(), *(reach or {}).items()])
        self._next = {partition: first for partition, (first, _) in kept.items()}
        for partition, offset in (start or {}).items():
            self._refuse_outside(partition, offset, kept)
            self._next[partition] = offset
        self.ends = _ends(kept)
        self._at_end: dict[int, int] = {}
        self._epochs: dict[int, int] = {}
        """The leader's epoch of the last record that was read; NO_EPOCH: unknown."""
        self._refused_since: dict[int, float] = {}
        """Since when a broker says of a partition that it does not have the next record."""
        self._permanent_error: KafkaError | None = None
        self._reported: deque[KafkaError] = deque()
        """By the client, and not looked at yet."""
        self._errors = ErrorLog(LOG, f"reading {self.topic}")
        has_marks = self._committed_only or TOPICS[topic].fenced
        own: Settings = {
            "group.id": f"distrl.{config.run}.reader",  # required by librdkafka; never joined
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if self._committed_only else "read_uncommitted",
            "fetch.queue.backoff.ms": 20,
            "topic.metadata.propagation.max.ms": DELETED_MS,
            "fetch.wait.max.ms": END_MARK_MS if has_marks and not follows else FETCH_WAIT_MS,
        }
        self._own = own
        self._consumer, self._watch = self._made()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def next_offsets(self) -> Mapping[int, int]:
        """Partition -> offset after the last record that `read` returned, where a later reader can start."""
        return dict(self._next)

    def read(self, timeout_s: float, most: int = BATCH_RECORDS) -> list[RawRecord]:
        """The next records, at most `most`; waits at most `timeout_s` for the first one and not for others.

        May return none earlier, as at the end of the log.
        """
        found: list[RawRecord] = []
        if self._watch.stuck:
            self._replace()
        self._errors.polling()
        message = self._consumer.poll(timeout_s)
        while self._reported:
            self._on_error(self._reported.popleft())
        if message is None:
            self._errors.drained()
        else:
            self._take(message, found)
            if most > 1:
                for further in self._consumer.consume(most - 1, timeout=0):
                    self._take(further, found)
        if self._permanent_error is not None and not found:
            raise explain(self._permanent_error, self.topic, "read the log", self._config.kafka)
        return found

    def to_end(self, most: int = BATCH_RECORDS) -> Iterator[list[RawRecord]]:
        """Batches of records up to the end captured when the reader was made, or by `ask_ends` (and possibly a few
        beyond it).

        Raises BrokerError if the brokers send nothing for `failover_s`.
        """
        longest_s = failover_s(self._config.kafka)
        deadline = time.monotonic() + longest_s
        while not self.caught_up:
            before = dict(self._at_end)
            batch = self.read(min(POLL_S, longest_s), most)
            if batch or self._at_end != before:
                deadline = time.monotonic() + longest_s
            elif time.monotonic() > deadline:
                raise self.silence(longest_s)
            if batch:
                yield batch
                deadline = time.monotonic() + longest_s  # the caller's work is not the brokers' silence

    def silence(self, longest_s: float) -> BrokerError:
        """The error where the brokers have sent nothing for `longest_s`, and the end is not reached."""
        return BrokerError(
            self.topic,
            f"the broker at {self._config.kafka.bootstrap} sent nothing for {longest_s:g} s; read up to "
            f"{self._next}, the end is {dict(self.ends)}",
            "check that the broker runs (`distrl doctor`); raise kafka.connect_timeout_s if it is slow",
        )

    def ask_ends(self) -> None:
        """Captures the end anew, for `to_end`."""
        self.ends = _ends(self.kept())

    @property
    def caught_up(self) -> bool:
        """Whether everything up to the captured end was returned."""
        return self.reached(self.ends)

    def reached(self, ends: Mapping[int, int]) -> bool:
        """Whether everything before these offsets was returned. (The last may be a transaction's marker, no record.)"""
        return all(
            self._next[partition] >= end or self._at_end.get(partition, -1) >= end for partition, end in ends.items()
        )

    def kept(self) -> dict[int, tuple[int, int]]:
        """Partition -> (first retained offset, one past the last), asked of the broker now."""
        return retained(self._config, self._name)

    def _kept_of_the_leader(self, known: Sequence[tuple[int, int]]) -> dict[int, tuple[int, int]]:
        """`kept`, asked for again for up to OLD_LEADER_S while a partition seems to end before its offset in `known`:
        where there are several brokers, the one that answers may no longer be the leader."""
        kept, deadline = self.kept(), time.monotonic() + OLD_LEADER_S
        while any(offset > kept.get(partition, (0, offset))[1] for partition, offset in known):
            if time.monotonic() > deadline or broker_count(self._config) < 2:
                break
            time.sleep(ASK_AGAIN_S)
            kept = self.kept()
        return kept

    def close(self) -> None:
        self._consumer.close()

    def _made(self, before: ClientWatch | None = None) -> tuple[Consumer, ClientWatch]:
        """A client that reads from the next records on. before: of the client that it replaces."""
        look_s = LOOK_S * max(1.0, len(self._next) / PARTITIONS)
        watch = ClientWatch(self._config.kafka, self.topic, self._next.keys, look_s, before)
        own = self._own | watch.settings()
        try:
            made = Consumer(settings(self._config.kafka, f"distrl-reader-{self._name}", own, self._reported.append))
            made.assign([self._place(partition) for partition in self._next])
        except KafkaException as error:
            raise explain(error.args[0], self.topic, "read the log", self._config.kafka) from None
        return made, watch

    def _place(self, partition: int) -> TopicPartition:
        """Where to read on. With the epoch of the last record the leader is asked whether it has that record, too."""
        epoch = self._epochs.get(partition, NO_EPOCH)
        return TopicPartition(self.topic, partition, self._next[partition], leader_epoch=epoch)

    def _replace(self) -> None:
        made = self._watch.replacement(lambda: self._made(self._watch), LOG, f"reading {self.topic}")
        if made is not None:
            old = self._consumer
            self._consumer, self._watch = made
            old.close()

    def _on_error(self, error: KafkaError) -> None:
        """Store a permanent error, for `read` to raise after the records before it.

        Other errors are transient: librdkafka reconnects and fetches again, and `to_end` has its deadline.
        """
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED or error.str().startswith(COORDINATOR):
            LOG.debug("ignored, as the group is never joined: %s", error.str())
        elif error.code() in PERMANENT or error.fatal():
            self._permanent_error = error
        else:
            self._errors(error)

    def _take(self, message: Message, found: list[RawRecord]) -> None:
        error = message.error()
        if error is None:
            raw = RawRecord.of(message)
            partition = raw.position.partition
            self._next[partition] = raw.position.offset + 1
            self._epochs[partition] = NO_EPOCH if (epoch := message.leader_epoch()) is None else epoch
            self._refused_since.pop(partition, None)
            found.append(raw)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._at_end[message.partition() or 0] = message.offset() or 0
        elif error.code() in {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}:
            self._fetch_again(message.partition() or 0, error)
        else:
            self._on_error(error)

    def _fetch_again(self, partition: int, error: KafkaError) -> None:
        """Fetch a partition again of which a broker says that it does not have the next record. Raises CutError if it
        says so for OLD_LEADER_S, or is the only broker."""
        offset = self._next[partition]
        self._refuse_outside(partition, offset, self._kept_of_the_leader([(partition, offset)]))
        since = self._refused_since.setdefault(partition, time.monotonic())
        if time.monotonic() > since + OLD_LEADER_S or broker_count(self._config) < 2:
            raise CutError(
                f"{self.topic}[{partition}]",
                f"was truncated before record {offset}, the next to read, and has grown again: {error.str()}",
                "start this role again: it begins with what is left",
            )
        time.sleep(ASK_AGAIN_S)
        place = self._place(partition)
        try:
            self._consumer.incremental_unassign([place])  # it is read no more: `seek` is refused
            self._consumer.incremental_assign([place])
        except KafkaException as failed:
            raise explain(failed.args[0], self.topic, "read the log", self._config.kafka) from None

    def _refuse_outside(self, partition: int, offset: int, kept: Mapping[int, tuple[int, int]]) -> None:
        where = f"{self.topic}[{partition}]"
        if partition not in kept:
            raise BrokerError(
                where, f"no such partition (it has {len(kept)})", "read with the `run` that these offsets came from"
            )
        first, end = kept[partition]
        if offset < first:
            raise BrokerError(
                where,
                f"record {offset} is needed, but retention has deleted all before {first}",
                f"restore them, or continue as a new run: `distrl learner --set run={self._config.run[:61]}-2`, and "
                "the same --set for every role; `distrl topics ensure --alter` sets retention.ms to what is declared",
            )
        if offset > end:
            raise CutError(
                where,
                f"record {offset} is needed, but the log ends at {end}: its tail is lost, or it is another log",
                "start this role again, and it begins with what is left; or set kafka.bootstrap and `run` to those "
                "that these offsets came from",
            )


def _ends(kept: Mapping[int, tuple[int, int]]) -> Mapping[int, int]:
    return {partition: end for partition, (_, end) in kept.items()}
