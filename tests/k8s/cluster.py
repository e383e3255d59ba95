"""A cluster as tests use it, whoever made it: kubectl and helm as its administrator, and an image that it has."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import gotools

from k8s.node.calls import CallError, called

Command = Callable[[Sequence[str | Path]], list[str]]
WAIT_S = 120.0
"""For what a free cluster does in seconds."""
POLL_S = 0.2
LOG_LINES = 15
"""Of each container."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """kubectl's namespace is `namespace` in every call."""

    image: str
    command: Command
    """The command line that runs a program on this machine so that it reaches the cluster."""
    namespace: str = "default"

    def kubectl(self, *arguments: str, given: str | None = None) -> str:
        """What kubectl prints. Raises CallError."""
        return called(self.command(["kubectl", "--namespace", self.namespace, *arguments]), given)

    def helm(self, *arguments: str | Path) -> str:
        """What helm prints. Raises CallError."""
        return called(self.command([gotools.tool("helm"), "--namespace", self.namespace, *arguments]))

    @contextmanager
    def namespace_of_its_own(self) -> Iterator[Cluster]:
        """The cluster in a new namespace, which takes no pod but restricted ones, and goes after the block."""
        mine = replace(self, namespace=f"test-{secrets.token_hex(4)}")
        self.kubectl("create", "namespace", mine.namespace)
        self.kubectl("label", "namespace", mine.namespace, "pod-security.kubernetes.io/enforce=restricted")
        mine.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
        yield mine
        self.kubectl("delete", "namespace", mine.namespace, "--wait=false")

    def apply(self, *objects: dict[str, Any]) -> None:
        whole = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", given=json.dumps(whole))

    def get(self, *arguments: str) -> Any:
        """What `kubectl get` finds, as JSON has it."""
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def run(self, name: str, *command: str, **more: Any) -> str:
        """What a pod of the image prints, once it has ended in order. more: fields of its spec."""
        self.apply(pod(name, self.image, command, **more))
        self.until(f"pod {name} ends", lambda: self.phase(name) in {"Succeeded", "Failed"})
        said = self.kubectl("logs", name)
        assert self.phase(name) == "Succeeded", said
        return said

    def everything(self) -> set[str]:
        """Every object in the namespace, as kind/name; without events, which say what was."""
        kinds = self.kubectl("api-resources", "--namespaced", "--verbs=list", "--output=name").split()
        asked = [kind for kind in kinds if not kind.startswith("events")]
        return set(self.kubectl("get", ",".join(asked), "--output=name", "--ignore-not-found").split())

    def phase(self, name: str) -> str:
        return str(self.get("pod", name)["status"]["phase"])

    def until(self, what: str, done: Callable[[], bool], within_s: float = WAIT_S, every_s: float = POLL_S) -> None:
        """Waits until `done`. Raises AssertionError after `within_s`, with the namespace's last events and the end of
        each pod's log: the pods are gone once the test has ended.

        every_s: between two tries; what starts a program of the image takes seconds of a processor.
        """
        deadline = time.monotonic() + within_s
        while not done():
            if time.monotonic() > deadline:
                raise AssertionError(f"after {within_s:.0f} s not yet so: {what}\n{self.seen()}")
            time.sleep(every_s)

    def seen(self) -> str:
        """The namespace's last events, and the last lines of each pod's log."""
        logs = [self._log(pod["metadata"]["name"]) for pod in self.get("pods")["items"]]
        return "\n".join((self.kubectl("get", "events", "--sort-by=.lastTimestamp")[-3000:], *logs))

    def _log(self, name: str) -> str:
        try:
            return self.kubectl("logs", name, "--all-containers", "--prefix", f"--tail={LOG_LINES}")
        except CallError as error:  # a container that has not started, a pod that has just gone
            return str(error)


def pod(name: str, image: str, command: Sequence[str], **more: Any) -> dict[str, Any]:
    """A pod that runs once, as the chart runs the image: restricted, and with nothing to write to but two folders.

    more: labels, volumeMounts, ports of its container, and fields of its spec.
    """
    labels, mounts, ports = (
        more.pop(key, empty) for key, empty in (("labels", {}), ("volumeMounts", []), ("ports", []))
    )
    folders = {"tmp": "/tmp", "home": "/var/lib/distrl"}
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [*({"name": key, "mountPath": path} for key, path in folders.items()), *mounts],
        "ports": ports,
    }
    if command:
        container["command"] = list(command)
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        **more,
        "volumes": [*({"name": key, "emptyDir": {}} for key in folders), *more.get("volumes", [])],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
