"""Encodes and decodes records in Avro single-object encoding (C3 01, the schema's fingerprint, the Avro body).

`decode` is safe for untrusted bytes: work and memory are bounded by the payload's size, and it accepts only the
canonical form of Avro (wire/decoder.py). fastavro encodes records, and resolves older versions to the newest.
"""

from __future__ import annotations

import struct
from functools import cache
from io import BytesIO
from typing import Any, TypeVar

import fastavro
import msgspec

from distrl.errors import WireError
from distrl.types import Record
from distrl.wire.convert import NAMES, to_datum, to_record
from distrl.wire.decoder import Decoder, decoder
from distrl.wire.schemas import MARKER, Schema, catalogue

R = TypeVar("R", bound=Record)

HEADER_BYTES = len(MARKER) + 8

MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
"""A larger payload is refused undecoded. Records have about 10 KB; their Python objects may take 200 times as much."""

_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, AttributeError, KeyError, struct.error)


def encode(record: Record) -> bytes:
    """`record` as a payload, in the newest schema of its kind. Equal records give equal bytes.

    Raises WireError if a field's value does not fit its type (a lone surrogate, an integer over 64 bits), and for a
    record larger than MAX_PAYLOAD_BYTES.
    """
    kind = NAMES[type(record)]
    schema = catalogue().newest[kind]
    try:
        out = BytesIO()
        out.write(schema.header)
        fastavro.schemaless_writer(out, schema.parsed, to_datum(record))
    except _ENCODE_ERRORS as error:
        raise WireError(
            f"record {kind}", f"cannot be written as {schema} ({error})", "fix what made the record"
        ) from None
    payload = out.getvalue()
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise WireError(
            f"record {kind}",
            f"has {len(payload)} bytes, and {MAX_PAYLOAD_BYTES} is the most",
            "lower the task's max_steps, or shorten its instruction",
        )
    return payload


def decode(payload: bytes, expected: type[R]) -> R:
    """The record in `payload`, which must be an `expected`.

    Raises WireError for anything else: another kind, an unknown schema, a truncated or altered body, bytes after the
    end, and any body that is not in Avro's canonical form (one block per array, shortest numbers).
    """
    kind = NAMES[expected]
    schema = _schema_of(payload, kind)
    try:
        datum, end = _decoder(schema.header)(payload, HEADER_BYTES)
        if end > len(payload):
            raise EOFError("in a text")
    except (EOFError, IndexError, OverflowError, struct.error) as error:  # the third: a length beyond every index
        raise _refused(kind, f"the payload ends early, {len(payload)} bytes as {schema} ({error})") from None
    except ValueError as error:
        raise _refused(kind, f"the payload is garbage, {len(payload)} bytes as {schema} ({error})") from None
    if end < len(payload):
        raise _refused(
            kind, f"{len(payload)} bytes are not what {schema} writes for the record in them: it ends after {end}"
        )
    newest = catalogue().newest[kind]
    if newest is not schema:
        body = BytesIO(payload)
        body.seek(HEADER_BYTES)
        resolved: Any = fastavro.schemaless_reader(body, schema.parsed, newest.parsed)
        datum = resolved
    try:
        return to_record(datum, expected)
    except msgspec.ValidationError as error:
        raise _refused(kind, f"what {schema} says is no {expected.__name__} ({error})") from None


@cache
def _decoder(header: bytes) -> Decoder:
    return decoder(catalogue().by_fingerprint[header[len(MARKER) :]].parsed)


def has_unknown_schema(payload: bytes) -> bool:
    """Whether the header names a schema that this version does not have, such as one of a newer version."""
    mark = bytes(payload[len(MARKER) : HEADER_BYTES])
    return payload.startswith(MARKER) and len(payload) >= HEADER_BYTES and mark not in catalogue().by_fingerprint


def _schema_of(payload: bytes, kind: str) -> Schema:
    """The schema that the header names. Raises WireError if it names none, or one of another kind of record."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise _refused(kind, f"{len(payload)} bytes are over the {MAX_PAYLOAD_BYTES} that a record may have")
    if payload[:2] != MARKER:
        raise _refused(kind, f"starts with {payload[:2].hex(' ') or 'nothing'}, not with c3 01 of a single Avro object")
    if len(payload) < HEADER_BYTES:
        raise _refused(kind, f"ends in its header, after {len(payload)} of {HEADER_BYTES} bytes")
    mark = bytes(payload[2:HEADER_BYTES])
    schema = catalogue().by_fingerprint.get(mark)
    if schema is None:
        raise WireError(
            f"record {kind}",
            f"was written with a schema of fingerprint {mark.hex()}, which this reader does not know",
            "upgrade the reader to the writer's version of distrl (readers go first)",
        )
    if schema.record != kind:
        raise _refused(kind, f"is a {schema.record}")
    return schema


def _refused(kind: str, what: str) -> WireError:
    return WireError(
        f"record {kind}", what, "find who writes to the topic: `distrl tail trajectories` shows its records"
    )
