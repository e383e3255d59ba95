"""The demo's last lines of output: the run's results, from report.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def held_out_success(report: Mapping[str, Any]) -> str:
    """Held-out success of the first and the last version evaluated. report: the content of report.json."""
    versions = [each for each in report["success_by_policy"] if each["version"] >= 0]
    ends = versions if len(versions) < 2 else [versions[0], versions[-1]]
    return "held-out success: " + (", ".join(map(_success, ends)) or "no version was evaluated")


def _success(scored: Mapping[str, Any]) -> str:
    success = "-" if scored["success"] is None else f"{scored['success']:.1%}"
    others = f" ({scored['others']} more without an outcome)" if scored["others"] else ""
    return f"{scored['policy']} {success} of {scored['episodes']} tasks{others}"
