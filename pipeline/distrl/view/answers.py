"""Answers of the API: JSON, and errors that say what is wrong and what fixes it."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from distrl.errors import BrokerError, ConfigError, DistrlError, StoreError, WireError
from distrl.store.objects import CorruptObjectError, MissingObjectError


class NotThereError(DistrlError):
    """A run, an episode, a step or a version that is not there."""


def answer(value: Any, status: int = 200) -> Response:
    """A JSON response. NaN and infinities become null, so that every client can parse it."""
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def refusal(status: int, error: str, fix: str) -> Response:
    return answer({"error": error, "fix": fix}, status)


def explained(error: DistrlError) -> Response:
    """The response to an expected failure, with a status that says whether the request or the server side caused it."""
    match error:
        case NotThereError() | MissingObjectError():
            status = 404
        case ConfigError():
            status = 400
        case WireError() | CorruptObjectError():
            status = 422
        case BrokerError() | StoreError():
            status = 503
        case _:
            status = 500
    return refusal(status, f"{error.where}: {error.what}", error.hint)
