"""Jobs of a release that no hook deletes: nobody may change their pods, so who does has to name them otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest
from chart_examples import CHART, rendered

pytestmark = pytest.mark.kubernetes
EXAMPLE = (CHART / "ci" / "demo-values.yaml").read_text()


def jobs(helm: Path, folder: Path, more: str = "") -> dict[str, str]:
    """The names of the release's own Jobs, by what they do."""
    file = folder / "values.yaml"
    file.write_text(EXAMPLE + more)
    found = [each["metadata"] for each in rendered(helm, file) if each["kind"] == "Job"]
    return {
        each["labels"]["app.kubernetes.io/component"]: each["name"] for each in found if "annotations" not in each
    }  # fmt: skip


def test_equal_pods_have_equal_names_and_others_have_others(helm: Path, tmp_path: Path) -> None:
    first = jobs(helm, tmp_path)
    assert first.keys() == {"topics", "demonstrations"}
    assert jobs(helm, tmp_path) == first
    setting = jobs(helm, tmp_path, "\nconfig: {feeder: {max_lag: 3}}\n")
    image = jobs(helm, tmp_path, "\nimage: {repository: other}\n")
    for name, job in first.items():
        assert len({job, setting[name], image[name]}) == 3


def test_their_names_are_no_longer_than_labels_may_be(helm: Path, tmp_path: Path) -> None:
    names = jobs(helm, tmp_path, f"\nfullnameOverride: {'a' * 40}\n")
    assert max(map(len, names.values())) <= 63
