"""A cluster as the chart needs one: pods of the image, DNS, volumes, and policies that block."""

from __future__ import annotations

import json

from k8s.cluster import Cluster, pod
from k8s.reach import asks

PORT = 8080
SERVE = ("python", "-m", "http.server", str(PORT))


def test_the_node_is_ready(kube: Cluster) -> None:
    nodes = kube.get("nodes")["items"]
    ready = [each["status"] for node in nodes for each in node["status"]["conditions"] if each["type"] == "Ready"]
    assert ready
    assert set(ready) == {"True"}


def test_a_service_has_a_name(space: Cluster) -> None:
    address = space.get("service", "kubernetes", "--namespace=default")["spec"]["clusterIP"]
    look_up = "import socket; print(socket.gethostbyname('kubernetes.default.svc.cluster.local'))"
    assert space.run("asks", "python", "-c", look_up).strip() == address


def test_the_image_runs_the_program(space: Cluster) -> None:
    assert "Usage: distrl" in space.run("helps")


def test_the_image_is_nobodys_to_write(space: Cluster) -> None:
    """As the chart runs it: no root, nothing written but /tmp and /var/lib/distrl."""
    found = space.run(
        "looks",
        "sh",
        "-c",
        "id -u; id -g; for d in / /opt/distrl /etc /tmp /var/lib/distrl; do test -w $d && echo $d; done; true",
    )
    assert found.split() == ["65532", "65532", "/tmp", "/var/lib/distrl"]


def test_the_image_learns_on_a_cpu(space: Cluster) -> None:
    """What the image leaves out of CUDA is nothing that a gradient needs, nor the import of the policy's libraries."""
    step = (
        "import peft, torch, transformers; w = torch.ones(3, 3, requires_grad=True);"
        "torch.linalg.inv(w @ w + torch.eye(3)).sum().backward(); print(w.grad.isfinite().all().item())"
    )
    assert space.run("steps", "python", "-c", step).strip() == "True"


def test_the_image_says_what_it_is_made_of(space: Cluster) -> None:
    bill = json.loads(space.run("lists", "cat", "/opt/distrl/sbom.cdx.json"))
    assert bill["bomFormat"] == "CycloneDX"
    assert {"torch", "confluent-kafka", "pydantic"} <= {each["name"] for each in bill["components"]}


def test_a_volume_outlives_its_pod(space: Cluster) -> None:
    space.apply(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}},
        }
    )
    held = {
        "securityContext": {"runAsNonRoot": True, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    space.run("writes", "sh", "-c", "echo kept > /data/file", **held)
    space.kubectl("delete", "pod", "writes")
    assert space.run("reads", "cat", "/data/file", **held).strip() == "kept"


def test_a_policy_blocks_what_it_does_not_name(space: Cluster) -> None:
    """Ingress: a server that only friends reach. Egress: a client that reaches only servers."""
    labels = {
        "server": {"app": "server"},
        "other": {"app": "other"},
        "friend": {"app": "friend"},
        "jailed": {"app": "friend", "jailed": "yes"},
    }
    space.apply(
        *(pod(name, space.image, SERVE, labels=own, ports=[{"containerPort": PORT}]) for name, own in labels.items()),
        policy("server", "Ingress", {"app": "friend"}, named={"app": "server"}),
        policy("jail", "Egress", {"app": "server"}, named={"jailed": "yes"}),
    )
    space.kubectl("wait", "--for=condition=Ready", *(f"pod/{name}" for name in labels), "--timeout=120s")
    targets = {f"{space.get('pod', name)['status']['podIP']}:{PORT}": name for name in ("server", "other")}

    def reached(name: str) -> set[str]:
        return {targets[each] for each in space.kubectl("exec", name, "--", *asks(*targets)).split()}

    def reaches(name: str, *wanted: str) -> None:
        """Policies are in force soon after a pod has its address, and not before its first packet."""
        space.until(f"{name} reaches {wanted} alone", lambda: reached(name) == set(wanted))

    reaches("friend", "server", "other")
    reaches("other", "other")
    reaches("jailed", "server")


def policy(name: str, kind: str, peer: dict[str, str], *, named: dict[str, str]) -> dict[str, object]:
    """Lets pods that are `named` so talk with `peer` on PORT, and nobody else, in one direction."""
    rule = {
        "ports": [{"port": PORT}],
        {"Ingress": "from", "Egress": "to"}[kind]: [{"podSelector": {"matchLabels": peer}}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {"matchLabels": named}, "policyTypes": [kind], kind.lower(): [rule]},
    }
