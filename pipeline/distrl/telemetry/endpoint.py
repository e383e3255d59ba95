"""A small HTTP server on a thread of its own, which no client can block.

A probe without an answer gets the process killed, so each exchange has a total deadline. The servers of the standard
library have none: a client that sends a byte now and then would hold a thread of theirs for ever. Requests have no
body, answers are small, and a connection is closed after one exchange.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Final

from distrl.errors import ConfigError
from distrl.listen import listen
from distrl.supervised import SupervisedThread

log = logging.getLogger(__name__)

EXCHANGE_S: Final = 5.0
"""Longest time of one exchange, from the connection to the last byte of the answer."""
MOST_HEAD: Final = 16 * 1024
"""Bytes of the request line and the headers; Prometheus sends some 300."""
MOST_CLIENTS: Final = 64
"""Connections at a time; a further one closes the oldest, which is no probe's: an answer takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    content_type: str
    body: bytes


class Endpoint:
    """Serves `pages` at host and port. A context manager; the port is taken by the constructor.

    pages: given a path and the Accept header; called in the endpoint's thread. An exception of it is a status of 500.
    Raises ConfigError where the port cannot be listened on.
    """

    def __init__(self, host: str, port: int, pages: Callable[[str, str], Answer]) -> None:
        self._pages = pages
        self._socket = _listening(host, port)
        self._clients: dict[asyncio.StreamWriter, None] = {}
        """Oldest first."""
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._began = threading.Event()

    def __enter__(self) -> Endpoint:
        self._thread = SupervisedThread(self._run, "monitoring", lambda error: self._began.set())
        self._began.wait()
        self._thread.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(RuntimeError):  # the loop is closed: the thread has failed, and said so
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._exchange, sock=self._socket, limit=MOST_HEAD)
        self._began.set()
        try:
            await self._stop.wait()
        finally:
            server.close()  # the exchanges that are left are cancelled by the runner

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._clients) >= MOST_CLIENTS:
            oldest = next(iter(self._clients))
            del self._clients[oldest]
            oldest.transport.abort()
        self._clients[writer] = None
        try:
            async with asyncio.timeout(EXCHANGE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answered(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError, OSError):
            pass  # a bad client, or one that went away
        finally:
            writer.transport.abort()
            self._clients.pop(writer, None)

    def _answered(self, head: bytes) -> bytes:
        request, *lines = head.decode("latin-1").split("\r\n")
        method, _, rest = request.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0]
        if method not in ("GET", "HEAD"):
            return _encoded(Answer(405, "text/plain", b""), method)
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        try:
            answer = self._pages(path, headers.get("accept", ""))
        except Exception:
            log.exception("no answer to %.100r", path)
            answer = Answer(500, "text/plain", b"see the log of the process\n")
        return _encoded(answer, method)


def _encoded(answer: Answer, method: str) -> bytes:
    phrase = HTTPStatus(answer.status).phrase
    head = (
        f"HTTP/1.1 {answer.status} {phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else answer.body)


def _listening(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                "monitoring.port",
                f"{port} of {host} is taken by another process",
                "set monitoring.port to a free port; each process on a machine needs one of its own",
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise ConfigError(
                "monitoring.port", f"{port} may not be listened on by this user", "set monitoring.port to 1024 or more"
            ) from None
        raise ConfigError(
            "monitoring.host", f"{host} cannot be listened on ({error})", "name an address of this machine"
        ) from None
