"""A hundred thousand mutants: each is read or refused, none crashes, hangs or takes memory that it only claims."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = 100_000


@pytest.mark.timeout(900)
def test_every_mutant_is_read_or_refused_within_bounded_memory() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.wire.mutants", str(COUNT), "8"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout)
    assert found["read"] + found["refused"] == COUNT
    assert found["read"] > COUNT / 100, "some mutants are records, else nothing but the first check was tried"
    assert found["older"] > COUNT / 1000, "mutants of older versions are tried too, by the way that they are read"
    assert found["slowest_s"] < 5.0
