"""KEDA on the tests' own node: its operator and its server of metrics, built from source, by its own manifests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gotools
import yaml

from k8s.cluster import Cluster
from k8s.node.calls import called
from k8s.node.node import Node

MODULE = "keda"
SOURCE = "github.com/kedacore/keda/v2"
NAMESPACE = "keda"
PROGRAMS = {"keda-operator": "operator", "keda-metrics-apiserver": "adapter"}
"""What Go built, for each Deployment."""
METRICS = "apiservice/v1beta1.external.metrics.k8s.io"


def definitions() -> list[Path]:
    """Files with the definitions of KEDA's resources."""
    return sorted((gotools.source(MODULE, SOURCE) / "config" / "crd" / "bases").glob("keda.sh_*.yaml"))


def install(node: Node, cluster: Cluster) -> None:
    """Returns once KEDA answers for metrics."""
    images = {}
    for deployment, program in PROGRAMS.items():
        built = gotools.tool(MODULE, program)
        images[deployment] = f"localhost/{deployment}:{built.parent.name}"
        if not node.store.has(images[deployment]):
            node.store.of_program(images[deployment], built)
        node.load(images[deployment])
    kubectl = cluster.command(["kubectl"])  # in no namespace: KEDA's objects name several
    published = called([*kubectl, "kustomize", str(gotools.source(MODULE, SOURCE) / "config" / "minimal")])
    objects = [each for each in yaml.safe_load_all(published) if each]
    for each in objects:
        if each["kind"] == "Deployment":
            name = each["metadata"]["name"]
            _run_here(each["spec"]["template"]["spec"], images[name], PROGRAMS[name])
    called([*kubectl, "apply", "--server-side", "--filename=-"], yaml.safe_dump_all(objects))
    called([*kubectl, "wait", "--for=condition=Available", METRICS, "--timeout=300s"])


def _run_here(pod: dict[str, Any], image: str, program: str) -> None:
    """The image is of this machine, names no user, and has nothing but the program."""
    pod["securityContext"]["runAsUser"] = 65532
    (container,) = pod["containers"]
    container |= {"image": image, "imagePullPolicy": "Never", "command": [f"/{program}"]}
    container["resources"]["requests"] = {"cpu": "20m", "memory": "64Mi"}
    container["readinessProbe"] |= {"initialDelaySeconds": 1, "periodSeconds": 2}
