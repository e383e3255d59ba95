"""Spans by OpenTelemetry's SDK, sent by OTLP over HTTP. Needs the extra `otel`; tracing.py imports it when wanted.

A span costs the thread that ends it an entry in a bounded queue, which one thread of the SDK sends. Where the collector
is away, hangs or refuses, that thread retries, the queue drops its oldest spans, and nobody else notices.
"""

from __future__ import annotations

import logging
import secrets
from importlib.metadata import version
from types import TracebackType
from typing import Any, Final, cast

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from distrl.broker.producer import Headers
from distrl.config import Config
from distrl.supervised import SupervisedThread
from distrl.telemetry.tracing import HEADER, Attributes, Kind, passed_on

log = logging.getLogger(__name__)

QUEUED_SPANS: Final = 4096
"""Spans that wait to be sent, some MB; a worker makes some 25 for each episode."""
BATCH_SPANS: Final = 512
EVERY_MS: Final = 2000.0
SEND_S: Final = 5.0
"""Longest try to send a batch, retries included."""
LAST_S: Final = 5.0
"""Longest wait for the last spans when a process ends."""
NS: Final = 1_000_000
"""Nanoseconds of a millisecond."""

KINDS: Final[dict[Kind, Any]] = {
    "internal": trace.SpanKind.INTERNAL,
    "producer": trace.SpanKind.PRODUCER,
    "consumer": trace.SpanKind.CONSUMER,
}


class Ids:
    """Ids from the system's randomness. The SDK's own are drawn from Python's global generator: of two processes in
    which a library seeds it alike, the ids would be the same."""

    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1

    def generate_trace_id(self) -> int:
        return secrets.randbits(128) or 1

    def is_trace_id_random(self) -> bool:
        return True


class OtelSpan:
    """See Span."""

    def __init__(self, tracer: trace.Tracer, span: trace.Span) -> None:
        self._tracer, self._span = tracer, span

    @property
    def headers(self) -> Headers:
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, trace.set_span_in_context(self._span, Context()))
        named = carrier.get(HEADER)  # none where OTEL_SDK_DISABLED is set and no record named a trace
        return () if named is None else ((HEADER, named.encode()),)

    @property
    def recording(self) -> bool:
        return bool(self._span.is_recording())

    def child(self, name: str, at_ms: int, attributes: Attributes, kind: Kind = "internal") -> OtelSpan:
        return _begun(self._tracer, name, trace.set_span_in_context(self._span, Context()), at_ms, attributes, kind)

    def end(self, at_ms: int) -> None:
        self._span.end(at_ms * NS)


class OtelTracer:
    """See Tracer. `with` ends it: the last spans are sent, for at most LAST_S."""

    def __init__(self, config: Config, role: str, process: str, endpoint: str) -> None:
        resource = Resource.create(
            {
                "service.name": f"distrl-{role}",
                "service.instance.id": process,
                "service.version": version("distrl"),
                "distrl.run": config.run,
            }
        )
        self._exporter: SpanExporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces", timeout=SEND_S)
        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(config.tracing.sample)),
            resource=resource,
            shutdown_on_exit=False,  # it would wait half a minute for a collector that hangs
            id_generator=cast(Any, Ids()),
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                self._exporter,
                max_queue_size=QUEUED_SPANS,
                schedule_delay_millis=EVERY_MS,
                max_export_batch_size=BATCH_SPANS,
            )
        )
        self._tracer = self._provider.get_tracer("distrl", version("distrl"))
        log.info("traces go to %s", endpoint)

    def __enter__(self) -> OtelTracer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sending = SupervisedThread(self._provider.shutdown, "the last spans")
        sending.join(LAST_S)
        if sending.running:
            log.warning("the collector does not answer: the last spans are lost")
            self._exporter.shutdown()  # ends its retries, and with them the thread

    def begin(self, name: str, parent: Headers, at_ms: int, attributes: Attributes, kind: Kind) -> OtelSpan:
        carrier = {key: (value or b"").decode() for key, value in passed_on(parent)}
        context = TraceContextTextMapPropagator().extract(carrier, Context())
        return _begun(self._tracer, name, context, at_ms, attributes, kind)


def _begun(
    tracer: trace.Tracer, name: str, context: Context, at_ms: int, attributes: Attributes, kind: Kind
) -> OtelSpan:
    span = tracer.start_span(name, context, KINDS[kind], dict(attributes), start_time=at_ms * NS)
    return OtelSpan(tracer, span)
