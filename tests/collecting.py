"""A collector: takes OTLP over HTTP, as OpenTelemetry's own messages read it, and keeps the spans."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue


@dataclass(frozen=True)
class Sent:
    """A span. Times in ms since the epoch; ids are hex, `parent` is empty for the first span of a trace."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    began: float
    ended: float
    about: dict[str, str | int | float]


@dataclass
class Collector:
    url: str
    _spans: list[Sent] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def spans(self) -> list[Sent]:
        with self._lock:
            return list(self._spans)

    def traces(self) -> dict[str, list[Sent]]:
        found: dict[str, list[Sent]] = defaultdict(list)
        for span in self.spans:
            found[span.trace].append(span)
        return found

    def take(self, body: bytes) -> None:
        for of in ExportTraceServiceRequest.FromString(body).resource_spans:
            service = str(values(of.resource.attributes)["service.name"])
            for span in (span for scope in of.scope_spans for span in scope.spans):
                sent = Sent(
                    service,
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano / 1e6,
                    span.end_time_unix_nano / 1e6,
                    values(span.attributes),
                )
                with self._lock:
                    self._spans.append(sent)


def values(attributes: list[KeyValue]) -> dict[str, str | int | float]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on loopback for as long as the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            collector.take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
