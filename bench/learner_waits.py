"""What a learner whose data never lacks loses to input and output: `bench/scale.py waits`.

Trajectories of simulated phones are in a broker, their screenshots in an object store before the learner starts. Each
request to the store is delayed by --latency-ms, as by a network. Beside the learner, a bare loop folds the same windows
with every record and the features of every screenshot in memory: no input, no output. Each is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import revision
from distrl.broker import topic_admin
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, decoded
from distrl.compute import reproducible
from distrl.config import Config, load, with_run
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.registry import policy_of
from distrl.runs.settings import learning_fingerprint
from distrl.stack.local import LocalStack
from distrl.store.objects import ObjectStore, open_store
from distrl.tasks.suite import suites
from distrl.types import LoggedTrajectory, Split, Trajectory, Update, Watermark
from rich.console import Console

Figures = Mapping[str, float]

SETTLING = 3
"""Updates before those that are timed."""
LEARNING = (
    "warmup.updates=0",
    "warmup.demonstrations=0",
    "algorithm.critic_warmup_updates=0",
    "phones.evaluation_count=0",
)
"""Every update is a whole one of A-RIDE from the first on."""

console = Console(stderr=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--updates", type=int, default=20, help="that are timed")
    parser.add_argument("--latency-ms", default="0,20", help="of each request to the store, one learner for each")
    parser.add_argument("--against", help="a revision to compare with, as git names it")


def measure(given: argparse.Namespace) -> Figures:
    """Updates a second of learners, and their ratio to the bare loop's."""
    latencies = [float(each) for each in given.latency_ms.split(",")]
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as folder, ExitStack() as after:
        trees = {"this": revision.ROOT}
        if given.against is not None:
            trees[given.against] = after.enter_context(revision.checkout(given.against))
        own = [f"stack.directory={folder}/stack", f"store.url=file://{folder}/objects", *LEARNING]
        stack = LocalStack(load(sets=[*own, "run=bench", 'devices.addresses=["127.0.0.1:1"]'], environ={}), print)
        with console.status("starting Kafka"):
            up = stack.up(reuse=True)
        after.callback(stack.down)
        with console.status("playing"):
            played = _played(up, given.updates + SETTLING)
        sets = [*own, f"kafka.bootstrap={up.kafka.bootstrap}"]
        cases = [(name, tree, latency) for latency in latencies for name, tree in trees.items()]
        for number, (name, tree, latency) in enumerate([("bare", revision.ROOT, 0.0), *cases]):
            config = with_run(up, f"waits-{number}")
            _publish(config, played)
            asked = ["bare" if name == "bare" else "learner", str(latency / 1000), str(given.updates)]
            found = _child(tree, [*asked, *sets, f"run={config.run}"])
            what = name if name == "bare" else f"{name}, {latency:g} ms"
            figures |= {f"{what}: {key}": figure for key, figure in found.items()}
            if name != "bare":
                ratio = found["updates a second"] / figures["bare: updates a second"]
                figures[f"{what}: updates a second, ratio to the bare loop"] = ratio
            console.print(what, dict(found))
    return figures


def _played(config: Config, updates: int) -> Sequence[Trajectory]:
    """Enough for so many updates, each with screens of its own."""
    import learning  # fits this tree alone, and the measured process may have the code of another

    count = updates * config.learner.trajectories_per_update
    tasks = [suites()["home"].task(index, 1000, Split.TRAIN) for index in range(count)]
    policy, objects = policy_of(config.policy, 0), dict[str, bytes]()
    with reproducible(config.learner.torch_threads):
        made = learning.episodes(tasks, learning.script(policy, 0), objects, 0.0, True)
    folder = Path(config.store.url.removeprefix("file://")) / "screenshots"
    folder.mkdir(parents=True)
    for name, png in objects.items():
        (folder / f"{name}.png").write_bytes(png)
    return made


def _publish(config: Config, played: Sequence[Trajectory]) -> None:
    topic_admin.ensure(config)
    with RecordProducer(config, "bench") as producer:
        for each in played:
            producer.publish("trajectories", each.task_id, each).result(60)


def _child(tree: Path, asked: Sequence[str]) -> Figures:
    """This script with the code of `tree`."""
    environ = os.environ | {"PYTHONPATH": str(tree / "pipeline")}
    made = subprocess.run(
        [sys.executable, __file__, *asked], env=environ, check=True, stdout=subprocess.PIPE, text=True
    )
    figures: Figures = json.loads(made.stdout.splitlines()[-1])
    return figures


class Delayed:
    """A store whose every request takes longer."""

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        self._store, self._seconds = store, seconds

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def delayed(*given: Any, **named: Any) -> Any:
            time.sleep(self._seconds)
            return method(*given, **named)

        return delayed


def run_learner(latency_s: float, updates: int, sets: Sequence[str]) -> Figures:
    try:
        from distrl.learner import run as role
    except ImportError:  # another revision
        from distrl.learner import loop as role  # type: ignore[no-redef]
    config, stop, ends = load(sets=sets, environ={}), threading.Event(), list[float]()
    role.open_store = lambda settings: Delayed(open_store(settings), latency_s)  # type: ignore[assignment,return-value]
    busy: list[float] = []

    def updated(metrics: Mapping[str, float], _: object) -> None:
        ends.append(time.perf_counter())
        busy.append(metrics["folding_seconds"])
        if len(ends) == SETTLING + updates:
            stop.set()

    began = time.perf_counter()
    role.run_learner(config, stop, updated)
    seconds = ends[-1] - ends[SETTLING - 1]
    return {
        "from the start to the end of the first update, s": ends[0] - began,
        "updates a second": updates / seconds,
        "in an update, share of the time": (busy[-1] - busy[SETTLING - 1]) / seconds,
    }


def run_bare(_: float, updates: int, sets: Sequence[str]) -> Figures:
    config = load(sets=sets, environ={})
    with LogReader(config, "trajectories") as reader:
        raws = [raw for batch in reader.to_end() for raw in batch]
    log = sorted((LoggedTrajectory(raw.position, decoded(raw, Trajectory)) for raw in raws), key=_place)
    state, images, size = LearnerState(config), open_store(config.store).get, config.learner.trajectories_per_update
    state.features.load(state.screens(log), images, state.context.compute)
    for u in range(SETTLING + updates):
        if u == SETTLING:
            began = time.perf_counter()
        window = log[u * size : (u + 1) * size]
        ends = {each.position.partition: each.position.offset + 1 for each in log[: (u + 1) * size]}
        marks = tuple(Watermark(log[0].position.topic, partition, end) for partition, end in sorted(ends.items()))
        fold(state, window, Update(u, marks, learning_fingerprint(config), 0), images, config)
    return {"updates a second": updates / (time.perf_counter() - began)}


def _place(logged: LoggedTrajectory) -> tuple[int, int]:
    return logged.position.partition, logged.position.offset


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    kind, latency, updates, *sets = sys.argv[1:]
    measured = (run_bare if kind == "bare" else run_learner)(float(latency), int(updates), sets)
    print(json.dumps(measured))
