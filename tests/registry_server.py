"""A stand-in for a schema registry on loopback: as much of Confluent's REST interface as its own client asks for to
register a schema and to read one by its id. It checks no compatibility.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

Json = dict[str, Any]


@dataclass
class Registry:
    """user: NAME:PASSWORD that it wants; None: nobody's."""

    user: str | None = None
    url: str = ""
    subjects: list[str] = field(default_factory=list)
    """Of each registration, in order."""
    schemas: list[str] = field(default_factory=list)
    """Each once; ids begin at 1."""

    def register(self, subject: str, schema: str) -> int:
        self.subjects.append(subject)
        if schema not in self.schemas:
            self.schemas.append(schema)
        return self.schemas.index(schema) + 1


@contextmanager
def serving(registry: Registry) -> Iterator[Registry]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked = re.fullmatch(r"/subjects/([^/]+)/versions", urlsplit(self.path).path)
            self._answer(asked and (lambda: {"id": registry.register(unquote(asked[1]), body["schema"])}))

        def do_GET(self) -> None:
            asked = re.fullmatch(r"/schemas/ids/([0-9]+)", urlsplit(self.path).path)
            self._answer(asked and (lambda: {"schema": registry.schemas[int(asked[1]) - 1]}))

        def _answer(self, found: Callable[[], Json] | None) -> None:
            """None: there is no such resource, as of the names that a client asks for beside ids."""
            if registry.user is not None and self.headers["Authorization"] != _basic(registry.user):
                status, answer = 401, {"error_code": 40101, "message": "who are you?"}
            elif found is None:
                status, answer = 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
            else:
                status, answer = 200, found()
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def _basic(user: str) -> str:
    return f"Basic {base64.b64encode(user.encode()).decode()}"
