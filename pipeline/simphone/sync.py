"""adb's file service, `sync:`, version 1: what `adb push`, `adb pull`, `adb ls` and adbutils' sync speak.

A request is four letters, a little-endian length and a path: STAT, LIST, SEND, RECV; QUIT ends the service. SEND is
followed by DATA pieces and DONE, whose length is the file's time. The phone answers with the same letters, and with
OKAY or FAIL and a reason. After bytes that are not a request the stream is out of sync: FAIL, and the end.
"""

from __future__ import annotations

import posixpath
import stat
import struct
from collections.abc import Awaitable, Callable
from typing import Final

from simphone.files import ENCODING, LONGEST_PATH, FileError, FileNode, Files, plain
from simphone.transport import Stream

MOST_DATA: Final = 64 * 1024
"""Bytes of one DATA piece, in both directions."""
LONGEST_MODE: Final = 16
"""Characters of ",MODE" after the path of a SEND."""
HEADER: Final = struct.Struct("<4sI")
DIRECTORY_SIZE: Final = 4096


class OutOfStepError(Exception):
    """Bytes that are not a request; the text goes to the host, and the service ends."""


class Sync:
    """The service on one stream."""

    def __init__(self, files: Files, stream: Stream) -> None:
        self._files = files
        self._stream = stream
        self._sent: int | None = None
        """The time in the DONE of the last SEND; None until it has come."""
        self._requests: dict[bytes, Callable[[str], Awaitable[None]]] = {
            b"STAT": self._stat,
            b"LIST": self._list,
            b"SEND": self._send,
            b"RECV": self._receive,
        }

    async def serve(self) -> None:
        """Answer requests until QUIT, or until the host closes."""
        try:
            while True:
                word, size = await self._header()
                if word == b"QUIT":
                    return
                await self._answer(word, size)
        except OutOfStepError as error:
            await self._fail(str(error))

    async def _answer(self, word: bytes, size: int) -> None:
        request = self._requests.get(word)
        if request is None:
            raise OutOfStepError(f"this phone has no sync request {word!r}")
        if size > LONGEST_PATH + LONGEST_MODE:
            raise OutOfStepError(f"a path of {size} bytes; at most {LONGEST_PATH}")
        path = (await self._stream.read(size)).decode(*ENCODING)
        try:
            await request(path)
        except FileError as error:
            await self._fail(f"{path}: {error}")

    async def _stat(self, path: str) -> None:
        """Zeros for a missing path, as adbd reports a failed lstat."""
        try:
            entry = self._files.find(plain(path))
        except FileError:
            entry = None
        await self._stream.write(b"STAT" + (_facts(entry) if entry else bytes(12)))

    async def _list(self, path: str) -> None:
        """Only the end for a missing directory."""
        try:
            where = plain(path)
            held = [(".", self._files.at(where)), ("..", self._files.at(posixpath.dirname(where)))]
            held += self._files.held(where)
        except FileError:
            held = []
        answer = bytearray()
        for name, entry in held:
            encoded = name.encode(*ENCODING)
            answer += b"DENT" + _facts(entry) + struct.pack("<I", len(encoded)) + encoded
        await self._stream.write(bytes(answer) + b"DONE" + bytes(16))

    async def _receive(self, path: str) -> None:
        data = memoryview(self._files.read(plain(path)))
        most = max(1, self._stream.max_write // MOST_DATA) * MOST_DATA
        for start in range(0, len(data), most):
            block = data[start : start + most]
            pieces = (block[at : at + MOST_DATA] for at in range(0, len(block), MOST_DATA))
            await self._stream.write(b"".join(HEADER.pack(b"DATA", len(piece)) + piece for piece in pieces))
        await self._stream.write(HEADER.pack(b"DONE", 0))

    async def _send(self, request: str) -> None:
        """A failure is reported at once; the rest of the file is still read, since the host goes on sending."""
        path, comma, digits = request.rpartition(",")
        mode = int(digits) if comma and digits.isascii() and digits.isdecimal() else -1
        self._sent = None
        try:
            if mode < 0:
                raise FileError("a SEND says PATH,MODE")
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                raise FileError("only files can be sent to this phone")
            with self._files.receive(plain(path), mode) as upload:
                while (piece := await self._piece()) is not None:
                    upload.add(piece)
                upload.keep(self._sent or 0)
        except FileError as error:
            await self._fail(f"{path}: {error}")
            while self._sent is None:
                await self._piece()
        else:
            await self._stream.write(HEADER.pack(b"OKAY", 0))

    async def _piece(self) -> bytes | None:
        """The next DATA of a SEND; None at DONE."""
        word, size = await self._header()
        if word == b"DONE":
            self._sent = size
            return None
        if word != b"DATA" or size > MOST_DATA:
            raise OutOfStepError(f"{word!r} of {size} bytes where DATA of at most {MOST_DATA} or DONE belongs")
        return await self._stream.read(size)

    async def _header(self) -> tuple[bytes, int]:
        word, size = HEADER.unpack(await self._stream.read(HEADER.size))
        return word, size

    async def _fail(self, why: str) -> None:
        said = why.encode(*ENCODING)
        await self._stream.write(HEADER.pack(b"FAIL", len(said)) + said)


def _facts(entry: FileNode) -> bytes:
    size = DIRECTORY_SIZE if entry.is_directory else len(entry.data)
    return struct.pack("<III", entry.mode, size, entry.mtime)
