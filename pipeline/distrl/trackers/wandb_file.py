"""How far a .wandb file is written, while Weights & Biases' service writes it.

It is in LevelDB's log format: blocks of 32 KiB, in each of them pieces of records, each record a protobuf message. The
package has no reader of it in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # chosen by protobuf's version

HEADER: Final = 7
"""Bytes of the file's header and of each piece's: a checksum (4), the piece's length (2) and its type (1)."""
BLOCK: Final = 32_768
WHOLE, FIRST, LAST = 1, 2, 4
"""Types of pieces: a record, its beginning, its end. One between these two has another."""


class WandbFile:
    """The file of one run. It only grows, so each look reads what is new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = HEADER
        """Where the next piece begins."""
        self._begun = b""
        """The pieces of a record whose last one is not there."""
        self._last = -1

    def last_step(self) -> int:
        """The step of the last row that is in the file; -1 where there is none. Raises OSError."""
        for data in self._records():
            record = Record()
            record.ParseFromString(data)
            if record.HasField("history"):
                self._last = record.history.step.num
        return self._last

    def _records(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            new = file.read()
        start = self._at
        while True:
            room = BLOCK - self._at % BLOCK
            if room < HEADER:  # no piece fits: the rest of the block is empty
                self._at += room
            head = self._at - start
            body = head + HEADER
            end = body + int.from_bytes(new[head + 4 : head + 6], "little")
            if len(new) < body or len(new) < end:
                return
            self._begun = new[body:end] if new[head + 6] in (WHOLE, FIRST) else self._begun + new[body:end]
            self._at = start + end
            if new[head + 6] in (WHOLE, LAST):
                yield self._begun
