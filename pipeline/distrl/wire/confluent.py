"""Confluent's wire format, as a form in which a value travels; `kafka.framing` says whether it is written. Pure.

    00 | id of the schema in a registry, 4 bytes, big-endian | Avro body

Clients of that registry read it. The id says nothing to a reader without one, so the fingerprint that Avro's
single-object encoding has in its place goes into a header. From both follow the very bytes of that encoding, which is
what every digest, copy and decoder sees (`distrl.broker.reader`).
Format: https://docs.confluent.io/platform/current/schema-registry/fundamentals/serdes-develop/index.html#wire-format
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final

from distrl.wire.schemas import MARKER

Headers = Sequence[tuple[str, bytes | None]]

FINGERPRINT: Final = "distrl.schema"
"""The header: 16 hex digits, CRC-64-AVRO as in the value's single-object encoding."""
MAGIC: Final = b"\0"
_ID: Final = struct.Struct(">I")
_FRAME_BYTES: Final = len(MAGIC) + _ID.size
_SINGLE_OBJECT_BYTES: Final = len(MARKER) + 8
_HEX: Final = re.compile(rb"[0-9a-f]{16}")


def fingerprint_of(value: bytes | None) -> bytes | None:
    """The fingerprint in a value in single-object encoding, 8 bytes; None for any other value."""
    if value is None or not value.startswith(MARKER) or len(value) < _SINGLE_OBJECT_BYTES:
        return None
    return value[len(MARKER) : _SINGLE_OBJECT_BYTES]


def framed(value: bytes, headers: Headers, schema_id: int) -> tuple[bytes, Headers]:
    """`value`, in single-object encoding, and its headers as they are sent."""
    mark = value[len(MARKER) : _SINGLE_OBJECT_BYTES].hex().encode()
    kept = [each for each in headers if each[0] != FINGERPRINT]
    return MAGIC + _ID.pack(schema_id) + value[_SINGLE_OBJECT_BYTES:], (*kept, (FINGERPRINT, mark))


def unframed(value: bytes | None, headers: Headers) -> tuple[bytes | None, Headers]:
    """What `framed` was given; anything else as it is, for a decoder to refuse."""
    if value is None or not value.startswith(MAGIC) or len(value) < _FRAME_BYTES:
        return value, headers
    marks = [text for name, text in headers if name == FINGERPRINT]
    if len(marks) != 1 or not _HEX.fullmatch(marks[0] or b""):
        return value, headers
    body = MARKER + bytes.fromhex((marks[0] or b"").decode()) + value[_FRAME_BYTES:]
    return body, tuple(each for each in headers if each[0] != FINGERPRINT)
