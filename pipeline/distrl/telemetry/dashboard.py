"""The panels that show a run in Grafana. `make chart` writes them as a dashboard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from distrl.telemetry.alerts import EPISODE_RATE, FOLDING_SHARE, SUCCESS, WAITING_SHARE
from distrl.telemetry.metrics import prometheus_name as name

SCHEMA: Final = 39
"""Grafana's version of the model; newer ones read it."""
COLUMNS, WIDTH, HEIGHT = 24, 8, 8
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
OF_RUN: Final = 'run="$run"'
OF_WORKERS, OF_LEARNER, NO_LEASE = 'role="worker"', 'role="learner"', 'event!="leases"'


@dataclass(frozen=True, slots=True)
class Query:
    expression: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    description: str
    unit: str
    """As Grafana names it."""
    queries: tuple[Query, ...]


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


def of(metric: str, matching: str = "") -> str:
    """The series of a metric of METRICS, or of a recorded rule, of the chosen run."""
    return f"{metric if ':' in metric else name(metric)}{{{', '.join(filter(None, (OF_RUN, matching)))}}}"


ROWS: Final = (
    Row(
        "Collection",
        (
            Panel(
                "Episodes a minute",
                "All workers together, and each one. If it falls, see the phones and the waiting calls below.",
                "short",
                (
                    Query(f"60 * {of(EPISODE_RATE)}", "all"),
                    Query(f"60 * sum by (process) (rate({of('episodes')}[5m]))", "{{process}}"),
                ),
            ),
            Panel(
                "Tasks",
                "Outstanding: fed and not finished. Consumer lag: not committed by the workers' group.",
                "short",
                (
                    Query(of("outstanding"), "outstanding"),
                    Query(of("outstanding_limit"), "at most"),
                    Query(of("consumer_lag"), "consumer lag"),
                ),
            ),
            Panel(
                "Success by suite",
                "Training episodes of the last 30 minutes, and the version that was evaluated last.",
                "percentunit",
                (
                    Query(of(SUCCESS), "training, {{suite}}"),
                    Query(f"max by (suite) ({of('evaluation_success')})", "evaluation, {{suite}}"),
                ),
            ),
        ),
    ),
    Row(
        "Learning",
        (
            Panel(
                "Learner's time",
                "Share of its time that goes into updates, and into waiting for the trajectories of the next one. The "
                "rest is storing, publishing and waiting for servers.",
                "percentunit",
                (Query(of(FOLDING_SHARE), "in updates"), Query(of(WAITING_SHARE), "waiting for trajectories")),
            ),
            Panel(
                "Policy lag",
                "How many versions newer the newest one is than the one that acted, when the trajectory is learned.",
                "short",
                (
                    Query(of("window_lag_mean"), "mean"),
                    Query(of("window_lag_max"), "most"),
                    Query(of("max_lag"), "feeder.max_lag"),
                ),
            ),
            Panel(
                "Staleness",
                "From the end of an episode to the update that learns from it.",
                "s",
                (Query(of("window_age_seconds"), "mean age"),),
            ),
            Panel(
                "Updates",
                "Updates so far, and trajectories that no update has folded yet.",
                "short",
                (Query(of("update"), "updates"), Query(of("pending"), "pending trajectories")),
            ),
            Panel(
                "Time of an update", "Wall time of the last update.", "s", (Query(of("update_seconds"), "last update"),)
            ),
            Panel(
                "Health of learning",
                "An entropy that falls to 0 explores no more; a sample share near 0 learns from few of the samples.",
                "short",
                (
                    Query(of("entropy"), "entropy"),
                    Query(of("sample_share"), "sample share"),
                    Query(of("value_accuracy"), "accuracy of V(s)"),
                ),
            ),
        ),
    ),
    Row(
        "Versions",
        (
            Panel(
                "Versions loaded",
                "The version that each worker has loaded, and the newest that the learner has published.",
                "short",
                (
                    Query(f"max({of('version', OF_LEARNER)})", "published"),
                    Query(of("version", OF_WORKERS), "{{process}}"),
                ),
            ),
            Panel(
                "Reload time",
                "From the publication of a version to its first use by a worker.",
                "s",
                (Query(of("reload_seconds"), "{{process}}"),),
            ),
            Panel(
                "Refused versions",
                "Versions of the last 30 minutes with a wrong hash or another base model.",
                "short",
                (Query(f"sum by (process) (increase({of('reload_alerts')}[30m]))", "{{process}}"),),
            ),
        ),
    ),
    Row(
        "Phones",
        (
            Panel(
                "Phones by state",
                "Phones in the states idle and leased answer.",
                "short",
                (Query(f"sum by (state) ({of('devices')})", "{{state}}"),),
            ),
            Panel(
                "Phone events",
                "Recoveries and failures of phones in the last 30 minutes.",
                "short",
                (Query(f"sum by (event) (increase({of('device_events', NO_LEASE)}[30m]))", "{{event}}"),),
            ),
            Panel(
                "Time of a step",
                "What the time of a step is spent on, as means over the workers.",
                "s",
                (
                    Query(f"avg({of('phone_ms')})", "action on the phone"),
                    Query(f"avg({of('adb_ms')})", "screenshot and settling"),
                    Query(f"avg({of('policy_ms')})", "policy"),
                    Query(f"avg({of('publish_ms')})", "storing the screenshot"),
                ),
            ),
        ),
    ),
    Row(
        "Trouble",
        (
            Panel(
                "Dead letters",
                "Records of the last hour that could not be read.",
                "short",
                (Query(f"sum by (role) (increase({of('dead_letters')}[1h]))", "{{role}}"),),
            ),
            Panel(
                "Waiting for Kafka or the store",
                "Calls that are not answered yet.",
                "short",
                (Query(of("stalled"), "{{role}} {{process}}"),),
            ),
            Panel(
                "Progress",
                "Time since the main loop of each process last made progress; the liveness probe uses it.",
                "s",
                (Query(of("progress_age_seconds"), "{{role}} {{process}}"),),
            ),
        ),
    ),
)


def dashboard(rows: Sequence[Row] = ROWS) -> dict[str, Any]:
    """Grafana's JSON model."""
    return {
        "uid": "distrl",
        "title": "DistRL",
        "tags": ["distrl"],
        "schemaVersion": SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                {
                    "name": "run",
                    "label": "Run",
                    "type": "query",
                    "datasource": SOURCE,
                    "query": {"query": f"label_values({name('ready')}, run)", "refId": "run"},
                    "refresh": 2,
                    "sort": 1,
                },
            ]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(_panels(rows), 1)],
    }


def _panels(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    y = 0
    for row in rows:
        yield {
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1},
        }
        y += 1
        per_line = COLUMNS // WIDTH
        for index, panel in enumerate(row.panels):
            place = {"x": index % per_line * WIDTH, "y": y + index // per_line * HEIGHT, "w": WIDTH, "h": HEIGHT}
            yield _panel(panel, place)
        y += -(-len(row.panels) // per_line) * HEIGHT


def _panel(panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }
