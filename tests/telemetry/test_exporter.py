"""What a scrape and a probe are told, over a real socket and as Prometheus' own parser reads it."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import factories
import pytest
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.stack import ports
from distrl.telemetry.exporter import exporting
from distrl.telemetry.monitor import Monitor, Report
from distrl.types import DeviceHealth
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from scraping import fetched, samples
from waiting import until

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
IDENTITY = {"run": "r", "role": "worker", "process": "worker-0"}


def settings(**monitoring: float) -> Config:
    return Config.model_validate({"run": "r", "monitoring": {"port": ports.draw("a test"), **monitoring}})


@pytest.fixture
def config() -> Config:
    return settings()


@pytest.fixture
def monitor(config: Config) -> Iterator[Monitor]:
    with exporting(config, "worker", "worker-0") as monitor:
        yield monitor


def port_of(config: Config) -> int:
    assert config.monitoring.port is not None
    return config.monitoring.port


def test_a_scrape_shows_the_last_report_with_labels_and_base_units(config: Config, monitor: Monitor) -> None:
    phones = [
        DeviceHealth("a", "idle", {"leases": 2}),
        DeviceHealth("b", "idle", {"leases": 1}),
        DeviceHealth("c", "held"),
    ]
    monitor.show(
        Report(
            factories.version(7),
            {"episodes": 12.0, "adb_ms": 40.0, "what_no_list_names": 1.0},
            tuple(phones),
            {"outcomes": {('ho"m\ne', "success"): 5.0}},
        )
    )
    found = samples(port_of(config))
    own = {each for each in found if each[0].startswith("distrl_")}
    assert all(set(IDENTITY.items()) <= set(labels) for _, labels, _ in own)
    values = {(name, frozenset(set(labels) - set(IDENTITY.items()))): value for name, labels, value in own}
    assert values["distrl_episodes_total", frozenset()] == 12
    assert values["distrl_adb_seconds", frozenset()] == 0.04
    assert values["distrl_version", frozenset()] == 7
    assert values["distrl_devices", frozenset({("state", "idle")})] == 2
    assert values["distrl_device_events_total", frozenset({("event", "leases")})] == 3
    labels = frozenset({("suite", 'ho"m\ne'), ("outcome", "success")})
    assert values["distrl_outcomes_total", labels] == 5, "a suite's name is a user's"
    assert values["distrl_ready", frozenset()] == 0
    assert not any("no_list" in name for name, _ in values)
    assert "process_cpu_seconds_total" in {name for name, _, _ in found}


def test_each_metric_has_its_meaning_and_kind_in_either_format(config: Config, monitor: Monitor) -> None:
    monitor.show(Report(metrics={"episodes": 1.0, "queue": 2.0}))
    for accept, parse in (
        ("", text_string_to_metric_families),
        (OPENMETRICS, openmetrics.text_string_to_metric_families),
    ):
        status, body = fetched(port_of(config), "/metrics", accept)
        families = {family.name: family for family in parse(body)}
        assert status == 200
        assert (families["distrl_episodes"].type, families["distrl_queue"].type) == ("counter", "gauge")
        assert families["distrl_queue"].documentation.startswith("tasks received and not started")


def test_before_the_first_report_and_without_a_version_a_scrape_says_so(config: Config, monitor: Monitor) -> None:
    names = {name for name, _, _ in samples(port_of(config))}
    assert {"distrl_ready", "distrl_progress_age_seconds", "distrl_build_info"} <= names
    assert "distrl_version" not in names
    monitor.show(Report())
    assert ("distrl_version", -1.0) in {(name, value) for name, _, value in samples(port_of(config))}


def test_probes_follow_the_loop(config: Config, monitor: Monitor) -> None:
    port = port_of(config)
    status, why = fetched(port, "/livez")
    assert (status, why.startswith("starting for ")) == (503, True)
    monitor.progress()
    assert fetched(port, "/livez")[0] == 200
    assert fetched(port, "/readyz") == (503, "waiting for its start\n")
    monitor.ready()
    assert fetched(port, "/readyz") == (200, "ready\n")
    assert fetched(port, "/other")[0] == 404


def test_a_loop_that_nobody_turns_is_stuck_after_the_time_of_the_settings() -> None:
    config = settings(stuck_s=0.2)
    with exporting(config, "worker", "worker-0") as monitor:
        monitor.progress()
        until(lambda: fetched(port_of(config), "/livez")[0] == 503, "it to be stuck")
        assert fetched(port_of(config), "/livez")[1].startswith("stuck: the main loop made no progress for ")


def test_a_port_that_is_taken_is_refused_before_any_work(config: Config) -> None:
    with socket.create_server(("127.0.0.1", port_of(config))), pytest.raises(ConfigError, match=r"monitoring\.port"):
        exporting(config, "worker", "worker-0").__enter__()


def test_without_a_port_nothing_listens_and_the_role_reports_as_ever() -> None:
    with exporting(Config(), "worker", "worker-0") as monitor:
        monitor.progress()
        assert monitor.liveness(1.0).ok


def test_the_end_of_the_role_ends_the_endpoint(config: Config) -> None:
    with exporting(config, "worker", "worker-0"):
        assert fetched(port_of(config), "/metrics")[0] == 200
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port_of(config)}/livez", timeout=5)
