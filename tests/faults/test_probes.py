"""What a probe is told of a loop that hangs, and of one that waits for a broker that does."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from distrl.broker.reader import LogReader, RawRecord
from distrl.config import Config
from distrl.feeder.run import run_feeder
from distrl.learner.run import run_learner
from distrl.stack import ports
from distrl.telemetry.exporter import exporting
from distrl.telemetry.monitor import Monitor
from scraping import fetched, samples

from faults.live import WARMUP, LiveRun

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

Work = Callable[[Config, threading.Event, Monitor], None]
ROLES: Mapping[str, Work] = {
    "learner": lambda config, stop, monitor: run_learner(config, stop, monitor=monitor),
    "feeder": run_feeder,
}
HANGS_S = 20.0
SOON_S = 5.0


@pytest.mark.parametrize("role", ROLES)
def test_a_loop_whose_client_hangs_is_not_alive_and_the_probe_says_why(
    run: LiveRun, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, stop = threading.Event(), threading.Event()
    answers.set()
    read = LogReader.read

    def reading(self: LogReader, *given: Any, **named: Any) -> list[RawRecord]:
        assert answers.wait(300)
        return read(self, *given, **named)

    monkeypatch.setattr(LogReader, "read", reading)
    port = ports.draw("a test")
    config = Config.model_validate(run.config.tree(with_secrets=True) | {"monitoring": {"port": port, "stuck_s": 2.0}})
    with exporting(config, role, role) as monitor:
        working = threading.Thread(target=ROLES[role], args=(config, stop, monitor), daemon=True)
        working.start()
        try:
            run.until("it to be ready", lambda: fetched(port, "/readyz")[0] == 200)
            run.until("it to be alive", lambda: fetched(port, "/livez")[0] == 200)
            answers.clear()
            run.until("it to be stuck", lambda: fetched(port, "/livez")[0] == 503)
            assert fetched(port, "/livez")[1].startswith("stuck: the main loop made no progress for ")
            assert next(value for name, _, value in samples(port) if name == "distrl_progress_age_seconds") > 2.0
            answers.set()
            run.until("it to go on", lambda: fetched(port, "/livez")[0] == 200)
        finally:
            answers.set()
            stop.set()
            working.join(60)
    assert not working.is_alive()


def test_roles_that_wait_for_a_broker_that_hangs_make_progress_and_are_ready(run: LiveRun) -> None:
    """For longer than any of their calls waits for an answer."""
    first = ports.draw("a test", count=3)
    watched = dict(zip(("learner", "worker-0", "feeder"), range(first, first + 3), strict=True))
    run.record(demonstrations=6)
    run.learner(sets=[f"monitoring.port={watched['learner']}"])
    run.worker(sets=[f"monitoring.port={watched['worker-0']}"])
    run.start("feeder", "feed", sets=[f"monitoring.port={watched['feeder']}"])
    run.until("an update of what was played", lambda: len(run.updates()) > WARMUP)
    for port in watched.values():
        run.until("it to be ready", lambda port=port: fetched(port, "/readyz")[0] == 200)  # type: ignore[misc]
    run.servers.signal("kafka", signal.SIGSTOP)
    stopped = time.monotonic()
    try:
        for port in watched.values():
            run.until("progress since", lambda port=port: since(port, stopped))  # type: ignore[misc]
        assert [fetched(port, page)[0] for port in watched.values() for page in ("/livez", "/readyz")] == [200] * 6
    finally:
        run.servers.signal("kafka", signal.SIGCONT)


def since(port: int, stopped: float) -> bool:
    """Whether the loop has made progress when the broker had hung for HANGS_S, and now."""
    age_s = next(value for name, _, value in samples(port) if name == "distrl_progress_age_seconds")
    hung_s = time.monotonic() - stopped
    return hung_s > HANGS_S + SOON_S and age_s < hung_s - HANGS_S
