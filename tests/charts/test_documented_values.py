"""The values that docs/kubernetes.md shows are values of the chart, and its alerts are those that there are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from chart_examples import CHART, helm_says
from distrl.telemetry.alerts import ALERTS

pytestmark = pytest.mark.kubernetes
PAGE = (CHART.parents[1] / "docs" / "kubernetes.md").read_text()
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
LEAST = CHART / "tests" / "values.yaml"


def test_there_are_blocks() -> None:
    assert len(BLOCKS) == 4
    assert all(isinstance(yaml.safe_load(each), dict) for each in BLOCKS)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_block_of_values_is_taken(helm: Path, tmp_path: Path, number: int) -> None:
    """Over the least values, since a block may show a part."""
    file = tmp_path / "values.yaml"
    file.write_text(BLOCKS[number])
    done = helm_says(helm, "template", "run", str(CHART), "--values", str(LEAST), "--values", str(file))
    assert done.returncode == 0, done.stderr


def test_every_alert_is_listed_with_its_runbook() -> None:
    listed = re.findall(r"^\| \[(Distrl\w+)\]\((runbooks\.md#\w+)\)", PAGE, re.MULTILINE)
    assert listed == [(each.name, each.runbook.removeprefix("docs/")) for each in ALERTS]
