"""One trace from task to version, by OpenTelemetry's SDK and a collector that reads its protocol."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

import factories
import pytest
from collecting import Collector, Sent, collecting
from distrl.broker.producer import Headers
from distrl.broker.reader import RawRecord
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config, load
from distrl.errors import ConfigError
from distrl.feeder import traces as feeder
from distrl.learner.traces import UpdateTraces
from distrl.telemetry import otel
from distrl.telemetry.tracing import HEADER, OFF, Tracer, passed_on, trace_id, tracing
from distrl.types import LoggedTrajectory, LogPosition, Trajectory, Update
from distrl.worker import traces as worker

AT = LogPosition("trajectories", 0, 5)
PARENT: Headers = ((HEADER, b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too, the last spans are sent before a tracer gives them up."""
    for name in ("SEND_S", "LAST_S"):
        monkeypatch.setattr(otel, name, 60.0)


def config(*sets: str) -> Config:
    return load(sets=sets, environ={})


def traced_by(url: str, *sets: str) -> Config:
    return config(f"tracing.endpoint={url}", *sets)


def learned(tracers: tuple[Tracer, Tracer, Tracer], played: Trajectory, *versions: int) -> Headers:
    """A task is fed, played and learned from, by a tracer for each role, and after it versions of updates are
    published. Returns the headers of its trajectory."""
    by_feeder, by_worker, by_learner = tracers
    with feeder.traced(by_feeder, [played.task]) as of_tasks:
        task = of_tasks[played.task_id]
    with worker.traced(by_worker, task, played, SYSTEM_CLOCK) as headers:
        pass
    updates = UpdateTraces(by_learner, SYSTEM_CLOCK)
    updates.read(RawRecord(AT, b"k", b"v", 0, headers))
    updates.begin(Update(7, (), "", 0), [LoggedTrajectory(AT, played)], redone=False)
    updates.folded()
    for number, update in enumerate(versions):
        updates.published(factories.version(number, update=update))
    return headers


def played() -> Trajectory:
    steps = [factories.step(at=5_000 + 1_000 * n, version=3, policy_ms=20, adb_ms=300, phone_ms=100) for n in range(2)]
    return factories.trajectory(factories.task(fed_at=1_000), steps, started_at=4_000)


def sent(collector: Collector, played: Trajectory, *versions: int, sample: float = 1.0) -> Headers:
    with ExitStack() as stack:
        given = traced_by(collector.url, f"tracing.sample={sample}")
        roles = ("feeder", "worker", "learner")
        one, two, three = (stack.enter_context(tracing(given, role, role)) for role in roles)
        return learned((one, two, three), played, *versions)


def test_one_trace_goes_from_the_task_to_the_first_version_after_its_update() -> None:
    with collecting() as collector:
        headers = sent(collector, played(), 6, 8, 9)
    spans = collector.spans
    assert {span.trace for span in spans} == {trace_id(headers)}
    by_name: dict[str, list[Sent]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    assert {name: (len(found), found[0].service) for name, found in by_name.items()} == {
        "feed task": (1, "distrl-feeder"),
        "play episode": (1, "distrl-worker"),
        "step": (2, "distrl-worker"),
        "decide": (2, "distrl-worker"),
        "publish trajectory": (1, "distrl-worker"),
        "update": (1, "distrl-learner"),
        "publish version": (1, "distrl-learner"),
    }
    named = {span.span: span.name for span in spans}
    assert {(named.get(span.parent, ""), span.name) for span in spans} == {
        ("", "feed task"),
        ("feed task", "play episode"),
        ("play episode", "step"),
        ("step", "decide"),
        ("play episode", "publish trajectory"),
        ("publish trajectory", "update"),
        ("update", "publish version"),
    }
    assert by_name["update"][0].about == {"distrl.update": 7, "distrl.trajectories": 1}
    assert by_name["publish version"][0].about == {"distrl.version": 1, "distrl.update": 8}


def test_a_step_begins_with_the_look_at_the_screen_and_ends_with_its_action() -> None:
    with collecting() as collector:
        sent(collector, played())
    found = sorted((span for span in collector.spans if span.name == "step"), key=lambda span: span.began)
    assert [(span.began, span.ended) for span in found] == [(4_680, 5_100), (5_680, 6_100)]
    decided = sorted((span.began, span.ended) for span in collector.spans if span.name == "decide")
    assert decided == [(4_980, 5_000), (5_980, 6_000)]
    assert found[1].about["distrl.step"] == 1
    assert found[1].about["distrl.version"] == 3


def test_the_feeders_sample_decides_for_all() -> None:
    with collecting() as collector:
        headers = sent(collector, played(), 8, sample=0.0)
    assert collector.spans == []
    assert trace_id(headers) is not None, "those that follow are told that this trace is not sampled"


def test_a_role_that_does_not_trace_passes_the_trace_on() -> None:
    with collecting() as collector, tracing(traced_by(collector.url), "x", "x") as on:
        learned((on, OFF, on), played(), 8)
    named = {span.span: span.name for span in collector.spans}
    assert {(named.get(span.parent, ""), span.name) for span in collector.spans} == {
        ("", "feed task"),
        ("feed task", "update"),
        ("update", "publish version"),
    }


def test_without_tracing_a_record_has_no_header() -> None:
    assert learned((OFF, OFF, OFF), played(), 8) == ()


def test_an_update_that_is_redone_is_in_no_trace() -> None:
    with collecting() as collector, tracing(traced_by(collector.url), "learner", "learner") as tracer:
        updates = UpdateTraces(tracer, SYSTEM_CLOCK)
        updates.read(RawRecord(AT, b"k", b"v", 0, PARENT))
        updates.begin(Update(7, (), "", 0), [LoggedTrajectory(AT, played())], redone=True)
        updates.folded()
        updates.published(factories.version(3, update=7))
        other = replace(AT, offset=9)
        updates.read(RawRecord(other, b"k", b"v", 0, PARENT))
        updates.begin(Update(8, (), "", 0), [LoggedTrajectory(other, played())], redone=False)
        updates.folded()
        updates.published(factories.version(3, update=7))
    assert [(span.name, span.about["distrl.update"]) for span in collector.spans] == [("update", 8)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"\xff\xfe",
        b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        b"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        b"00-" + b"0" * 32 + b"-b7ad6b7169203331-01",
        b"00-0af7651916cd43dd8448eb211c80319c-" + b"0" * 16 + b"-01",
        b"ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ],
)
def test_a_header_that_names_no_trace_is_no_parent_and_goes_no_further(value: bytes | None) -> None:
    assert passed_on(((HEADER, value),)) == ()
    with collecting() as collector, tracing(traced_by(collector.url), "worker", "w") as tracer:
        tracer.begin("play episode", ((HEADER, value),), 0, {}, "consumer").end(1)
    assert [span.parent for span in collector.spans] == [""]


def test_other_headers_stay_where_they_are() -> None:
    assert passed_on((("own", b"x"), *PARENT, ("tracestate", b"a=b"))) == PARENT


def test_an_sdk_that_is_disabled_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    with collecting() as collector:
        assert sent(collector, played(), 8) == ()
        with tracing(traced_by(collector.url), "worker", "w") as tracer:
            assert tracer.begin("play episode", PARENT, 0, {}, "consumer").headers == PARENT
    assert collector.spans == []


@pytest.fixture
def silent() -> Iterator[str]:
    """A collector that takes connections and never answers."""
    server = socket.create_server(("127.0.0.1", 0), backlog=64)
    with server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_a_collector_that_hangs_delays_nobody(silent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "LAST_S", 0.2)
    done = threading.Event()

    def role() -> None:
        with tracing(traced_by(silent), "worker", "w") as tracer:
            for n in range(3 * otel.QUEUED_SPANS):
                tracer.begin("play episode", (), n, {}, "consumer").end(n + 1)
        done.set()

    threading.Thread(target=role, daemon=True).start()
    assert done.wait(60), "neither a full queue nor the end waited for the collector"


def test_a_collector_that_is_away_ends_nobody(
    caplog: pytest.LogCaptureFixture, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "SEND_S", 0.2)
    with tracing(traced_by(f"http://127.0.0.1:{closed_port}"), "worker", "w") as tracer:
        tracer.begin("play episode", (), 0, {}, "consumer").end(1)
    assert "Failed to export spans" in caplog.text


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nothing listens, kept from others while the test runs."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_without_the_extra_a_set_endpoint_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "distrl.telemetry.otel")
    with pytest.raises(ConfigError) as refused, tracing(traced_by("http://here:4318"), "worker", "w"):
        pass
    assert refused.value.where == "tracing.endpoint"
    assert "'.[otel]'" in refused.value.hint


NOTHING_NEW = """
import sys
import distrl.feeder.run, distrl.learner.traces, distrl.rollout.actor_pool, distrl.worker.traces
from distrl.config import load
from distrl.telemetry.tracing import OFF, tracing
with tracing(load(environ={}), "worker", "w") as tracer:
    assert tracer is OFF
print([name for name in sys.modules if name.partition(".")[0] == "opentelemetry"])
"""


def test_without_tracing_nothing_of_it_is_imported() -> None:
    found = subprocess.run([sys.executable, "-c", NOTHING_NEW], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
