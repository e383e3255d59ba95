"""Rules for Prometheus and a dashboard for Grafana, from what telemetry declares."""

from __future__ import annotations

import json
from typing import Any

import yaml
from distrl.telemetry.alerts import ALERTS, RECORDED, Alert
from distrl.telemetry.dashboard import dashboard as declared


def rules() -> str:
    """A file of rules as Prometheus reads it, which is the spec of a PrometheusRule as well."""
    groups = [
        {"name": "distrl.recorded", "rules": [{"record": each.name, "expr": each.expression} for each in RECORDED]},
        {"name": "distrl.alerts", "rules": [_alert(each) for each in ALERTS]},
    ]
    return yaml.safe_dump({"groups": groups}, sort_keys=False, width=1000)


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "runbook": alert.runbook},
    }


def dashboard() -> str:
    return json.dumps(declared(), indent=1) + "\n"
