"""One HTTP POST of JSON, with one total deadline: the clients at hand count each read anew, and a server that drips a
byte a second holds them for hours.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from distrl.dial import dial

LARGEST_ANSWER: Final = 4 * 1024 * 1024


class UnansweredError(Exception):
    """No whole answer came: no connection, a connection that broke, or the deadline."""


@dataclass(frozen=True, slots=True)
class Answer:
    """status: of HTTP. headers: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def post(url: str, headers: Mapping[str, str], payload: Mapping[str, Any], timeout_s: float) -> Answer:
    """POST `payload` as JSON to an http or https URL. Raises UnansweredError at most `timeout_s` after the call."""
    deadline = time.monotonic() + timeout_s
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    host, port = parts.hostname or "", parts.port or (443 if secure else 80)
    connection = http.client.HTTPConnection(host, port)
    late = threading.Event()
    try:
        connection.sock = sock = _connected(host, port, timeout_s, secure)
        cut = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, (sock, late))
        cut.daemon = True
        cut.start()
        try:
            if isinstance(sock, ssl.SSLSocket):
                sock.do_handshake()
            connection.request("POST", parts.path or "/", json.dumps(payload).encode(), dict(headers))
            answer = connection.getresponse()
            body = answer.read(LARGEST_ANSWER + 1)
        finally:
            cut.cancel()
    except (OSError, http.client.HTTPException) as error:
        raise UnansweredError(_late(timeout_s) if late.is_set() else str(error) or type(error).__name__) from None
    finally:
        connection.close()
    if late.is_set():  # what was read is a part
        raise UnansweredError(_late(timeout_s))
    if len(body) > LARGEST_ANSWER:
        raise UnansweredError(f"an answer of more than {LARGEST_ANSWER} bytes")
    return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, body)


def _connected(host: str, port: int, timeout_s: float, secure: bool) -> socket.socket:
    """A socket; the handshake of a secure one is still to be made, since it counts against the deadline as well."""
    sock = dial(host, port, timeout_s)
    if not secure:
        return sock
    return ssl.create_default_context().wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)


def _cut(sock: socket.socket, late: threading.Event) -> None:
    """End a connection under whoever reads from it, who then gets an error or the end of what came."""
    late.set()
    with suppress(OSError):  # it is closed already
        sock.shutdown(socket.SHUT_RDWR)


def _late(timeout_s: float) -> str:
    return f"no whole answer within {timeout_s:.3g} s"
