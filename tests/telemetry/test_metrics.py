"""The list of metrics holds what is sent; tests of the roles hold that nothing else is."""

from __future__ import annotations

import ast
from pathlib import Path

from distrl.telemetry.metrics import METRICS

CODE = Path(__file__).parents[2] / "pipeline" / "distrl"


def names_in(file: Path) -> set[str]:
    """Texts, names of fields and of keyword arguments: what a metric's name can come from."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Constant(value=str() as text):
                found.add(text)
            case ast.keyword(arg=str() as name) | ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
    return found


def test_every_metric_is_sent_by_somebody() -> None:
    rooms = ("worker", "rollout", "learner", "algorithms", "feeder", "evaluate", "judge", "chat")
    known = set[str]().union(*(names_in(file) for room in rooms for file in (CODE / room).rglob("*.py")))
    assert sorted(METRICS.keys() - known) == []
