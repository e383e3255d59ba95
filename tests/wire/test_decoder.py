"""The decoder made from a schema, against fastavro: the same datum, and refused what fastavro would write otherwise."""

from __future__ import annotations

from typing import Any

import fastavro.schema
import pytest
from distrl.errors import WireError
from distrl.wire.codec import HEADER_BYTES, encode
from distrl.wire.decoder import Decoder, decoder
from distrl.wire.schemas import Schema, catalogue
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.mutants import DECODERS, by_decoder, by_writing_again, varint
from tests.wire.records import records
from tests.wire.write_fixtures import fixture

NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70) | st.integers(8180, 8200)

landed = pytest.mark.parametrize("schema", catalogue().by_fingerprint.values(), ids=str)


@settings(max_examples=300, deadline=None)
@given(records.map(encode))
def test_it_reads_what_fastavro_reads(payload: bytes) -> None:
    header, body = payload[:HEADER_BYTES], payload[HEADER_BYTES:]
    found = by_decoder(DECODERS[header], body)
    assert found is not None
    assert found == by_writing_again(catalogue().by_fingerprint[header[2:]], body)


@landed
def test_every_version_that_has_landed_is_read(schema: Schema) -> None:
    body = fixture(schema).read_bytes()[HEADER_BYTES:]
    found = by_decoder(DECODERS[schema.header], body)
    assert found is not None
    assert found == by_writing_again(schema, body)


@landed
def test_each_byte_changed_to_any_other_is_refused_or_read_as_fastavro_would_write_it(schema: Schema) -> None:
    """A body holds every kind of value, so that each index, length, count, boolean and end of a block is tried."""
    body = fixture(schema).read_bytes()[HEADER_BYTES:]
    for at in range(len(body)):
        for byte in {*range(0, 12), 62, 63, 64, 126, 127, 128, 129, 130, 192, 254, 255, body[at] ^ 1}:
            changed = body[:at] + bytes([byte]) + body[at + 1 :]
            assert by_decoder(DECODERS[schema.header], changed) == by_writing_again(schema, changed), (at, byte)


def of(kind: Any) -> Schema:
    """A schema with one field of that type, and a text after it."""
    parsed = fastavro.schema.parse_schema(
        {"type": "record", "name": "Some", "fields": [{"name": "a", "type": kind}, {"name": "b", "type": "string"}]}
    )
    assert isinstance(parsed, dict)
    return Schema("some", 1, parsed, b"")


LONGS, WORDS = of({"type": "array", "items": "long"}), of({"type": "map", "values": "string"})
OTHERS = [of("long"), of("bytes"), of(["null", {"type": "array", "items": "boolean"}])]
MADE = [(schema, decoder(schema.parsed)) for schema in (LONGS, WORDS, *OTHERS)]
of_longs, of_words = (decode for _, decode in MADE[:2])


@st.composite
def written(draw: st.DrawFn) -> bytes:
    """A number, in the shortest form or another: padded, cut, with bits that 64 do not hold."""
    form = bytearray(varint(draw(NUMBERS)))
    for _ in range(draw(st.integers(0, 3))):
        form[-1] |= 128
        form.append(draw(st.sampled_from([0, 0, 1, 2, 127])))
    form[-1] = draw(st.sampled_from([form[-1], form[-1], form[-1] ^ 2, form[-1] | 2]))
    return bytes(form)


@settings(max_examples=1500, deadline=None)
@given(st.sampled_from(MADE), st.lists(written() | st.binary(max_size=3), max_size=6))
def test_numbers_counts_and_blocks_in_any_form_are_refused_or_canonical(
    made: tuple[Schema, Decoder], parts: list[bytes]
) -> None:
    schema, decode = made
    for body in (b"".join(parts), b"".join([*parts, b"\0"]), b"".join([*parts, b"\0\0"])):
        assert by_decoder(decode, body) == by_writing_again(schema, body)


@given(st.lists(NUMBERS, max_size=200))
def test_an_array_of_any_length_is_one_block(numbers: list[int]) -> None:
    items = [varint(number) for number in numbers]
    body = (varint(len(items)) + b"".join(items) if items else b"") + b"\0" + b"\0"
    assert by_decoder(of_longs, body) == repr({"a": numbers, "b": ""})
    for cut in range(1, len(items)):
        blocks = b"".join(varint(len(part)) + b"".join(part) for part in (items[:cut], items[cut:]))
        assert by_decoder(of_longs, blocks + b"\0" + b"\0") is None


def test_a_negative_count_with_its_size_is_another_form_of_the_same_array() -> None:
    assert by_decoder(of_longs, varint(2) + b"\x02\x04" + b"\0\0") == repr({"a": [1, 2], "b": ""})
    assert by_decoder(of_longs, varint(-2) + varint(2) + b"\x02\x04" + b"\0\0") is None


def test_a_key_that_is_there_twice_is_refused() -> None:
    once, again = b"\x02k\x02v", b"\x02k\x02w"
    assert by_decoder(of_words, varint(1) + once + b"\0\0") == repr({"a": {"k": "v"}, "b": ""})
    assert by_decoder(of_words, varint(2) + once + again + b"\0\0") is None


@pytest.mark.parametrize("kind", ["float", "int", ["null", "long", "string"], ["long", "null"]])
def test_a_type_that_no_record_has_is_refused_when_the_decoder_is_made(kind: Any) -> None:
    with pytest.raises(WireError, match="no record had"):
        decoder(of(kind).parsed)
