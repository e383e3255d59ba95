"""Every manifest of every example of the chart's values, as the API server judges it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from chart_examples import CHART, EXAMPLES

from k8s.cluster import Cluster
from k8s.node.calls import CallError


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda file: file.name.removesuffix("-values.yaml"))
def test_the_server_takes_every_manifest(space: Cluster, undefined: set[str], values: Path) -> None:
    """Its dry run: admission, defaults and validation, fields of custom resources too; nothing is stored."""
    text = space.helm("template", "run", CHART, "--values", values)
    objects = [each for each in yaml.safe_load_all(text) if each]
    versions = space.kubectl("api-versions").split()
    known = [each for each in objects if each["apiVersion"] in versions]
    assert {each["apiVersion"].partition("/")[0] for each in objects if each not in known} <= undefined
    said = space.kubectl("apply", "--dry-run=server", "--filename=-", given=yaml.safe_dump_all(known))
    assert [line.rpartition(" (")[2] for line in said.splitlines()] == ["server dry run)"] * len(known)


def test_the_server_refuses_a_field_of_nobody(space: Cluster, undefined: set[str]) -> None:
    """So that the test above could fail, for Kubernetes' own objects and for those of operators."""
    files = [CHART / "ci" / f"{name}-values.yaml" for name in ("production", "ranks")]
    texts = [space.helm("template", "run", CHART, "--values", file) for file in files]
    objects = {each["kind"]: each for text in texts for each in yaml.safe_load_all(text) if each}
    operators = {"keda.sh": "ScaledObject", "leaderworkerset.x-k8s.io": "LeaderWorkerSet"}
    for kind in ("Deployment", *(kind for group, kind in operators.items() if group not in undefined)):
        found = objects[kind]
        found["spec"]["madeUp"] = 1
        with pytest.raises(CallError, match="madeUp"):
            space.kubectl("apply", "--dry-run=server", "--filename=-", given=yaml.safe_dump(found))
