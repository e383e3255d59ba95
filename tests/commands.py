"""Runs `distrl` as a person does, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

NO_VARIABLES: Mapping[str, str] = {}


def run_distrl(
    folder: Path,
    *arguments: str,
    limit_s: float,
    variables: Mapping[str, str] = NO_VARIABLES,
    answer: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """`distrl ARGUMENTS` in `folder`, with `variables` and no other DISTRL_ ones. answer: its standard input."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    return subprocess.run(
        [sys.executable, "-m", "distrl.cli.main", *arguments],
        cwd=folder,
        env={**others, **variables},
        capture_output=True,
        text=True,
        input=answer,
        timeout=limit_s,
        check=False,
    )
