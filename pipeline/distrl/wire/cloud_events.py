"""The CloudEvents 1.0 headers of a record, so that brokers' tools and other programs know what a value is unread. Pure.

Binary content mode of the Kafka binding: the attributes are headers and the value stays as it is. Nothing here reads
them: no fold, no digest and no decision follows from one.
Specification: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
"""

from __future__ import annotations

import hashlib
from typing import Final

from distrl.types import Record
from distrl.wire.convert import NAMES
from distrl.wire.schemas import catalogue

CONTENT_TYPE: Final = "application/avro"
ID_CHARACTERS: Final = 32
"""128 bits: two of 10^9 different records share an id with probability 10^-21."""

HEADERS: Final = {
    "ce_specversion": "CloudEvents version of these headers: 1.0",
    "ce_id": f"the first {ID_CHARACTERS} hex digits of the SHA-256 of the value: equal records have equal ids",
    "ce_source": "where the record was first written: /distrl/RUN/TOPIC; a copy of a run keeps it",
    "ce_type": "the full name of the schema, as distrl.Trajectory; the value's fingerprint says which version",
    "content-type": CONTENT_TYPE,
}
"""Each header and what it says. All are UTF-8."""


def event_headers(record: Record, value: bytes, run: str, topic: str) -> tuple[tuple[str, bytes], ...]:
    """The headers of `record`, whose bytes are `value`. topic: a key of TOPICS."""
    return (
        ("ce_specversion", b"1.0"),
        ("ce_id", hashlib.sha256(value).hexdigest()[:ID_CHARACTERS].encode()),
        ("ce_source", f"/distrl/{run}/{topic}".encode()),
        ("ce_type", catalogue().newest[NAMES[type(record)]].parsed["name"].encode()),
        ("content-type", CONTENT_TYPE.encode()),
    )
