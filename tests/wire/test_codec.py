"""The codec: equal to the reference implementation byte for byte, and safe for bytes that anyone wrote."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import Any

import avro.io
import avro.schema
import factories
import pytest
from distrl.errors import WireError
from distrl.types import Heartbeat, Record, Task, Trajectory
from distrl.wire.codec import HEADER_BYTES, MAX_PAYLOAD_BYTES, decode, encode
from distrl.wire.schemas import catalogue, schema_folder
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.mutants import varint
from tests.wire.records import EXAMPLES, KINDS, TASK, TRAJECTORY, plain, records

REFERENCE = {
    kind: avro.schema.parse((schema_folder() / f"{catalogue().newest[kind.__name__.lower()]}.avsc").read_text())
    for kind in KINDS
}
PAYLOADS = [(type(record), encode(record)) for record in EXAMPLES]


def reference_payload(record: Record) -> bytes:
    """What the Avro project's own Python package writes."""
    schema = REFERENCE[type(record)]
    out = BytesIO()
    avro.io.DatumWriter(schema).write(plain(record), avro.io.BinaryEncoder(out))
    return b"\xc3\x01" + schema.fingerprint("CRC-64-AVRO") + out.getvalue()


def decoded(payload: bytes, kind: type[Record]) -> Record | None:
    """What `payload` decodes to, None where it is refused; any error but WireError fails the test."""
    try:
        return decode(payload, kind)
    except WireError:
        return None


def assert_refused_or_exact(payload: bytes, kind: type[Record]) -> None:
    """Whatever is read from `payload` says all that is in it. (Maps may come in any order, hence the lengths.)"""
    record = decoded(payload, kind)
    if record is not None:
        assert len(encode(record)) == len(payload)


@settings(max_examples=300, deadline=None)
@given(records)
def test_bytes_are_those_of_the_reference_implementation_and_come_back(record: Record) -> None:
    payload = encode(record)
    assert payload == reference_payload(record)
    assert decode(payload, type(record)) == record


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_one_of_each_kind_comes_back_and_is_the_reference_s(record: Record) -> None:
    payload = encode(record)
    assert payload == reference_payload(record)
    assert decode(payload, type(record)) == record


def test_the_order_of_a_map_changes_no_byte() -> None:
    one = replace(TASK, params={"a": "1", "b": "2"})
    two = replace(TASK, params={"b": "2", "a": "1"})
    assert encode(one) == encode(two)


def test_tuples_and_enums_come_back_as_such() -> None:
    found = decode(encode(TRAJECTORY), Trajectory)
    assert type(found.steps) is tuple
    assert type(found.steps[0].prompt_ids) is tuple
    assert type(found.outcome) is type(TRAJECTORY.outcome)
    assert type(found.task.split) is type(TASK.split)
    assert type(found.steps[0].action.kind) is type(TRAJECTORY.steps[0].action.kind)


def test_numbers_that_are_none_come_back() -> None:
    beat = Heartbeat("p", "worker", 1, None, None, {"a": math.nan, "b": math.inf, "c": -0.0})
    metrics = decode(encode(beat), Heartbeat).metrics
    assert math.isnan(metrics["a"])
    assert metrics["b"] == math.inf
    assert math.copysign(1, metrics["c"]) == -1


@pytest.mark.parametrize(
    "bad",
    [
        replace(TASK, max_steps=2**63),
        replace(TASK, max_steps=-(2**63) - 1),
        replace(TASK, instruction="a lone surrogate \ud800"),
        replace(TASK, instruction=None),
        replace(TASK, split="somewhere"),
        replace(TASK, params={"a": 1}),
        replace(TASK, params={1: "a", "b": "c"}),
        replace(TRAJECTORY, steps=(None,)),
        replace(TRAJECTORY, finished_at="now"),
    ],
)
def test_a_record_that_its_types_do_not_allow_is_refused(bad: Any) -> None:
    with pytest.raises(WireError, match=f"record {type(bad).__name__.lower()}: cannot be written"):
        encode(bad)


def test_a_record_that_is_too_large_is_refused() -> None:
    with pytest.raises(WireError, match="is the most"):
        encode(replace(TASK, setup="x" * MAX_PAYLOAD_BYTES))


def test_an_unknown_schema_is_an_error_that_says_to_upgrade() -> None:
    payload = bytearray(encode(TASK))
    payload[2] ^= 1
    with pytest.raises(WireError, match=payload[2:10].hex()) as caught:
        decode(bytes(payload), Task)
    assert "upgrade" in caught.value.hint


def test_another_kind_is_an_error_that_says_which() -> None:
    with pytest.raises(WireError, match="record trajectory: is a task") as caught:
        decode(encode(TASK), Trajectory)
    assert "distrl tail trajectories" in caught.value.hint


@pytest.mark.parametrize(
    ("payload", "what"),
    [
        (b"", "starts with nothing"),
        (b"\xc3", "starts with c3,"),
        (b"{}", "starts with 7b 7d"),
        (b"\x00\x00\x00\x00\x01abcdef", "starts with 00 00"),
        (b"\xc3\x01\x00", "ends in its header"),
        (encode(TASK)[:HEADER_BYTES], "ends early"),
        (encode(TASK)[:-1], "ends early"),
        (encode(TASK) + b"\0", "are not what task/v1 writes"),
        (b"\xc3\x01" + bytes(MAX_PAYLOAD_BYTES), "over the"),
    ],
)
def test_bytes_that_are_no_record_are_an_error_that_says_what_they_are(payload: bytes, what: str) -> None:
    with pytest.raises(WireError, match="record task: ") as caught:
        decode(payload, Task)
    assert what in caught.value.what
    assert "distrl tail" in caught.value.hint


@pytest.mark.parametrize(("kind", "payload"), PAYLOADS)
def test_every_truncation_is_refused(kind: type[Record], payload: bytes) -> None:
    assert [cut for cut in range(len(payload)) if decoded(payload[:cut], kind) is not None] == []


BOMBS = [varint(n) for n in (-1, -2, -3, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1)] + [
    b"\xff" * 9 + b"\x01",
    b"\x80" * 40 + b"\x00",
    b"\x80\x00",
    b"\xff" * 5000,
]


def bombed(payload: bytes) -> Iterator[bytes]:
    """`payload` with every byte of its body in turn replaced by a length or index that no record has."""
    for at in range(HEADER_BYTES, len(payload)):
        for bomb in BOMBS:
            yield payload[:at] + bomb + payload[at + 1 :]


@pytest.mark.parametrize(("kind", "payload"), PAYLOADS)
def test_a_length_that_claims_anything_is_refused_and_costs_nothing(kind: type[Record], payload: bytes) -> None:
    tracemalloc.start()
    try:
        for changed in bombed(payload):
            assert_refused_or_exact(changed, kind)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024


def test_forms_that_fastavro_forgives_are_refused() -> None:
    task = plain(TASK)
    head = b"".join(varint(len(task[name].encode())) + task[name].encode() for name in ("task_id", "suite", "family"))
    payload = encode(TASK)
    split_at = HEADER_BYTES + len(head)
    assert payload[HEADER_BYTES:split_at] == head
    assert payload[split_at : split_at + 1] == varint(1)
    for index in (b"\x01", b"\x03", b"\x05", b"\x82\x00"):  # -1, -2, -3: from the end; and 1 in two bytes
        assert decoded(payload[:split_at] + index + payload[split_at + 1 :], Task) is None
    true = encode(replace(TRAJECTORY, is_expert=True, validity_source="", unmet=(), final_state="", reason=""))
    at = len(true) - 8  # before the two times, a text, another boolean, a list and two texts: all empty, a byte each
    assert true[at : at + 1] == b"\x01"
    assert decoded(true[:at] + b"\x02" + true[at + 1 :], Trajectory) is None


@st.composite
def mutations(draw: st.DrawFn) -> tuple[type[Record], bytes]:
    """A good payload, cut, spliced and overwritten a few times."""
    kind, payload = draw(st.sampled_from(PAYLOADS))
    data = bytearray(payload)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(HEADER_BYTES, max(HEADER_BYTES, len(data))))
        length = draw(st.integers(0, 12))
        new = draw(st.binary(max_size=12) | st.sampled_from(BOMBS) | st.integers(-(2**63), 2**63 - 1).map(varint))
        data[at : at + length] = new
    return kind, bytes(data)


@settings(max_examples=3000, deadline=None)
@given(mutations())
def test_altered_payloads_are_refused_or_read_exactly(case: tuple[type[Record], bytes]) -> None:
    kind, payload = case
    assert_refused_or_exact(payload, kind)


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from(KINDS), st.binary(max_size=200), st.booleans())
def test_any_bytes_are_refused_or_read_exactly(kind: type[Record], data: bytes, with_header: bool) -> None:
    header = catalogue().newest[kind.__name__.lower()].header if with_header else b""
    assert_refused_or_exact(header + data, kind)


def test_a_text_that_claims_more_bytes_than_an_index_can_count_is_refused() -> None:
    """A number that follows it would be read from beyond every index."""
    text = "a text that is nowhere else"
    made = factories.trajectory(factories.task("a"), [factories.step(action_text=text)])
    whole = encode(made)
    at = whole.index(text.encode())
    claimed = whole[: at - len(varint(len(text)))] + varint(2**63 - 1) + text.encode()
    with pytest.raises(WireError, match="the payload ends early"):
        decode(claimed, Trajectory)
