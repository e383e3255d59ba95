"""Rules and panels name what is reported, and every alert has its runbook."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
import typer
from distrl.cli.main import app
from distrl.telemetry.alerts import ALERTS, RECORDED, Alert
from distrl.telemetry.dashboard import COLUMNS, ROWS, dashboard
from distrl.telemetry.metrics import METRICS, Kind, prometheus_name
from scraping import named

RUNBOOKS = Path(__file__).parents[2] / "docs" / "runbooks.md"
PANELS = [panel for row in ROWS for panel in row.panels]
RULES = [(each.name, each.expression) for each in (*RECORDED, *ALERTS)]
QUERIES = [(panel.title, query.expression) for panel in PANELS for query in panel.queries]
SERIES = {prometheus_name(name): name for name in METRICS}
RECORDED_NAMES = {each.name for each in RECORDED}


@pytest.mark.parametrize(("where", "expression"), [*RULES, *QUERIES])
def test_an_expression_names_metrics_of_the_list_with_their_labels_and_counters_as_rates(
    where: str, expression: str
) -> None:
    found = named(expression)
    assert found
    assert found <= SERIES.keys() | RECORDED_NAMES
    for series in found & SERIES.keys():
        metric = METRICS[SERIES[series]]
        matched = re.findall(rf"{series}\{{([^}}]*)\}}", expression)
        labels = {label for each in matched for label in re.findall(r"(\w+)[=!]", each)}
        assert labels <= {"run", "role", "process", *metric.labels}
        roles = set(re.findall(r'role="(\w+)"', " ".join(matched)))
        assert roles <= set(metric.roles), f"{where}: who does not report {series}"
        if metric.kind is Kind.COUNTER:
            assert re.search(rf"(?:rate|increase)\({series}\b", expression), f"{where}: {series} only grows"


@pytest.mark.parametrize("topic", [
    "episodes", "window_lag_max", "window_age_seconds", "reload_seconds", "devices", "dead_letters", "consumer_lag",
    "version",
])  # fmt: skip
def test_a_panel_shows(topic: str) -> None:
    assert any(prometheus_name(topic) in expression for _, expression in QUERIES)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_alert_has_a_runbook_and_says_what_its_expression_knows(alert: Alert) -> None:
    headings = [line.removeprefix("## ") for line in RUNBOOKS.read_text().splitlines() if line.startswith("## ")]
    assert headings == [each.name for each in ALERTS]
    assert alert.runbook == f"docs/runbooks.md#{alert.name.lower()}"
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary))
    grouped = re.findall(r"by \(([\w, ]+)\)", alert.expression)
    by = {label for each in grouped for label in each.split(", ")} or {"run"}  # a recorded rule of level `run`
    assert "run" in used
    assert used <= by


def test_each_command_of_a_runbook_is_one() -> None:
    known = _commands(typer.main.get_command(app))
    groups = {each.split()[0] for each in known if " " in each}
    written = [each.split() for each in re.findall(r"`distrl ([a-z]+(?: [a-z]+)?)", RUNBOOKS.read_text())]
    assert len(written) > 5
    wanted = {" ".join(words[:2] if words[0] in groups else words[:1]) for words in written}
    assert wanted <= known


def _commands(group: object, above: str = "") -> set[str]:
    found: set[str] = set()
    for name, command in getattr(group, "commands", {}).items():
        found |= {f"{above}{name}"} | _commands(command, f"{above}{name} ")
    return found


def test_no_two_panels_lie_on_each_other_and_none_outside() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one, other in combinations(places, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart or below
