"""JSON over HTTP with one total deadline per request, over persistent connections.

Common HTTP clients apply their time-out to each read, so a server that sends a byte a second holds them for hours; nor
do they limit name resolution. httpcore accepts our own network backend, in which every connect, handshake, read and
write ends at the request's deadline.
"""

from __future__ import annotations

import json
import select
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore2

from distrl.dial import dial

LARGEST_ANSWER: Final = 4 * 1024 * 1024
KEPT: Final = 16
KEPT_S: Final = 30.0
"""Number and lifetime of idle connections: servers close idle ones after about a minute."""

_deadline: ContextVar[float] = ContextVar("deadline")
"""Monotonic seconds, of this thread's request."""


class UnansweredError(Exception):
    """No complete answer: no connection, a broken connection, or the deadline."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """status: HTTP's. headers: names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """Thread-safe."""

    def __init__(self) -> None:
        self._pool = httpcore2.ConnectionPool(
            ssl_context=ssl.create_default_context(),
            max_connections=None,  # unlimited, so that no request waits for a connection
            max_keepalive_connections=KEPT,
            keepalive_expiry=KEPT_S,
            network_backend=_Network(),
        )

    def post(self, url: str, headers: Mapping[str, str], payload: Mapping[str, Any], timeout_s: float) -> HttpAnswer:
        """POST `payload` as JSON to an http or https URL. Raises UnansweredError at most `timeout_s` after the call."""
        return self._request("POST", url, headers, json.dumps(payload).encode(), timeout_s)

    def get(self, url: str, headers: Mapping[str, str], timeout_s: float) -> HttpAnswer:
        """GET of an http or https URL. Raises UnansweredError at most `timeout_s` after the call."""
        return self._request("GET", url, headers, None, timeout_s)

    def _request(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | None, timeout_s: float
    ) -> HttpAnswer:
        deadline = _deadline.set(time.monotonic() + timeout_s)
        try:
            with self._pool.stream(method, _parsed(url), headers=_headers(url, headers), content=content) as answer:
                names = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answer.headers}
                return HttpAnswer(answer.status, names, _whole(answer))
        except httpcore2.TimeoutException:
            raise UnansweredError(f"no whole answer within {timeout_s:.3g} s") from None
        except (httpcore2.LocalProtocolError, UnicodeError):  # its text may contain the key
            raise UnansweredError("HTTP takes no such request: see the endpoint's address and key") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise UnansweredError(str(error) or type(error).__name__) from None
        finally:
            _deadline.reset(deadline)


def _whole(answer: httpcore2.Response) -> bytes:
    body = bytearray()
    for part in answer.iter_stream():
        body += part
        if len(body) > LARGEST_ANSWER:
            raise UnansweredError(f"an answer of more than {LARGEST_ANSWER} bytes")
    return bytes(body)


def _parsed(url: str) -> httpcore2.URL:
    parts = urlsplit(url)
    host = (parts.hostname or "").encode("idna")
    return httpcore2.URL(scheme=parts.scheme, host=host, port=parts.port, target=parts.path or "/")


def _headers(url: str, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    """With Host as the URL has it: IPv6 in brackets, which the pool leaves out."""
    host = urlsplit(url).netloc.rpartition("@")[2].encode("idna")
    return [(b"Host", host), *((name.encode("ascii"), value.encode("latin-1")) for name, value in headers.items())]


class _Network(httpcore2.NetworkBackend):
    def connect_tcp(self, host: str, port: int, *_: object, **__: object) -> httpcore2.NetworkStream:
        with _mapped(httpcore2.ConnectTimeout, httpcore2.ConnectError):
            sock = dial(host, port, _left_s())
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Stream(sock)


class _Stream(httpcore2.NetworkStream):
    """A socket's timeout bounds a whole call, also a handshake or a `sendall`. The pool's timeouts are not used."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _mapped(httpcore2.ReadTimeout, httpcore2.ReadError):
            self._sock.settimeout(_left_s())
            return self._sock.recv(max_bytes)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _mapped(httpcore2.WriteTimeout, httpcore2.WriteError):
            self._sock.settimeout(_left_s())
            self._sock.sendall(buffer)

    def close(self) -> None:
        self._sock.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        try:
            with _mapped(httpcore2.ConnectTimeout, httpcore2.ConnectError):
                self._sock.settimeout(_left_s())
                return _Stream(ssl_context.wrap_socket(self._sock, server_hostname=server_hostname))
        except BaseException:
            self.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        """is_readable: queried by the pool; an idle connection that is readable was closed by the server."""
        if info != "is_readable":
            return None
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))


def _left_s() -> float:
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


@contextmanager
def _mapped(late: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """Raises socket errors as the pool's exceptions."""
    try:
        yield
    except TimeoutError as error:
        raise late(str(error)) from None
    except OSError as error:
        raise failed(str(error)) from None
