"""A chat endpoint on loopback that answers, and misbehaves, as it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = Callable[[BaseHTTPRequestHandler], None]


def chat(message: Mapping[str, Any], finish: str = "stop", usage: Any = None) -> bytes:
    told = {"choices": [{"message": dict(message), "finish_reason": finish}]}
    return json.dumps(told | ({} if usage is None else {"usage": usage})).encode()


def says(content: str, usage: Any = None) -> Reply:
    return body(chat({"role": "assistant", "content": content}, usage=usage))


def verdict(status: str, usage: Any = None) -> Reply:
    return says(json.dumps({"reason": "because", "status": status}), usage)


def validity(valid: bool, usage: Any = None) -> Reply:
    return says(json.dumps({"reason": "because", "valid": valid}), usage)


def body(data: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    def reply(to: BaseHTTPRequestHandler) -> None:
        to.send_response(status)
        for name, value in (headers or {}).items():
            to.send_header(name, value)
        to.send_header("Content-Length", str(len(data)))
        to.end_headers()
        to.wfile.write(data)

    return reply


def hangs_up(to: BaseHTTPRequestHandler) -> None:
    """The connection ends without a word."""
    to.close_connection = True


def thinks(answer: Callable[[dict[str, Any]], str]) -> Reply:
    """A model: what it says depends on what it is asked, and on nothing else."""

    def reply(to: BaseHTTPRequestHandler) -> None:
        says(answer(to.asked))(to)  # type: ignore[attr-defined]

    return reply


@dataclass
class Server:
    """replies: one for each request in turn; the last one is repeated. requests: what came, decoded. ports: of whoever
    sent them, one for each connection.
    """

    url: str
    replies: list[Reply]
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def drips(self, to: BaseHTTPRequestHandler) -> None:
        """A byte of a header at a time, for ever: each read succeeds."""
        to.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not self.stopped.wait(0.05):
            to.wfile.write(b"a")
            to.wfile.flush()

    def drips_its_body(self, to: BaseHTTPRequestHandler) -> None:
        to.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not self.stopped.wait(0.05):
            to.wfile.write(b" ")
            to.wfile.flush()


@contextmanager
def serving(*replies: Reply, keeps: bool = False) -> Iterator[Server]:
    """keeps: connections stay open after an answer, until the server is told to hang up."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keeps else "HTTP/1.0"

        def do_POST(self) -> None:
            self.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            told.requests.append(self.asked)
            told.ports.append(self.client_address[1])
            told.headers.append({name.lower(): value for name, value in self.headers.items()})
            reply = told.replies.pop(0) if len(told.replies) > 1 else told.replies[0]
            try:
                reply(self)
            except OSError:  # whoever asked has gone
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None:
            """Not to standard error."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        told = Server(f"http://127.0.0.1:{server.server_address[1]}/v1", list(replies))
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield told
        finally:
            told.stopped.set()
            server.shutdown()
            thread.join()
