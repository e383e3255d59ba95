"""What the node takes from the machine, said at once and together where it is missing.

`python -m k8s.node.needs` prints the Debian packages that are.
"""

from __future__ import annotations

import os
import shutil
import sys

import gotools

PACKAGES = {
    "buildah": "buildah",
    "conntrack": "conntrack",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "iptables": "iptables",
    "mount": "mount",
    "nft": "nftables",
    "openssl": "openssl",
    "runc": "runc",
    "setpriv": "util-linux",
}
"""Debian's package of each program."""


class NodeError(Exception):
    """The node cannot start, or one of its parts ended; says why and what to do."""


def missing() -> list[str]:
    """Debian's packages that have to be installed."""
    return sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})


def check() -> None:
    """Raises NodeError with everything that is missing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        raise NodeError("a Kubernetes node needs Linux and root: run as root, or name a cluster by KUBECONFIG")
    if missing():
        raise NodeError(f"programs are missing: apt-get install --no-install-recommends {' '.join(missing())}")
    if gotools.go() is None:
        raise NodeError(f"Kubernetes is built with Go, and {gotools.NO_GO}")


if __name__ == "__main__":
    print(*missing())
