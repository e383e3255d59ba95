"""The list of metrics holds what is reported; tests of the roles hold that nothing else is."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from distrl.telemetry.metrics import METRICS, Kind, Unit, prometheus_name, prometheus_value

CODE = Path(__file__).parents[2] / "pipeline" / "distrl"
OF_ALL = ("telemetry/exporter.py", "telemetry/monitor.py")
ROOMS = {
    "worker": ("worker", "rollout", "judge", "chat"),
    "learner": ("learner", "algorithms"),
    "feeder": ("feeder",),
    "evaluator": ("evaluate",),
    "demonstrator": ("demonstrations",),
}


@cache
def names_in(file: Path) -> frozenset[str]:
    """Texts, names of fields and of keyword arguments: what a metric's name can come from."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Constant(value=str() as text):
                found.add(text)
            case ast.keyword(arg=str() as name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return frozenset(found)


@pytest.mark.parametrize("role", ROOMS)
def test_every_metric_of_a_role_is_named_in_its_rooms(role: str) -> None:
    files = [CODE / name for name in OF_ALL] + [file for room in ROOMS[role] for file in (CODE / room).rglob("*.py")]
    known = set[str]().union(*map(names_in, files))
    assert sorted(name for name, metric in METRICS.items() if role in metric.roles and name not in known) == []


def test_every_metric_has_a_role_that_there_is() -> None:
    assert {role for metric in METRICS.values() for role in metric.roles} == set(ROOMS)


def test_names_on_the_wire_have_the_base_unit_once_and_counters_end_in_total() -> None:
    assert prometheus_name("phone_ms") == "distrl_phone_seconds"
    assert prometheus_value("phone_ms", 250.0) == 0.25
    assert prometheus_name("update_seconds") == "distrl_update_seconds"
    assert prometheus_name("folding_seconds") == "distrl_folding_seconds_total"
    assert prometheus_name("sample_share") == "distrl_sample_share_ratio"
    assert prometheus_name("ratio") == "distrl_ratio"
    assert prometheus_name("episodes") == "distrl_episodes_total"
    with pytest.raises(KeyError):
        prometheus_name("episode")


def test_no_two_metrics_have_one_name_and_a_unit_in_a_name_is_declared() -> None:
    names = [prometheus_name(name) for name in METRICS]
    assert len(set(names)) == len(names)
    for name, metric in METRICS.items():
        assert (metric.unit is Unit.MILLISECONDS) == name.endswith("_ms")
        assert (metric.unit is Unit.SECONDS) == name.endswith("_seconds")
        assert metric.kind is Kind.COUNTER or not name.endswith("_total")
