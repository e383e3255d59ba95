"""A process's metrics and probes over HTTP: /metrics in Prometheus' format, /livez and /readyz.

Every series has the labels run, role and process, so that a panel needs no join to add up by run and to name a worker
as its heartbeats do. These labels add no series.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Final

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from distrl.config import Config
from distrl.telemetry.endpoint import Answer, Endpoint
from distrl.telemetry.metrics import METRICS, PREFIX, Kind, prometheus_name, prometheus_value
from distrl.telemetry.monitor import Labelled, Monitor, Report, Verdict
from distrl.telemetry.stalls import ANSWERING
from distrl.types import DeviceHealth

log = logging.getLogger(__name__)

IDENTITY: Final = ("run", "role", "process")
"""Labels of every series of ours."""


class RoleCollector(Collector):
    """The series of one process, from its monitor. Names that are not in METRICS, such as those of an algorithm from
    another package, are left out."""

    def __init__(self, monitor: Monitor, run: str, role: str, process: str) -> None:
        self._monitor, self._role, self._identity = monitor, role, (run, role, process)
        labels = dict(zip(IDENTITY, self._identity, strict=True)) | {"version": version("distrl")}
        self._build = InfoMetricFamily(PREFIX + "build", "the software of a process", labels)

    def collect(self) -> Iterator[Metric]:
        yield self._build
        yield self._family("ready", {(): float(self._monitor.readiness().ok)})
        yield self._family("progress_age_seconds", {(): self._monitor.progress_age_s})
        if (report := self._monitor.last) is not None:
            for name, values in self._values(report).items():
                yield self._family(name, values)

    def _values(self, report: Report) -> dict[str, Labelled]:
        found: dict[str, Labelled] = dict(report.labelled) | {
            name: {(): value} for name, value in report.metrics.items() if name in METRICS and name != "version"
        }
        if self._role in METRICS["version"].roles:
            found["version"] = {(): -1.0 if report.version is None else float(report.version.version)}
        if self._role in METRICS["devices"].roles:
            found |= device_metrics(report.devices)
        return found

    def _family(self, name: str, values: Labelled) -> Metric:
        metric, full = METRICS[name], prometheus_name(name)
        family = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
        made = family(full, metric.help, labels=(*IDENTITY, *metric.labels))
        for labels, value in values.items():
            made.add_metric((*self._identity, *labels), prometheus_value(name, value))
        return made


def device_metrics(devices: Iterable[DeviceHealth]) -> dict[str, Labelled]:
    """Phones by state, and the sums of their counters. By phone there would be thousands of series."""
    states, events = Counter[str](dict.fromkeys(sorted(ANSWERING), 0)), Counter[str]()  # none is a figure, too
    for device in devices:
        states[device.state] += 1
        events.update(device.counters)
    return {
        "devices": {(state,): float(count) for state, count in states.items()},
        "device_events": {(event,): float(count) for event, count in events.items()},
    }


class Pages:
    """What the endpoint answers."""

    def __init__(self, collector: Collector, monitor: Monitor, stuck_s: float) -> None:
        self._monitor, self._stuck_s = monitor, stuck_s
        self._registry = CollectorRegistry()
        self._registry.register(collector)
        for each in (ProcessCollector, PlatformCollector, GCCollector):
            each(registry=self._registry)

    def __call__(self, path: str, accept: str) -> Answer:
        """accept: the header of that name."""
        if path == "/metrics":
            encode, content_type = choose_encoder(accept)
            return Answer(200, content_type, encode(self._registry))
        if path == "/livez":
            return _answer(self._monitor.liveness(self._stuck_s))
        if path == "/readyz":
            return _answer(self._monitor.readiness())
        return Answer(404, "text/plain; charset=utf-8", b"/metrics, /livez and /readyz are here\n")


def _answer(verdict: Verdict) -> Answer:
    return Answer(200 if verdict.ok else 503, "text/plain; charset=utf-8", f"{verdict.why}\n".encode())


@contextmanager
def exporting(config: Config, role: str, process: str) -> Iterator[Monitor]:
    """The monitor of this process, served at `monitoring.port` for the time of the block, if one is set.

    Raises ConfigError where the port cannot be listened on.
    """
    monitor, own = Monitor(), config.monitoring
    if own.port is None:
        yield monitor
        return
    pages = Pages(RoleCollector(monitor, config.run, role, process), monitor, own.stuck_s)
    with Endpoint(own.host, own.port, pages):
        log.info("/metrics, /livez and /readyz are at %s port %d", own.host, own.port)
        yield monitor
