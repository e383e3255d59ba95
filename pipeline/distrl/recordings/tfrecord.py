"""The frames of a gzip'd TFRecord file, each verified.

    uint64 length | uint32 masked crc32c of length | data | uint32 masked crc32c of data      (little endian)

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/lib/io/record_writer.h. The package `tfrecord`
checks no CRC and allocates whatever a length says, so the frame is read here.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import google_crc32c

MAGIC: Final = b"\x1f\x8b"
"""A gzip file begins so."""
MOST_BYTES: Final = 256 << 20
"""Of one record: an episode of AndroidControl has up to 200 screenshots of 1 MB."""
_HEADER: Final = struct.Struct("<QI")
_FOOTER: Final = struct.Struct("<I")
_MASK: Final = 0xA282EAD8


def is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def records(path: Path) -> Iterator[bytes]:
    """The records of a file, in order.

    Raises ValueError, after those before it, for a record that is cut off, too large or has a wrong CRC, and for a
    broken gzip stream: nothing behind such a place can be told apart. Some 100 kB before the end of a broken stream are
    lost, too, as they are decompressed together. Raises OSError where it cannot be read.
    """
    with gzip.open(path, "rb") as file:
        while header := _read(file, _HEADER.size, start=True):
            length, crc = _HEADER.unpack(header)
            if masked_crc(header[:8]) != crc:
                raise ValueError("the CRC of its length is wrong")
            if length > MOST_BYTES:
                raise ValueError(f"it has {length} bytes, more than {MOST_BYTES}")
            data = _read(file, length)
            if masked_crc(data) != _FOOTER.unpack(_read(file, _FOOTER.size))[0]:
                raise ValueError("the CRC of its data is wrong")
            yield data


def masked_crc(data: bytes) -> int:
    """crc32c, rotated and with a constant added, so that a CRC of data that holds CRCs says something."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF


def _read(file: gzip.GzipFile, size: int, *, start: bool = False) -> bytes:
    """`size` bytes; at the `start` of a record, none where the file ends."""
    try:
        data = file.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"the gzip stream is broken ({error})") from None
    if len(data) < size and not (start and not data):
        raise ValueError(f"it is cut off: {len(data)} of {size} bytes are there")
    return data
