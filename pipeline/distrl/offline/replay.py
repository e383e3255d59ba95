"""A span of a topic read from the broker: decoded, in order, without a group, and alike each time.

Partition after partition, each in the order of its offsets. Nothing is written to the broker and no group is joined or
moved, so it may run beside a live run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.times import offsets_at
from distrl.broker.topics import TOPICS
from distrl.config import Config
from distrl.errors import WireError
from distrl.offline.span import Asked, Range, Span, resolve
from distrl.types import Record

SAMPLE_RECORDS = 100
"""Records of a partition that its size is guessed from."""


@dataclass(frozen=True, slots=True)
class Item:
    """One record of a span. record: None where it cannot be decoded (`error` says why), or the topic has no schema."""

    raw: RawRecord
    record: Record | None
    error: WireError | None = None


class TopicKept:
    """What the broker keeps of a topic, as `span.resolve` asks for it."""

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


def span_of(config: Config, asked: Asked) -> Span:
    """The span that `asked` means now. Raises ConfigError (see `resolve`) and BrokerError."""
    return resolve(asked, TopicKept(config, asked.topic))


def read(config: Config, span: Span) -> Iterator[Item]:
    """Every record of the span. Raises BrokerError, also where retention takes a record meanwhile."""
    kind = TOPICS[span.topic].record
    for each in span.ranges:
        for raw in _raw(config, span.topic, each):
            yield item_of(raw, kind)


def item_of(raw: RawRecord, kind: type[Record] | None) -> Item:
    """`raw` read as a `kind`; None: as the bytes that it is."""
    if kind is None:
        return Item(raw, None)
    try:
        return Item(raw, decoded(raw, kind))
    except WireError as error:
        return Item(raw, None, error)


def about_bytes(config: Config, span: Span) -> int:
    """Bytes of keys and values in the span, guessed from the first records of each partition."""
    total = 0.0
    for each in span.ranges:
        sizes = []
        for raw in _raw(config, span.topic, each, SAMPLE_RECORDS):
            sizes.append(len(raw.key or b"") + len(raw.value or b""))
            if len(sizes) == SAMPLE_RECORDS:
                break
        total += len(each) * sum(sizes) / max(1, len(sizes))
    return round(total)


def _raw(config: Config, topic: str, wanted: Range, most: int = 500) -> Iterator[RawRecord]:
    """The records of one range, in order. The other partitions are assigned at their ends and left alone."""
    if not len(wanted):
        return
    with LogReader(config, topic) as probe:
        start = {**probe.ends, wanted.partition: wanted.first}
    with LogReader(config, topic, start) as reader:
        for batch in reader.to_end(most):
            for raw in batch:
                at = raw.position
                if at.partition == wanted.partition and at.offset < wanted.to:
                    yield raw
            if reader.next_offsets[wanted.partition] >= wanted.to:
                return
