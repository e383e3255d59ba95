"""What Prometheus itself makes of rules and panels: that it reads them, and when an alert fires."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gotools
import pytest
from distrl.telemetry.alerts import ALERTS, RECORDED
from distrl.telemetry.dashboard import ROWS

RULES = Path(__file__).parents[2] / "charts" / "distrl" / "files" / "rules.yaml"
HOUR = 120
"""Samples of an hour: one every 30 seconds."""


@pytest.fixture(scope="session")
def promql() -> Path:
    return gotools.tool("promql")


def ask(promql: Path, **asked: Any) -> Any:
    done = subprocess.run([promql], input=json.dumps(asked), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def firing(promql: Path, name: str, series: Sequence[str]) -> list[dict[str, str]]:
    """The labels under which the alert's expression holds after an hour; recorded series are computed in place."""
    expression = next(alert.expression for alert in ALERTS if alert.name == name)
    for rule in RECORDED:
        expression = expression.replace(rule.name, f"({rule.expression})")
    (result,) = ask(promql, series=series, queries=[{"expr": expression, "at": 30 * HOUR}])["results"]
    return [each["labels"] for each in result]


@pytest.mark.kubernetes
def test_prometheus_reads_the_rules_and_refuses_wrong_ones(promql: Path) -> None:
    assert ask(promql, rules=RULES.read_text())["errors"] == []
    wrong = {"alert": "A", "expr": "sum by (run (up)"}, {"alert": "A", "expr": "up", "labels": {"a": "{{ $labels.b "}}
    for rule in wrong:
        assert ask(promql, rules=json.dumps({"groups": [{"name": "g", "rules": [rule]}]}))["errors"] != []


@pytest.mark.kubernetes
def test_every_panel_is_an_expression(promql: Path) -> None:
    expressions = [query.expression for row in ROWS for panel in row.panels for query in panel.queries]
    queries = [{"expr": each.replace("$run", "r"), "at": 0} for each in expressions]
    assert ask(promql, queries=queries)["results"] == [[]] * len(queries)


R = {"run": "r"}
LEARNER = 'role="learner", process="learner"'
FEEDER = 'role="feeder", process="feeder"'
WORKER = 'role="worker", process="w"'
OF_A_WORKER = f'run="r", {WORKER}'


def ready(process: str, value: int, run: str = "r") -> str:
    """Whether it is, for two hours."""
    return f'distrl_ready{{run="{run}", {process}}} {value}x120'


def outcomes(outcome: str, values: str) -> str:
    return f'distrl_outcomes_total{{{OF_A_WORKER}, suite="general", outcome="{outcome}"}} {values}'


FIRES = {
    "no trajectory comes": ("DistrlNoTrajectories", ['distrl_quiet_seconds{run="r"} 0+30x120'], [R]),
    "trajectories come now and then": ("DistrlNoTrajectories", ['distrl_quiet_seconds{run="r"} 0x119 599'], []),
    "nobody can say how episodes ended": (
        "DistrlNoOutcomes",
        [outcomes("unknown", "0+1x120"), outcomes("success", "5x120"), outcomes("interrupted", "0+1x120")],
        [R],
    ),
    "of some episodes it is known": (
        "DistrlNoOutcomes",
        [outcomes("unknown", "0+9x120"), outcomes("failure", "0+1x120")],
        [],
    ),
    "no episode is unknown": ("DistrlNoOutcomes", [outcomes("unknown", "3x120")], []),
    "no update is made of what is there": (
        "DistrlNotLearning",
        [
            ready(FEEDER, 1),
            ready(LEARNER, 1),
            'distrl_quiet_seconds{run="r"} 0x120',
            'distrl_unlearned_seconds{run="r"} 0+60x120',
        ],
        [R],
    ),
    "updates take their time": ("DistrlNotLearning", ['distrl_unlearned_seconds{run="r"} 0+60x59 0+60x60'], []),
    "nobody learns": ("DistrlNoLearner", ['distrl_ready{run="r", role="feeder"} 1x120'], [R]),
    "one recovers": (
        "DistrlNoLearner",
        [ready(FEEDER, 1), ready(LEARNER, 0)],
        [R],
    ),
    "one of another run learns": (
        "DistrlNoLearner",
        [ready(FEEDER, 1), ready(LEARNER, 1, run="s")],
        [R],
    ),
    "one learns": (
        "DistrlNoLearner",
        [ready(FEEDER, 0), ready(LEARNER, 1)],
        [],
    ),
    "one recovers, and a rank of it waits for that": (
        "DistrlNoLearner",
        [
            ready(FEEDER, 1),
            ready(LEARNER, 0),
            ready('role="learner", process="learner-8"', 1),
        ],
        [R],
    ),
    "nobody feeds": ("DistrlNoFeeder", [ready(WORKER, 1)], [R]),
    "a feeder is not ready": (
        "DistrlNoFeeder",
        [ready(FEEDER, 0), ready(LEARNER, 1)],
        [R],
    ),
    "one feeds": (
        "DistrlNoFeeder",
        [ready(WORKER, 0), ready(FEEDER, 1)],
        [],
    ),
    "no server answers": ("DistrlStalled", [f"distrl_stalled{{{OF_A_WORKER}}} 0x90 2x30"], [R | {"role": "worker"}]),
    "a server is slow": ("DistrlStalled", [f"distrl_stalled{{{OF_A_WORKER}}} {'1x8 0 ' * 14}"], []),
    "a version is refused": (
        "DistrlVersionRefused",
        [f"distrl_reload_alerts_total{{{OF_A_WORKER}}} 0x100 1x20"],
        [R | {"process": "w"}],
    ),
    "one was refused before the worker was looked at": (
        "DistrlVersionRefused",
        [f"distrl_reload_alerts_total{{{OF_A_WORKER}}} _x100 1x20"],
        [R | {"process": "w"}],
    ),
    "one was refused hours ago": ("DistrlVersionRefused", [f"distrl_reload_alerts_total{{{OF_A_WORKER}}} 1x120"], []),
    "one was refused long ago, and for a while nobody looked at the worker": (
        "DistrlVersionRefused",
        [f"distrl_reload_alerts_total{{{OF_A_WORKER}}} 1x40 _x30 1x50"],
        [],
    ),
    "data is too old": (
        "DistrlPolicyLag",
        ['distrl_window_lag_max{run="r", role="learner"} 5x120', 'distrl_max_lag{run="r", role="feeder"} 4x120'],
        [R],
    ),
    "data is as old as it may be": (
        "DistrlPolicyLag",
        ['distrl_window_lag_max{run="r", role="learner"} 4x120', 'distrl_max_lag{run="r", role="feeder"} 4x120'],
        [],
    ),
    "no phone answers": (
        "DistrlPhonesDown",
        [f'distrl_devices{{{OF_A_WORKER}, state="{state}"}} {count}x120' for state, count in
         {"idle": 0, "leased": 0, "quarantined": 4}.items()],
        [R],
    ),
    "most phones answer": (
        "DistrlPhonesDown",
        [f'distrl_devices{{{OF_A_WORKER}, state="{state}"}} {count}x120' for state, count in
         {"idle": 1, "leased": 2, "held": 1}.items()],
        [],
    ),
    "a worker knows no phone yet": (
        "DistrlPhonesDown",
        [f'distrl_devices{{{OF_A_WORKER}, state="{state}"}} 0x120' for state in ("idle", "leased")],
        [],
    ),
    "a record cannot be read": (
        "DistrlDeadLetters",
        ['distrl_dead_letters_total{run="r", role="learner", process="learner"} 0x60 1x60'],
        [R | {"role": "learner"}],
    ),
    "one could not before the role was looked at": (
        "DistrlDeadLetters",
        ['distrl_dead_letters_total{run="r", role="learner", process="learner"} _x60 1x60'],
        [R | {"role": "learner"}],
    ),
    "all can be read": ("DistrlDeadLetters", [f"distrl_dead_letters_total{{{OF_A_WORKER}}} 0x120"], []),
}  # fmt: skip


@pytest.mark.kubernetes
@pytest.mark.parametrize(("name", "series", "labels"), FIRES.values(), ids=FIRES)
def test_an_alert_fires_where_a_person_has_to_act_and_not_else(
    promql: Path, name: str, series: list[str], labels: list[dict[str, str]]
) -> None:
    assert firing(promql, name, series) == labels


def test_each_alert_is_seen_to_fire_and_to_be_silent() -> None:
    assert {(name, bool(labels)) for name, _, labels in FIRES.values()} == {
        (alert.name, fires) for alert in ALERTS for fires in (True, False)
    }
