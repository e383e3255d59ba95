"""Reads a range of a topic, decoded and in a fixed order: partition after partition, each in the order of its offsets.

Joins no consumer group and writes nothing to the broker, so it may run beside a live run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from distrl.broker.reader import LogReader, RawRecord, decoded, retained
from distrl.broker.times import offsets_at
from distrl.broker.topics import TOPICS
from distrl.config import Config
from distrl.errors import WireError
from distrl.offline.topic_range import Range, RangeRequest, TopicRange, resolve
from distrl.types import Record

SAMPLE_RECORDS = 100
"""Records of a partition from which its size is estimated."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record of a topic range."""

    raw: RawRecord
    record: Record | None
    """None where it cannot be decoded, or the topic has no schema."""
    error: WireError | None = None
    """Why it cannot be decoded."""


class BrokerOffsets:
    """The offsets that the broker has of a topic, read when they are first needed (`topic_range.TopicOffsets`)."""

    def __init__(self, config: Config, topic: str) -> None:
        self._config, self._topic = config, topic

    @cached_property
    def offsets(self) -> Mapping[int, tuple[int, int]]:
        with LogReader(self._config, self._topic) as reader:
            return {p: (first, reader.ends[p]) for p, first in reader.next_offsets.items()}

    def at(self, at_ms: int) -> Mapping[int, int | None]:
        return offsets_at(self._config, self._topic, self.offsets, at_ms)

    def oldest(self, partition: int) -> int:
        first, end = self.offsets[partition]
        found = next(_raw(self._config, self._topic, Range(partition, first, end), most=1), None)
        return -1 if found is None else found.timestamp


def topic_range_of(config: Config, request: RangeRequest) -> TopicRange:
    """What `request` means now. Raises ConfigError (see `resolve`) and BrokerError."""
    return resolve(request, BrokerOffsets(config, request.topic))


def read(config: Config, topic_range: TopicRange) -> Iterator[Item]:
    """Every record of the range. Raises BrokerError, also where retention deletes a record meanwhile."""
    kind = TOPICS[topic_range.topic].record
    for each in topic_range.ranges:
        for raw in _raw(config, topic_range.topic, each):
            yield item_of(raw, kind)


def item_of(raw: RawRecord, kind: type[Record] | None) -> Item:
    """`raw` decoded as a `kind`; None: not decoded."""
    if kind is None:
        return Item(raw, None)
    try:
        return Item(raw, decoded(raw, kind))
    except WireError as error:
        return Item(raw, None, error)


def about_bytes(config: Config, topic_range: TopicRange) -> int:
    """Bytes of keys and values in the range, estimated from the first records of each partition."""
    total = 0.0
    for each in topic_range.ranges:
        sizes = []
        for raw in _raw(config, topic_range.topic, each, SAMPLE_RECORDS):
            sizes.append(len(raw.key or b"") + len(raw.value or b""))
            if len(sizes) == SAMPLE_RECORDS:
                break
        total += len(each) * sum(sizes) / max(1, len(sizes))
    return round(total)


def _raw(config: Config, topic: str, wanted: Range, most: int = 500) -> Iterator[RawRecord]:
    """The records of one range, in order. The other partitions are assigned at their ends."""
    if not len(wanted):
        return
    ends = {partition: end for partition, (_, end) in retained(config, topic).items()}
    start = {**ends, wanted.partition: wanted.first}
    with LogReader(config, topic, start) as reader:
        for batch in reader.to_end(most):
            for raw in batch:
                at = raw.position
                if at.partition == wanted.partition and at.offset < wanted.to:
                    yield raw
            if reader.next_offsets[wanted.partition] >= wanted.to:
                return
