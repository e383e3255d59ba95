"""Confluent's wire format: what was framed comes back to the byte, and nothing else is touched."""

from __future__ import annotations

import pytest
from distrl.types import Record
from distrl.wire.codec import encode
from distrl.wire.confluent import FINGERPRINT, Headers, fingerprint_of, framed, unframed
from hypothesis import given
from hypothesis import strategies as st
from wire.records import EXAMPLES, records

IDS = st.integers(0, 2**32 - 1)
OTHERS: st.SearchStrategy[Headers] = st.lists(
    st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3
).map(tuple)


@given(records, OTHERS, IDS)
def test_what_was_framed_comes_back_to_the_byte(record: Record, headers: Headers, number: int) -> None:
    value = encode(record)
    sent, described = framed(value, headers, number)
    assert sent == b"\0" + number.to_bytes(4, "big") + value[10:]
    assert unframed(sent, described) == (value, tuple(headers))


@given(st.none() | st.binary(max_size=24), OTHERS)
def test_a_value_without_our_header_stays_as_it_is(value: bytes | None, headers: Headers) -> None:
    assert unframed(value, headers) == (value, headers)


@pytest.mark.parametrize(
    "marks",
    [
        [],
        [b"0" * 15],
        [b"G" * 16],
        [b"0" * 17],
        [b"0" * 16 + b"\n"],
        [None],
        [b"0" * 16, b"1" * 16],
    ],
)
def test_a_header_that_names_no_single_fingerprint_is_not_followed(marks: list[bytes | None]) -> None:
    headers = tuple((FINGERPRINT, mark) for mark in marks)
    assert unframed(b"\0\0\0\0\1abc", headers) == (b"\0\0\0\0\1abc", headers)


def test_a_fingerprint_is_that_of_the_single_object_encoding() -> None:
    for record in EXAMPLES:
        assert fingerprint_of(encode(record)) == encode(record)[2:10]
    for value in (None, b"", b"\xc3\x01", b"\xc3\x01" + b"1" * 7, b"\0" * 20):
        assert fingerprint_of(value) is None
