"""What the chart holds of the program's own is what the program says today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "distrl"


def test_make_chart_changes_nothing(tmp_path: Path) -> None:
    generate = [sys.executable, str(ROOT / "charts" / "generate"), "--to", str(tmp_path)]
    subprocess.run(generate, check=True, timeout=300)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert {"values.schema.json", "README.md"} <= {str(path) for path in made}
    stale = [str(path) for path in made if (CHART / path).read_bytes() != (tmp_path / path).read_bytes()]
    assert stale == [], "run `make chart`"


def test_every_file_of_files_is_made(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(ROOT / "charts" / "generate"), "--to", str(tmp_path)], check=True, timeout=300)
    assert {path.name for path in (CHART / "files").iterdir()} == {path.name for path in (tmp_path / "files").iterdir()}
