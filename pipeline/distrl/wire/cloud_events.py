"""The CloudEvents 1.0 headers of a record: they tell other programs what a value is without decoding it. Pure.

They use the Kafka binding's binary content mode: the attributes are headers, and the value is unchanged. DistRL itself
never reads them: no fold, digest or decision depends on one.
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
"""Header -> its meaning. All are UTF-8."""


def event_headers(record: Record, value: bytes, run: str, topic: str) -> tuple[tuple[str, bytes], ...]:
    """The headers of `record`, which is encoded as `value`. topic: a key of TOPICS."""
    return (
        ("ce_specversion", b"1.0"),
        ("ce_id", hashlib.sha256(value).hexdigest()[:ID_CHARACTERS].encode()),
        ("ce_source", f"/distrl/{run}/{topic}".encode()),
        ("ce_type", catalogue().newest[NAMES[type(record)]].parsed["name"].encode()),
        ("content-type", CONTENT_TYPE.encode()),
    )
