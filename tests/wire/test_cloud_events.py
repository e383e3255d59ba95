"""A record's CloudEvents headers, as CloudEvents' own Python SDK reads them."""

from __future__ import annotations

import copy

from cloudevents.core.bindings.kafka import KafkaMessage, from_binary
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from distrl.types import Record
from distrl.wire.cloud_events import HEADERS, event_headers
from distrl.wire.codec import encode
from hypothesis import given

from tests.wire.records import records


@given(records)
def test_the_sdk_reads_an_event_with_the_value_untouched(record: Record) -> None:
    value = encode(record)
    headers = event_headers(record, value, "demo-0", "some.topic")
    event = from_binary(KafkaMessage(dict(headers), b"key", value), JSONFormat(), CloudEvent)
    assert event.get_specversion() == "1.0"
    assert event.get_source() == "/distrl/demo-0/some.topic"
    assert event.get_type() == f"distrl.{type(record).__name__}"
    assert event.get_datacontenttype() == "application/avro"
    assert event.get_data() == value
    assert [name for name, _ in headers] == list(HEADERS)


@given(records, records)
def test_equal_values_have_equal_ids_and_others_do_not(one: Record, other: Record) -> None:
    def id_of(record: Record) -> bytes:
        return dict(event_headers(record, encode(record), "r", "tasks"))["ce_id"]

    assert (id_of(one) == id_of(other)) == (encode(one) == encode(other))
    assert id_of(one) == id_of(copy.deepcopy(one))
