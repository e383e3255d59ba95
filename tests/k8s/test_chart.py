"""The chart's demo on a cluster: one release from its installation to its end, whose pods really train.

The tests go on from each other, in this order.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s.cluster import Cluster
from k8s.image import ROOT
from k8s.node.calls import CallError

CHART = ROOT / "charts" / "distrl"
RELEASE = "demo"
CONFIG = "/etc/distrl/config.yaml"
LEARNER = "distrl/role=learner"
WORKER = "distrl/role=worker"
POD = "pod/demo-distrl-learner-0"
LEARN_S = 600.0
"""Until the next version: a start, phones, episodes and an update, on two busy cores."""
NEWEST = f"""
from pathlib import Path
from distrl.broker.versions import lineage
from distrl.config import load
found = lineage(load(Path("{CONFIG}")))
print(found[-1].version if found else -1)
"""


@pytest.fixture(scope="module")
def values(kube: Cluster, demo_servers: list[str]) -> list[str]:
    """Words of helm: the demo's values, with the image of this checkout."""
    repository, _, tag = kube.image.rpartition(":")
    files = (CHART / "ci" / "demo-values.yaml", Path(__file__).parent / "demo-values.yaml")
    named = [word for file in files for word in ("--values", str(file))]
    return [*named, "--set-string", f"image.repository={repository},image.tag={tag}", *demo_servers]


@pytest.fixture(scope="module")
def space(kube: Cluster) -> Iterator[Cluster]:
    with kube.namespace_of_its_own() as mine:
        yield mine


def pods(space: Cluster, role: str) -> dict[str, bool]:
    """The pods of a role by their uids, and whether each is ready."""
    found = space.get("pods", "--selector", role)["items"]
    return {
        pod["metadata"]["uid"]: any(
            each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())
        )
        for pod in found
    }


def kill(space: Cluster, role: str) -> None:
    """Kill a pod of a role without grace, and wait until another one is in its place and ready."""
    before = pods(space, role)
    first = space.get("pods", "--selector", role)["items"][0]["metadata"]
    space.kubectl("delete", "pod", first["name"], "--grace-period=0", "--force")

    def replaced() -> bool:
        now = pods(space, role)
        return len(now) == len(before) and first["uid"] not in now and all(now.values())

    space.until(f"a pod of {role} is replaced", replaced, LEARN_S)


def newest(space: Cluster) -> int:
    """The highest version of the run's log; -1 before the first, or while the learner's pod starts."""
    try:
        return int(space.kubectl("exec", POD, "--container=learner", "--", "python", "-c", NEWEST))
    except CallError:
        return -1


def learns(space: Cluster) -> None:
    """Waits for the next version."""
    space.until("the learner's pod answers", lambda: newest(space) >= 0, LEARN_S)
    before = newest(space)
    space.until(f"a version above {before}", lambda: newest(space) > before, LEARN_S)


def test_a_wrong_value_is_refused_and_nothing_is_installed(space: Cluster, values: list[str]) -> None:
    with pytest.raises(CallError, match="trajectories_per_update"):
        space.helm("install", RELEASE, CHART, *values, "--set", "config.learner.trajectories_per_update=none")
    assert space.helm("list", "--short") == ""


def test_an_installation_learns(space: Cluster, values: list[str]) -> None:
    """Kafka, the S3 endpoint and phones in pods; demonstrations, then versions of what workers played."""
    space.helm("install", RELEASE, CHART, *values)
    space.until("version 2", lambda: newest(space) >= 2, LEARN_S)


def test_a_killed_learner_goes_on(space: Cluster) -> None:
    kill(space, LEARNER)
    learns(space)


def test_a_killed_worker_is_replaced(space: Cluster) -> None:
    kill(space, WORKER)
    learns(space)


def test_helm_tests_the_release(space: Cluster) -> None:
    assert "Phase:          Succeeded" in space.helm("test", RELEASE, "--timeout=10m")


def test_an_upgrade_and_a_rollback_learn_on(space: Cluster, values: list[str]) -> None:
    space.helm("upgrade", RELEASE, CHART, *values, "--set", "config.feeder.max_lag=3", "--wait", "--timeout=10m")
    assert "max_lag: 3" in space.kubectl("get", "configmap", "demo-distrl", "--output=yaml")
    learns(space)
    space.helm("rollback", RELEASE, "1", "--wait", "--timeout=10m")
    assert "max_lag: 3" not in space.kubectl("get", "configmap", "demo-distrl", "--output=yaml")
    learns(space)


def test_whatever_was_killed_the_weights_are_those_of_a_fresh_fold(space: Cluster) -> None:
    verify = ("distrl", "learner", "--config", CONFIG, "--verify", "--from-start")
    said = space.kubectl("exec", POD, "--container=learner", "--", *verify)
    assert "bit for bit the weights of version 0" in said


def test_an_uninstalled_release_leaves_nothing(space: Cluster) -> None:
    space.helm("uninstall", RELEASE, "--wait", "--timeout=5m")
    mine = ("--selector", f"app.kubernetes.io/instance={RELEASE}", "--output=name")
    kinds = "all,configmap,secret,serviceaccount,networkpolicy,poddisruptionbudget,persistentvolumeclaim"
    space.until("every object is gone", lambda: space.kubectl("get", kinds, *mine) == "")
