"""The chart's demo on a cluster: one release from its installation to its end, whose pods really train.

The tests go on from each other, in this order.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from chart_examples import CHART

from k8s.cluster import Cluster
from k8s.node.calls import CallError
from k8s.reach import asks

HERE = Path(__file__).parent
RELEASE = "demo"
CONFIG = "/etc/distrl/config.yaml"
LEARNER = "distrl/role=learner"
WORKER = "distrl/role=worker"
KAFKA = "distrl/role=kafka"
POD = "pod/demo-distrl-learner-0"
LEARN_S = 600.0
"""Until the next version: a start, phones, episodes and an update, on two busy cores."""
NEWEST = f"""
import sys, time
from pathlib import Path
from distrl.broker.versions import lineage
from distrl.config import load
config, wanted, deadline = load(Path("{CONFIG}")), int(sys.argv[1]), time.monotonic() + 60
newest = -1
while newest < wanted and time.monotonic() < deadline:
    time.sleep(0.5)
    newest = max((each.version for each in lineage(config)), default=-1)
print(newest)
"""
"""Waits where the program is loaded: to load it takes seconds of a processor."""
LOOK = """
import sys
from urllib.error import HTTPError
from urllib.request import Request, urlopen
asked = Request("http://127.0.0.1:8080/api/runs/demo", headers={"Authorization": f"Bearer {sys.argv[1]}"})
try:
    print(urlopen(asked, timeout=60).read().decode())
except HTTPError as error:
    print(error.code)
"""
DEMO = yaml.safe_load((HERE / "demo-values.yaml").read_text())
TASKS = DEMO["config"]["evaluate"]["validation_episodes"]
RISE = 5
"""Held-out tasks more, of TASKS: of tasks that version 0 cannot do, chance brings none."""


@pytest.fixture(scope="module")
def values(kube: Cluster, demo_servers: list[str]) -> list[str]:
    """Words of helm: the demo's values, with the image of this checkout."""
    repository, _, tag = kube.image.rpartition(":")
    files = (CHART / "ci" / "demo-values.yaml", HERE / "demo-values.yaml")
    named = [word for file in files for word in ("--values", str(file))]
    return [*named, "--set-string", f"image.repository={repository},image.tag={tag}", *demo_servers]


@pytest.fixture(scope="module")
def space(kube: Cluster) -> Iterator[Cluster]:
    with kube.namespace_of_its_own() as mine:
        yield mine


@pytest.fixture(scope="module")
def untouched(space: Cluster) -> set[str]:
    """What a namespace has of itself."""
    space.kubectl("wait", "--for=create", "configmap/kube-root-ca.crt", "--timeout=60s")
    return space.everything()


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


def newest(space: Cluster, wanted: int = 0) -> int:
    """The highest version of the run's log, once it is `wanted` or a minute has passed; -1 where the pod or the broker
    does not answer."""
    try:
        return int(space.kubectl("exec", POD, "--container=learner", "--", "python", "-c", NEWEST, str(wanted)))
    except CallError:
        return -1


def learns(space: Cluster) -> None:
    """Waits for the next version."""
    space.until("the learner's pod answers", lambda: newest(space) >= 0, LEARN_S)
    wanted = newest(space) + 1
    space.until(f"version {wanted}", lambda: newest(space, wanted) >= wanted, LEARN_S)


def successes(space: Cluster) -> dict[int, int]:
    """Held-out tasks that each version has done, of those that were evaluated on all TASKS."""
    asked = ("distrl", "scores", "--config", CONFIG, "--split=validation", "--json")
    try:
        said = space.kubectl("exec", POD, "--container=learner", "--", *asked)
    except CallError:  # no evaluation yet
        return {}
    whole = [each for each in json.loads(said)["scores"] if each["episodes"] == TASKS]
    return {each["version"]: round(each["success"] * TASKS) for each in whole}


def test_a_wrong_value_is_refused_and_nothing_is_installed(
    space: Cluster, values: list[str], untouched: set[str]
) -> None:
    with pytest.raises(CallError, match="trajectories_per_update"):
        space.helm("install", RELEASE, CHART, *values, "--set", "config.learner.trajectories_per_update=none")
    assert space.everything() == untouched


def test_an_installation_learns(space: Cluster, values: list[str]) -> None:
    """Kafka, the S3 endpoint and phones in pods; demonstrations, then versions of what workers played."""
    space.helm("install", RELEASE, CHART, *values)
    space.until("version 2", lambda: newest(space, 2) >= 2, LEARN_S)


def test_roles_reach_what_they_use_and_nothing_else(space: Cluster) -> None:
    """By the NetworkPolicies of the release, from the pods that it has."""
    kafka, store = "demo-distrl-kafka:9092", "demo-distrl-s3:9000"
    feeder = space.get("pods", "--selector=distrl/role=feeder")["items"][0]["status"]["podIP"]
    figures, api, pages = f"{feeder}:9400", "kubernetes.default.svc:443", "demo-distrl-viewer:8080"

    def reached(role: str, name: str) -> set[str]:
        command = asks(kafka, store, api, *([figures] if role != "feeder" else []))
        return set(space.kubectl("exec", name, f"--container={role}", "--", *command).split())

    def reached_by(name: str, **labels: str) -> set[str]:
        return set(space.run(name, *asks(kafka, store, api, figures, pages), labels=labels).split())

    assert reached("feeder", "deployment/demo-distrl-feeder") == {kafka}
    assert reached("learner", POD) == {kafka, store}
    assert reached("worker", "deployment/demo-distrl-worker-demo") == {kafka, store}
    assert reached("evaluator", "deployment/demo-distrl-evaluator") == {kafka, store}
    assert reached("viewer", "deployment/demo-distrl-viewer") == {kafka, store}
    assert reached_by("stranger") == {api}
    assert reached_by("scraper", app="scraper") == {api, figures}  # networkPolicy.monitoring.from
    assert reached_by("browser", app="browser") == {api, pages}  # networkPolicy.viewer.from
    space.kubectl("delete", "pod", "stranger", "scraper", "browser")


def test_the_viewer_serves_the_run_to_who_has_its_token(space: Cluster) -> None:
    def run(token: str) -> str:
        command = ("python", "-c", LOOK, token)
        return space.kubectl("exec", "deployment/demo-distrl-viewer", "--container=viewer", "--", *command).strip()

    token = next(each["stringData"]["token"] for each in DEMO["extraObjects"] if each["metadata"]["name"] == "pages")
    assert run("another one") == "401"

    def seen() -> bool:
        """A page that is asked first answers while the log is still being read."""
        answer = json.loads(run(token))
        return (answer["version"] or 0) >= 2 and answer["trajectories"] > 0

    space.until("the viewer has read the versions and trajectories", seen)


def test_a_killed_learner_goes_on(space: Cluster) -> None:
    kill(space, LEARNER)
    learns(space)


def test_a_killed_worker_is_replaced(space: Cluster) -> None:
    kill(space, WORKER)
    learns(space)


def test_a_killed_broker_comes_back_with_its_log(space: Cluster) -> None:
    kill(space, KAFKA)
    learns(space)


def test_held_out_success_rises(space: Cluster) -> None:
    """As the evaluator's pod measures it: a version above the first one that it measured does RISE tasks more."""

    def risen() -> bool:
        done = successes(space)
        return bool(done) and max(done.values()) >= done[min(done)] + RISE

    space.until(f"a version does {RISE} tasks of {TASKS} more than the first", risen, 2 * LEARN_S, every_s=10.0)


def test_helm_tests_the_release(space: Cluster) -> None:
    try:
        said = space.helm("test", RELEASE, "--timeout=10m")
    except CallError as error:  # which the doctor's log explains, and helm does not
        raise AssertionError(f"{error}\n{space.seen()}") from error
    assert "Phase:          Succeeded" in said


def image_missed(space: Cluster) -> str:
    """Of the learner's pod, where it waits for one that cannot be had; else empty."""
    found = [pod for pod in space.get("pods")["items"] if pod["metadata"]["name"] == POD.partition("/")[2]]
    statuses = [
        status
        for pod in found
        for kind in ("initContainerStatuses", "containerStatuses")
        for status in pod["status"].get(kind, [])
    ]
    missed = [each["image"] for each in statuses if "Image" in each["state"].get("waiting", {}).get("reason", "")]
    return " ".join(missed)


def test_an_upgrade_and_a_rollback_learn_on(space: Cluster, values: list[str]) -> None:
    """One version and more is of two ranks, which has to be what the fresh fold of one comes to in the end. An upgrade
    whose learner cannot start, as there is no such image, is rolled back like any other."""
    other = "config.feeder.max_lag=3,learner.ranks=2"
    space.helm("upgrade", RELEASE, CHART, *values, "--set", other, "--wait", "--timeout=10m")
    assert "max_lag: 3" in space.kubectl("get", "configmap", "demo-distrl", "--output=yaml")
    learns(space)
    assert "2 ranks go on after" in space.kubectl("logs", POD, "--container=learner")
    space.helm("upgrade", RELEASE, CHART, *values, "--set", f"{other},learner.image.tag=absent")
    space.until("the learner's image is looked for", lambda: "absent" in image_missed(space), LEARN_S)
    space.helm("rollback", RELEASE, "1", "--wait", "--timeout=10m")
    assert "max_lag: 3" not in space.kubectl("get", "configmap", "demo-distrl", "--output=yaml")
    learns(space)


@pytest.mark.usefixtures("with_keda")
def test_workers_follow_the_tasks_that_wait(space: Cluster, values: list[str]) -> None:
    """From 2 to 6 while the feeder keeps more tasks waiting than two workers take, and to 2 once it feeds no more."""

    def workers(count: int) -> None:
        space.until(f"{count} workers are ready", lambda: [*pods(space, WORKER).values()] == [True] * count, LEARN_S)

    space.helm("upgrade", RELEASE, CHART, *values, "--values", HERE / "keda-values.yaml")
    pool = space.get("deployment", "demo-distrl-worker-demo")
    assert pool["spec"]["replicas"] >= 2, "a pool that was fixed keeps its pods"
    space.kubectl("wait", "--for=condition=Ready", "scaledobject/demo-distrl-worker-demo", "--timeout=120s")
    workers(6)
    space.kubectl("scale", "deployment/demo-distrl-feeder", "--replicas=0")
    workers(2)
    space.kubectl("scale", "deployment/demo-distrl-feeder", "--replicas=1")
    learns(space)


def test_whatever_was_killed_the_weights_are_those_of_a_fresh_fold(space: Cluster) -> None:
    """No task is fed meanwhile: six workers and the learner would leave the fold a quarter of a processor."""
    space.kubectl("scale", "deployment/demo-distrl-feeder", "--replicas=0")
    verify = ("distrl", "learner", "--config", CONFIG, "--verify", "--from-start")
    said = space.kubectl("exec", POD, "--container=learner", "--", *verify)
    assert "bit for bit the weights of version 0" in said


def test_an_uninstalled_release_leaves_nothing(space: Cluster, untouched: set[str]) -> None:
    space.helm("uninstall", RELEASE, "--wait", "--timeout=5m")
    space.until("every object is gone", lambda: space.everything() == untouched)
