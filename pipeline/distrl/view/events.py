"""Server-sent events: a page learns that its run's index has changed, and asks for what it shows.

A browser has one stream, however many of its windows show a run; the others ask for the same counts (lib/live.js).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from distrl.errors import DistrlError
from distrl.view import queries
from distrl.view.index import StaleIndexError
from distrl.view.runs import Runs, ShownRun

LOOK_S: Final = 0.5
"""How soon a change is sent; one message has all changes since the last."""
COMMENT_S: Final = 15.0
"""A comment after so long without a change: a proxy closes a connection that says nothing."""


def events_of(runs: Runs, closing: Callable[[], bool]) -> Callable[[Request], Awaitable[Response]]:
    """The handler. The stream ends when the browser goes, the server, or the run: a browser asks again by itself."""

    async def handler(request: Request) -> Response:
        shown = await run_in_threadpool(runs.get, request.path_params["run"])
        return StreamingResponse(_stream(shown, closing), media_type="text/event-stream")

    return handler


async def _stream(shown: ShownRun, closing: Callable[[], bool]) -> AsyncIterator[bytes]:
    sent, quiet = -1, 0.0
    while not (closing() or shown.follower.closed):
        shown.follower.touch()
        revision = shown.follower.revision
        if revision != sent:
            with suppress(StaleIndexError, DistrlError):  # other requests of the page name the error
                found = await run_in_threadpool(counts_of, shown)
                yield b"event: changed\ndata: " + msgspec.json.encode(found) + b"\n\n"
                sent, quiet = revision, 0.0
        if quiet >= COMMENT_S:
            yield b": still here\n\n"
            quiet = 0.0
        await asyncio.sleep(LOOK_S)
        quiet += LOOK_S


def counts_of(shown: ShownRun) -> dict[str, Any]:
    """What an event has. Raises StaleIndexError."""
    with shown.index() as index:
        return queries.counts(index)
