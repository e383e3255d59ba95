"""What each pod of the learner's LeaderWorkerSet is told, as kubelet, torchrun and the program take it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from chart_examples import CHART, looked_at, pods, rendered
from distrl.ranks.place import LOOPBACK, Place, place_of
from distrl.stack.ports import draw

pytestmark = pytest.mark.kubernetes
EXAMPLE = CHART / "ci" / "ranks-values.yaml"
RANK = Path(__file__).with_name("rank_of_a_pod.py")
PORT = "29500"
END_S = 120.0


def learners(helm: Path, folder: Path, stuck_s: float = 600.0, **learner: Any) -> dict[str, Any]:
    """The LeaderWorkerSet of the example, with other values of the learner."""
    values = yaml.safe_load(EXAMPLE.read_text())
    values["learner"] |= learner
    values["config"]["monitoring"] = {"stuck_s": stuck_s}
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    (found,) = (each for each in rendered(helm, file) if each["kind"] == "LeaderWorkerSet")
    return found


def command(lws: dict[str, Any], index: int, address: str) -> list[str]:
    """What pod `index` runs: its controller adds three variables (AddLWSVariables), and kubelet writes $(NAME) out."""
    (container,) = lws["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
    size = lws["spec"]["leaderWorkerTemplate"]["size"]
    known = {"LWS_LEADER_ADDRESS": address, "LWS_GROUP_SIZE": str(size), "LWS_WORKER_INDEX": str(index)}
    assert container["command"][-1] == "distrl"
    return [re.sub(r"\$\((\w+)\)", lambda found: known[found[1]], word) for word in container["command"]]


def test_with_one_rank_a_pod_the_program_reads_its_place(helm: Path, tmp_path: Path) -> None:
    lws = learners(helm, tmp_path, pods=3, ranks=1)
    address = "run-distrl-learners-0.run-distrl-learners.default"
    for index in range(3):
        words = command(lws, index, address)[:-1]
        said = subprocess.run([*words, "env"], capture_output=True, text=True, timeout=END_S, check=True).stdout
        environ = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
        assert place_of(environ) == Place(index, 3)
        assert (environ["MASTER_ADDR"], environ["MASTER_PORT"]) == (address, PORT)


def test_with_several_ranks_a_pod_torchrun_makes_one_group_of_them_and_one_that_dies_ends_all(
    helm: Path, tmp_path: Path
) -> None:
    lws = learners(helm, tmp_path, pods=2, ranks=2)
    port = draw("test")
    (interface,) = (
        name for name, each in psutil.net_if_addrs().items() if any(one.address == LOOPBACK for one in each)
    )
    running = []
    try:
        for index in range(2):
            first, *words = (word.replace(PORT, str(port)) for word in command(lws, index, LOOPBACK)[:-1])
            assert first == "torchrun"
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("torchrun")), *words, sys.executable, str(RANK)],
                env=os.environ | {"GLOO_SOCKET_IFNAME": interface},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            running.append(process)
        outcomes = [(process.communicate(timeout=END_S), process.returncode) for process in running]
    finally:
        for process in running:
            process.kill()
    for index, ((said, errors), code) in enumerate(outcomes):
        met = [json.loads(line) for line in said.splitlines() if line.startswith("[")]
        assert met == [[[0, 4, 0], [1, 4, 1], [2, 4, 0], [3, 4, 1]]] * 2, errors
        assert code != 0
        ended = {line.partition(":")[0] for line in said.splitlines() if "another rank has ended" in line}
        assert ended <= {f"rank {rank} of 4" for rank in (2 * index, 2 * index + 1)}
        assert ended or index == 1, "torchrun ends the rank that is left in the pod of the dead one"


@pytest.mark.parametrize(("ranks", "more"), [(1, 0), (2, 2700)])
def test_ranks_have_the_time_to_meet_that_the_settings_say(helm: Path, tmp_path: Path, ranks: int, more: int) -> None:
    """torchrun has a limit of its own, and nothing answers a probe before it has started the ranks."""
    seconds = []
    for stuck_s in (5.0, 3600.0):
        lws = learners(helm, tmp_path, stuck_s, pods=2, ranks=ranks)
        (container,) = lws["spec"]["leaderWorkerTemplate"]["workerTemplate"]["spec"]["containers"]
        seconds.append(container["startupProbe"]["failureThreshold"] * container["startupProbe"]["periodSeconds"])
    assert ("--rdzv-conf=timeout=3600" in container["command"]) is (ranks > 1)
    assert seconds[1] - seconds[0] == more


def test_pod_security_restricted_takes_the_pods_that_its_controller_makes(helm: Path, manifests: Path) -> None:
    """A StatefulSet has its template, which the program that looks at manifests knows."""
    objects = rendered(helm, EXAMPLE)
    template = dict(pods(objects))["LeaderWorkerSet/run-distrl-learners"]
    labels = template["metadata"]["labels"]
    spec = {"replicas": 1, "serviceName": "learners", "selector": {"matchLabels": labels}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "learners"}, "spec": spec}
    done = looked_at(manifests, [made])
    assert done.stdout == "1 sound, 0 of other kinds, 0 wrong\n"
