"""Traces of tasks: one trace from the task that is fed to the version that learned from it (docs/monitoring.md).

A record names in its header `traceparent` (W3C Trace Context) the span that it follows from. The values of records do
not change, and nothing but traces and logs reads the header. A role that does not trace passes it on, so that those
before and behind it share a trace.

Nothing of OpenTelemetry is imported before `tracing` finds that traces are wanted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from distrl.broker.producer import Headers
from distrl.config import Config
from distrl.errors import ConfigError

HEADER: Final = "traceparent"
VALID: Final = re.compile(rb"00-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""Headers are untrusted: what does not match is no parent, and is not passed on."""

Attributes = Mapping[str, str | int | float | bool]
Kind = Literal["internal", "producer", "consumer"]
"""producer: a record follows from the span; consumer: the span follows from a record."""


class Span(Protocol):
    """Times are ms since the epoch. No method waits or raises, wherever the collector is."""

    @property
    def headers(self) -> Headers:
        """The headers of a record that follows from this span."""

    @property
    def recording(self) -> bool:
        """Whether the span is sent; if not, attributes and children have no effect."""

    def child(self, name: str, at_ms: int, attributes: Attributes, kind: Kind = "internal") -> Span: ...
    def end(self, at_ms: int) -> None: ...


class Tracer(Protocol):
    """From any thread."""

    def begin(self, name: str, parent: Headers, at_ms: int, attributes: Attributes, kind: Kind) -> Span:
        """A span that follows from the record with these headers; the first one of a trace where they name none."""


@dataclass(frozen=True, slots=True)
class Untraced:
    """Stands in for a span where nothing is traced."""

    headers: Headers
    recording: bool = False

    def child(self, name: str, at_ms: int, attributes: Attributes, kind: Kind = "internal") -> Untraced:
        return self

    def end(self, at_ms: int) -> None:
        pass


class _Off:
    def begin(self, name: str, parent: Headers, at_ms: int, attributes: Attributes, kind: Kind) -> Untraced:
        return Untraced(passed_on(parent))


OFF: Final[Tracer] = _Off()


def passed_on(headers: Headers) -> Headers:
    """The one of `headers` that names a trace; none where none does."""
    value = next((value for name, value in headers if name == HEADER), None)
    return ((HEADER, value),) if value is not None and VALID.fullmatch(value) else ()


def trace_id(headers: Headers) -> str | None:
    """The trace (hex) that `headers` name."""
    for _, value in passed_on(headers):
        return (value or b"")[3:35].decode()
    return None


@contextmanager
def tracing(config: Config, role: str, process: str) -> Iterator[Tracer]:
    """What traces this process for the time of the block: `tracing.endpoint` is sent the spans, if it is set.

    Raises ConfigError where the packages of OpenTelemetry are not installed.
    """
    if config.tracing.endpoint is None:
        yield OFF
        return
    try:
        from distrl.telemetry.otel import OtelTracer
    except ModuleNotFoundError as missing:
        raise ConfigError(
            "tracing.endpoint",
            f"is set, and {missing.name} is not installed",
            "install the extra (`pip install -e '.[otel]'` in the checkout), or unset tracing.endpoint",
        ) from None
    with OtelTracer(config, role, process, config.tracing.endpoint) as tracer:
        yield tracer
