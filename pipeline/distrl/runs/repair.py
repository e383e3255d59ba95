"""Removes unreadable records from the topic of a run's settings: no role starts while there is one.

The readable records are appended again, and then everything before them is deleted, since Kafka can delete only from
the start of a log. After a kill, the same call completes the repair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrl.broker.connect import failover_s, no_answer
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, RawRecord
from distrl.broker.removal import delete_before
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.runs.recorded import TOPIC, settings_in
from distrl.wire.codec import has_unknown_schema

PARTITION = 0
"""The topic's only partition, so its records have one order."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The readable and unreadable records of the topic. end: the offset behind the last record."""

    readable: Sequence[RawRecord]
    errors: Sequence[WireError]
    """One for each unreadable record, with its place."""
    end: int


def damage(config: Config) -> Damage:
    """Reads the topic. Raises BrokerError, and WireError for a record of a newer version, which is not damage."""
    readable, errors = list[RawRecord](), list[WireError]()
    with LogReader(config, TOPIC) as reader:
        for raw in (raw for batch in reader.to_end() for raw in batch):
            try:
                settings_in(raw, config.run)
            except WireError as error:
                if has_unknown_schema(raw.value or b""):
                    raise
                errors.append(error)
            else:
                readable.append(raw)
        return Damage(readable, errors, reader.next_offsets[PARTITION])


def repair(config: Config, found: Damage) -> None:
    """Leave only the readable records in the topic. Raises BrokerError where somebody has written since `found`."""
    name = topic_name(config.run, TOPIC)
    changed = BrokerError(name, "has a record more by now", "run the same command again")
    once: list[RawRecord] = []
    for raw in found.readable:  # a repair that was killed may have appended some already
        if all(raw.value != each.value for each in once):
            once.append(raw)
    longest_s = failover_s(config.kafka)
    try:
        with RecordProducer(config, "repair") as producer:
            for at, raw in enumerate(once):
                place = producer.publish_bytes(name, raw.key, raw.value, raw.headers, PARTITION).result(longest_s)
                if place is None or place.offset != found.end + at:
                    raise changed
    except TimeoutError:
        raise no_answer(name, longest_s) from None
    delete_before(config, TOPIC, PARTITION, found.end)
