"""The node that the tests start by themselves: how it ends. These run before the session's node is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
from fetching import cache

from k8s.node.calls import called
from k8s.node.cgroups import ROOT
from k8s.node.layout import CGROUP
from k8s.node.node import running

ENDED_S = 30.0


def traces() -> list[str]:
    """What is there of a node beside its caches."""
    state = cache() / "node" / "state"
    groups = [*ROOT.glob(CGROUP), *ROOT.glob(f"*/{CGROUP}")]
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(state) in line]
    return [*map(str, groups), *mounts, *([str(state)] if state.exists() else [])]


def test_a_killed_session_leaves_no_process_and_the_next_node_nothing() -> None:
    tests = Path(__file__).parents[1]
    session = subprocess.Popen(
        [sys.executable, "-m", "k8s.node", "sh", "-c", "echo up; sleep 600"],
        cwd=tests,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert session.stdout is not None
    assert session.stdout.readline() == "up\n"
    processes = psutil.Process(session.pid).children(recursive=True)
    assert {"kubelet", "containerd", "coredns"} <= {process.name() for process in processes}
    session.kill()
    session.wait()
    _, alive = psutil.wait_procs(processes, ENDED_S)
    # The shell was in the node's network, and not among its processes.
    for process in alive:
        assert process.name() in {"sh", "sleep"}
        process.kill()
    with running(lambda text: None) as node:
        assert "Ready" in called(node.command(["kubectl", "get", "nodes"]))
    assert traces() == []
