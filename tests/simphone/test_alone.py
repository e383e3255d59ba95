"""Other people need phones without what distrl needs."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest
import simphone

FOLDER = Path(simphone.__file__).parent
MODULES = sorted(FOLDER.rglob("*.py"))
ALLOWED = {*sys.stdlib_module_names, "PIL", "simphone"}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: str(module.relative_to(FOLDER)))
def test_a_module_imports_the_standard_library_pillow_and_simphone_alone(module: Path) -> None:
    imported: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text())):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not looked at here"
            imported.add(str(node.module).split(".")[0])
    assert imported <= ALLOWED


def test_there_are_modules_to_look_at() -> None:
    assert len(MODULES) > 50
