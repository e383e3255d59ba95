"""The chart's examples (charts/distrl/ci), rendered by helm."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[1] / "charts" / "distrl"
EXAMPLES = sorted((CHART / "ci").glob("*-values.yaml"))


def helm_says(helm: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *words], capture_output=True, text=True, timeout=300, check=False)


def rendered(helm: Path, values: Path, release: str = "run") -> list[dict[str, Any]]:
    """Every object of the release."""
    done = helm_says(helm, "template", release, str(CHART), "--values", str(values))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def pods(objects: Sequence[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kind/name of each object that makes pods, and their template."""
    for each in objects:
        name = f"{each['kind']}/{each['metadata']['name']}"
        if each["kind"] in ("Deployment", "StatefulSet", "Job"):
            yield name, each["spec"]["template"]
        elif each["kind"] == "LeaderWorkerSet":
            yield name, each["spec"]["leaderWorkerTemplate"]["workerTemplate"]


def containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """All of a pod, those that initialise it first."""
    return [*pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]


def looked_at(manifests: Path, objects: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """What the program tests/tools/manifests says of the objects."""
    text = yaml.safe_dump_all(objects)
    return subprocess.run([manifests], input=text, capture_output=True, text=True, timeout=60, check=False)
