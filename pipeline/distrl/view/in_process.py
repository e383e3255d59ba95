"""Asks an ASGI application without a server or a socket: GET, one request at a time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import unquote, urlsplit

from starlette.types import ASGIApp, Message


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: bytes


class InProcess:
    """A context manager. What a handler raises beyond the application's own errors is raised here, too."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._runner = asyncio.Runner()

    def __enter__(self) -> InProcess:
        self._runner.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runner.__exit__(kind, error, at)

    def get(self, address: str) -> Reply:
        """address: a path, percent-encoded, and a query, as after the host of a URL."""
        return self._runner.run(self._get(address))

    async def _get(self, address: str) -> Reply:
        parts = urlsplit(address)
        status, body = 500, bytearray()

        asked = asyncio.Event()

        async def receive() -> Message:
            if asked.is_set():
                await asyncio.Event().wait()  # the client stays: a stream that waits for its going is not ended
            asked.set()
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif message["type"] == "http.response.body":
                body.extend(message.get("body", b""))

        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "root_path": "",
            "query_string": parts.query.encode(),
            "headers": [(b"host", b"export")],
            "client": None,
            "server": None,
        }
        await self._app(scope, receive, send)
        return Reply(status, bytes(body))
