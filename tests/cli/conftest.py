"""The command line as a person meets it: a process of its own, in an empty folder, without DISTRL_* variables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

LIMIT_S = 400.0


class Cli(Protocol):
    def __call__(
        self, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]: ...


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `distrl ARGUMENTS` in tmp_path to its end."""

    def run(*arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
        line = [sys.executable, "-m", "distrl.cli.main", *arguments]
        return subprocess.run(
            line,
            cwd=tmp_path,
            env={**kept, **(environ or {})},
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    return run
