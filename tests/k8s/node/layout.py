"""Names, addresses and places of the node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import Template

NAME = "node1"
CGROUP = "distrl-node"
FILES = Path(__file__).parent / "files"

# In the node's own network, which ends with it.
ADDRESS = "192.168.250.1"
PODS = "10.244.0.0/24"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
DNS = "10.96.0.10"
API = f"https://{ADDRESS}:6443"
ETCD = "http://127.0.0.1:2379"

VOLUMES = 20
"""Volumes to claim. A released one is not bound again, so this is how many claims one start of the node can serve."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a node's files are."""

    root: Path
    """Of the user's cache. One node at a time is there."""
    programs: Path
    """What Go built, and a link for each name that one of them goes by."""

    @property
    def state(self) -> Path:
        """What ends with the node."""
        return self.root / "state"

    @property
    def images(self) -> Path:
        """containerd's files: images stay unpacked from one start to the next."""
        return self.root / "containerd"

    @property
    def logs(self) -> Path:
        return self.state / "log"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.state / "admin.kubeconfig"

    def fill(self, name: str, **more: str) -> str:
        """The text of a file of `files/` with the node's names in it."""
        return Template((FILES / name).read_text()).substitute(
            address=ADDRESS,
            cgroup=CGROUP,
            dns=DNS,
            images=self.images,
            node=NAME,
            pods=PODS,
            programs=self.programs,
            state=self.state,
            **more,
        )
