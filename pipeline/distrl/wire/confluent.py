"""Confluent's wire format for values; `kafka.framing` decides whether it is written. Pure.

    00 | id of the schema in a registry, 4 bytes, big-endian | Avro body

Clients of that registry can read it. A reader without the registry cannot use the id, so a header carries the
fingerprint that Avro's single-object encoding has in its place. Readers restore that encoding from both, byte for byte
(`distrl.broker.reader`); every digest, copy and decoder sees only the restored bytes.
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
    """Value and headers in Confluent's format. value: in single-object encoding."""
    mark = value[len(MARKER) : _SINGLE_OBJECT_BYTES].hex().encode()
    kept = [each for each in headers if each[0] != FINGERPRINT]
    return MAGIC + _ID.pack(schema_id) + value[_SINGLE_OBJECT_BYTES:], (*kept, (FINGERPRINT, mark))


def unframed(value: bytes | None, headers: Headers) -> tuple[bytes | None, Headers]:
    """The inverse of `framed`. Values in any other form are returned unchanged; the decoder refuses invalid ones."""
    if value is None or not value.startswith(MAGIC) or len(value) < _FRAME_BYTES:
        return value, headers
    marks = [text for name, text in headers if name == FINGERPRINT]
    if len(marks) != 1 or not _HEX.fullmatch(marks[0] or b""):
        return value, headers
    body = MARKER + bytes.fromhex((marks[0] or b"").decode()) + value[_FRAME_BYTES:]
    return body, tuple(each for each in headers if each[0] != FINGERPRINT)
