"""Packs a state into bytes for a snapshot, every field of its dataclass, and unpacks it.

The bytes are untrusted: a state is accepted only if it has the declared types, is bounded in size, and is exactly what
this code would write for it. So a state with a field more or less than today's, or in another order, is refused, too.
"""

from __future__ import annotations

import zlib
from typing import Any, Final, Protocol, TypeVar

import msgspec

from distrl.errors import WireError

S = TypeVar("S")

FORMAT: Final = 5
"""Raise it whenever a fold gives another state for the same log. A field that is added or removed is noticed without
it."""

UNPACKED_BYTES: Final = 32 * 1024 * 1024
"""A larger state is refused unread. Those of 10^6 trajectories pack to 15 KB; the ids in them are bitmaps."""

LEVEL: Final = 6


class Packed(Protocol):
    """A part of a state that converts itself to plain values, such as an IdSet."""

    def to_json(self) -> Any: ...
    @classmethod
    def parse(cls, saved: Any, most: int) -> Packed:
        """The inverse of `to_json()`. Raises ValueError for anything else, and for more than `most` items."""
        ...


def pack(state: object) -> bytes:
    """`state`, a dataclass with slots (without, msgspec leaves out what has its default) of plain values, records
    and `Packed`. MessagePack, as it has NaN, bytes and keys of any type. Raises WireError where nobody would unpack it.
    """
    assert hasattr(state, "__slots__")
    plain = _encoded(state)
    if len(plain) > UNPACKED_BYTES:
        raise WireError(
            f"snapshot of {type(state).__name__}",
            f"has {len(plain)} bytes, more than the {UNPACKED_BYTES} that are read",
            "none is needed: a start reads the topics instead",
        )
    return zlib.compress(plain, LEVEL)


def unpack(data: bytes, kind: type[S], most: int) -> S:
    """The inverse of `pack`. most: each Packed has at most so many items. Raises WireError for anything else."""
    unzip = zlib.decompressobj()

    def of(expected: type[Packed], value: Any) -> Packed:
        return expected.parse(value, most)

    try:
        plain = unzip.decompress(data, UNPACKED_BYTES)
        if not unzip.eof or unzip.unused_data:
            raise ValueError(f"it is cut short, or has more than {UNPACKED_BYTES} bytes")
        state = msgspec.msgpack.decode(plain, type=kind, dec_hook=of)
        if _encoded(state) != plain:
            raise ValueError("this version of distrl would write other bytes for it")
    except (zlib.error, msgspec.DecodeError, ValueError, OverflowError, RecursionError) as error:
        raise WireError(
            f"snapshot of {kind.__name__}",
            f"cannot be read ({error})",
            "none is needed: the feeder's next one replaces it",
        ) from None
    return state


def _encoded(state: object) -> bytes:
    return msgspec.msgpack.encode(state, enc_hook=_plain)


def _plain(value: Packed) -> Any:
    return value.to_json()
