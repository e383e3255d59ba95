"""The measurements are no tests, and nobody runs them when code moves: what they take from the packages is there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

PACKAGES = ("distrl", "simphone")
SCRIPTS = [
    path
    for path in sorted((Path(__file__).parents[1] / "bench").glob("*.py"))
    if any(f"from {package}" in path.read_text() for package in PACKAGES)
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_what_a_measurement_imports_is_there(script: Path) -> None:
    tree = ast.parse(script.read_text())
    taken = [
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in PACKAGES
        for name in node.names
    ]
    assert taken
    assert [f"{module}.{name}" for module, name in taken if not _there(module, name)] == []


def _there(module: str, name: str) -> bool:
    """A name in a module, or a module in a package."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None
