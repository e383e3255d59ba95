"""Copies one topic to another broker, record by record as bytes, under the same offsets.

The journal and the workers' group refer to records by offset. Offsets without a record belong to transaction markers,
which no reader sees. The copy has equally many markers in the same places. Behind some records, the first marker is
that of the transaction in which they are written; each further one comes from a transaction that is aborted empty.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import TypeVar

from confluent_kafka import KafkaException, TopicPartition

from distrl.broker.connect import admin, explain, failover_s
from distrl.broker.fenced import FencedError, FencedProducer, Outgoing
from distrl.broker.producer import RecordProducer, position_or_none
from distrl.broker.reader import LogReader, RawRecord, retained
from distrl.broker.topic_admin import offsets
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import LogPosition

T = TypeVar("T")

MOST = 500
"""Most records that are written before their acknowledgements are waited for."""

HELD_BYTES = 16 << 20
"""Most bytes of values that are read before they are written: records are read partition by partition, but written to
several partitions in one transaction."""

LOOK_S = 0.01
"""Interval of checks for a marker, which comes some milliseconds after its transaction's end."""

LATE_S = 10.0
"""If a marker has not come after this long, another one is left."""

LINGER_MS = 5_000
"""The producer's linger.ms: long enough that a record whose transaction is aborted is never sent. A commit sends at
once."""

AGAIN = "run the same command again: it names the one that removes what is there"
"""End of a hint. It does not name `distrl runs rm` alone, which would remove the source if the settings name that."""

OnBatch = Callable[[list[RawRecord]], None]


@dataclass(frozen=True, slots=True)
class Segment:
    """Records of one partition with adjacent offsets."""

    records: tuple[RawRecord, ...]
    markers: int
    """How many offsets behind the last record belong to transaction markers."""

    @property
    def partition(self) -> int:
        return self.records[0].position.partition


class Mirror:
    """Writes to the run `to`. One thread; a context manager."""

    def __init__(self, to: Config) -> None:
        self._to = to
        self._admin = admin(to.kafka)
        self._coming: dict[int, int] = {}
        """Partition of the topic being copied -> its end once the marker of the last transaction has come."""
        self._plain = RecordProducer(to, "copy")
        self._marked = FencedProducer(to, "copy", "the copy of a run", lambda: _fenced(to), LINGER_MS)

    def __enter__(self) -> Mirror:
        self._marked.open()
        return self

    def __exit__(self, *_: object) -> None:
        self._marked.close()
        self._plain.close(self._to.kafka.connect_timeout_s)

    def records(
        self,
        source: Config,
        topic: str,
        before: OnBatch,
        *,
        exact: bool,
        ends: Mapping[int, int] | None = None,
        part: tuple[int, int] | None = None,
    ) -> int:
        """Copy the retained records of `topic`, calling `before` with each batch first. Returns how many.

        exact: under the same offsets, else only in the same order. ends: partition -> the offset to end before; None:
        the present ends. part: first offset and the one to end before; None: all records. Raises BrokerError where
        records get other offsets because somebody else writes there, or the source does not have `part`.
        """
        there = retained(source, topic)
        ends = {partition: end for partition, (_, end) in there.items()} if ends is None else ends
        first = {partition: begin for partition, (begin, _) in there.items() if partition in ends}  # others came later
        if part is not None:
            first, ends = dict.fromkeys(first, part[0]), {each: min(end, part[1]) for each, end in ends.items()}
        count, held, open_ = 0, 0, dict[int, list[RawRecord]]({partition: [] for partition in first})
        with LogReader(source, topic, first) as reader:
            for batch in reader.to_end():
                kept = [raw for raw in batch if raw.position.offset < ends.get(raw.position.partition, 0)]
                before(kept)
                count += len(kept)
                if not exact:
                    self._write_in_order(topic, kept)
                    continue
                for raw in kept:
                    open_[raw.position.partition].append(raw)
                held += sum(len(raw.value or b"") for raw in kept)
                if held > HELD_BYTES:
                    held, open_ = 0, self._write_closed(topic, first, open_)
        if exact:
            starts = {each: raws[0].position.offset if raws else ends[each] for each, raws in open_.items()}
            self._begin(topic, first, starts)
            self._write(topic, {each: segments(raws, ends[each]) for each, raws in open_.items()})
            for partition in open_:
                self._settle(topic, partition)
        return count

    def _write_closed(
        self, topic: str, first: dict[int, int], open_: Mapping[int, list[RawRecord]]
    ) -> dict[int, list[RawRecord]]:
        """Write all but the last segment of each partition, which may continue. Returns `open_` with only the records
        of these last segments."""
        found = {partition: segments(raws, None) for partition, raws in open_.items() if raws}
        self._begin(topic, first, {each: parts[0].records[0].position.offset for each, parts in found.items()})
        self._write(topic, {each: parts[:-1] for each, parts in found.items()})
        return {**open_, **{each: list(parts[-1].records) for each, parts in found.items()}}

    def _write(self, topic: str, found: Mapping[int, Sequence[Segment]]) -> None:
        """Write segments and their markers, by partition. Records must get the offsets that they have at the source.

        A transaction leaves a marker in each partition that it writes to, so one transaction serves a segment of each
        partition. (A feeder leaves a marker behind almost every task.)
        """
        for side_by_side in zip_longest(*found.values()):
            together: list[Segment] = []
            for segment in (each for each in side_by_side if each is not None):
                if not segment.markers:
                    self._settle(topic, segment.partition)
                    self._refuse_moved(topic, segment.records, self._plainly(topic, segment.records))
                    continue
                if sum(len(each.records) for each in [*together, segment]) > MOST:
                    self._write_together(topic, together)
                    together = []
                together.append(segment)
            self._write_together(topic, together)

    def _write_together(self, topic: str, together: Sequence[Segment]) -> None:
        """Write segments of different partitions in one transaction, and their further markers."""
        if not together:
            return
        raws = [raw for segment in together for raw in segment.records]
        self._refuse_moved(topic, raws, self._in_transaction(topic, raws))
        for segment in together:
            behind = segment.records[-1].position.offset + 1
            self._coming[segment.partition] = behind + 1
            if segment.markers > 1:
                self._settle(topic, segment.partition)
                self._mark(topic, segment.partition, range(behind + 1, behind + segment.markers))

    def _settle(self, topic: str, partition: int) -> None:
        """Wait for the last transaction's marker. Another transaction need not wait: the broker lets it begin only
        behind that marker."""
        if (end := self._coming.pop(partition, None)) is not None:
            self._until(topic, partition, end)

    def _begin(self, topic: str, first: dict[int, int], records: Mapping[int, int]) -> None:
        """Begin the partitions that are still in `first`, and remove them from it. Each begins at its offset there,
        with only markers up to its first record. records: partition -> offset of its first record, or its end if it has
        none."""
        for partition, record in records.items():
            if (begin := first.pop(partition, None)) is not None:
                self._skip(topic, partition, begin)
                self._mark(topic, partition, range(begin, record))

    def _mark(self, topic: str, partition: int, places: Iterable[int]) -> None:
        """Leave a marker at each of `places`, which are consecutive offsets from the partition's end on."""
        for place in places:
            self._until(topic, partition, place + 1, partial(self._marked.leave_marker, self._name(topic), partition))

    def _refuse_moved(self, topic: str, raws: Sequence[RawRecord], places: Iterable[LogPosition | None]) -> None:
        """Raises BrokerError where records were written to other offsets than they have at the source. places: where
        they were written, in any order; None where the broker does not say."""
        expected = {(raw.position.partition, raw.position.offset) for raw in raws}
        for place in places:
            if place is not None and (place.partition, place.offset) not in expected:
                raise BrokerError(
                    f"{self._name(topic)}[{place.partition}]",
                    f"a record came to offset {place.offset}, which is not its own: somebody else writes to the copy",
                    f"stop every process of run {self._to.run} there, then {AGAIN}",
                )

    def _write_in_order(self, topic: str, raws: Sequence[RawRecord]) -> None:
        for begin in range(0, len(raws), MOST):
            part = raws[begin : begin + MOST]
            if TOPICS[topic].transactional:
                self._in_transaction(topic, part)
            else:
                self._plainly(topic, part)

    def _plainly(self, topic: str, raws: Sequence[RawRecord]) -> list[LogPosition | None]:
        """Write records to their partitions. Returns where they are; None where the broker does not say."""
        name = self._name(topic)
        sent = [self._plain.publish_bytes(name, r.key, r.value, r.headers, r.position.partition) for r in raws]
        return self._acknowledged(name, sent)

    def _acknowledged(self, name: str, sent: Iterable[Future[T]]) -> list[T]:
        """The results. Raises BrokerError where one does not come in time; the producer itself would wait for ever."""
        longest_s = failover_s(self._to.kafka)
        try:
            return [future.result(longest_s) for future in sent]
        except TimeoutError:
            raise BrokerError(
                name,
                f"the broker at {self._to.kafka.bootstrap} has acknowledged nothing for {longest_s:g} s",
                f"see `distrl doctor` with its settings, then {AGAIN}",
            ) from None

    def _in_transaction(self, topic: str, raws: Iterable[RawRecord]) -> list[LogPosition | None]:
        """As `_plainly`, in one transaction."""
        name = self._name(topic)
        sent = [Outgoing(name, raw.key, raw.value, raw.headers, raw.position.partition) for raw in raws]
        return [None if message is None else position_or_none(message) for message in self._marked.write_all(sent)]

    def _until(self, topic: str, partition: int, end: int, leave_marker: Callable[[], None] = lambda: None) -> None:
        """Wait until `partition` ends at `end`: a transaction's marker may come some milliseconds after its end.

        leave_marker: called first, and again whenever the marker has not come within LATE_S.
        """
        name, deadline = self._name(topic), time.monotonic() + failover_s(self._to.kafka)
        while time.monotonic() < deadline:
            leave_marker()
            latest = time.monotonic() + LATE_S
            while (found := offsets(self._admin, self._to, name, [partition])[partition][1]) < end:
                if time.monotonic() > latest:
                    break
                time.sleep(LOOK_S)
            if found == end:
                return
            if found > end:
                break
        raise BrokerError(
            f"{name}[{partition}]",
            f"ends at {found}, not at {end}: the marker of a transaction did not come, or somebody else writes there",
            f"see `distrl doctor` with its settings, then {AGAIN}",
        )

    def _name(self, topic: str) -> str:
        return topic_name(self._to.run, topic)

    def _skip(self, topic: str, partition: int, first: int) -> None:
        """Make the offsets of `partition` begin at `first`, as at the source, where retention has deleted the records
        before: write fillers, and delete them."""
        if not first:
            return
        name = self._name(topic)
        for begin in range(0, first, MOST):
            fillers = [
                self._plain.publish_bytes(name, None, b"", (), partition) for _ in range(min(MOST, first - begin))
            ]
            self._acknowledged(name, fillers)
        place = TopicPartition(name, partition, first)
        try:
            self._acknowledged(name, [self._admin.delete_records([place])[place]])
        except KafkaException as error:
            raise explain(error.args[0], name, "delete what stands for deleted records", self._to.kafka) from None


def segments(raws: Iterable[RawRecord], end: int | None) -> list[Segment]:
    """Records of one partition, in order, as segments of at most MOST. Pure.

    end: the partition's end; None if records may follow, so that the offset behind the last one is not known yet.
    """
    found: list[Segment] = []
    open_: list[RawRecord] = []
    for raw in raws:
        if open_ and raw.position.offset != open_[-1].position.offset + 1:
            found += _closed(open_, raw.position.offset)
            open_ = []
        open_.append(raw)
    if open_:
        found += _closed(open_, open_[-1].position.offset + 1 if end is None else end)
    return found


def _closed(records: list[RawRecord], following: int) -> Iterator[Segment]:
    """`records`, which have adjacent offsets, in segments. following: offset of the next record, or the end."""
    markers = following - records[-1].position.offset - 1
    for begin in range(0, len(records), MOST):
        part = tuple(records[begin : begin + MOST])
        yield Segment(part, markers if begin + MOST >= len(records) else 0)


def _fenced(config: Config) -> FencedError:
    return FencedError(f"run {config.run}", "another copy to the same broker has begun", "let one of the two finish")
