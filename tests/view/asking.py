"""Asks a server of `distrl view` over HTTP, with the headers that a test names and no others."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import Any

MOST_S = 30.0


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(port: int, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """headers: with `_` for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MOST_S)
    try:
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
    finally:
        connection.close()
