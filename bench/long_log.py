"""How long a feeder and `distrl status` take to start behind a long log, with a snapshot and without:
`bench/scale.py start`.

Each start is a process of its own, on a broker in a temporary directory. The records are real ones of one step, made
from one of each kind by putting other ids into its bytes; a transaction of journal or versions holds many.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from distrl.broker import claims, topic_admin
from distrl.broker.connect import settings as client_settings
from distrl.broker.fenced import FencedProducer, Outgoing
from distrl.broker.group import workers_group
from distrl.broker.journal import ROLE
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, decoded
from distrl.broker.snapshots import TOPIC
from distrl.broker.topics import topic_name
from distrl.cli import stack as command
from distrl.config import Config, load, with_run
from distrl.feeder import run as feeding
from distrl.feeder.fleet import Fleet
from distrl.feeder.snapshots import Known, SnapshotWriter, known
from distrl.feeder.topics import Topics
from distrl.stack.local import LocalStack
from distrl.tasks.suite import suite_named
from distrl.telemetry import feed as feeds
from distrl.telemetry.view import RunView
from distrl.types import (
    Action,
    ActionKind,
    DeviceHealth,
    Evaluation,
    Heartbeat,
    ObjectRef,
    Outcome,
    Snapshot,
    Split,
    Step,
    Task,
    Trajectory,
    Update,
    Version,
    Watermark,
)
from distrl.wire.codec import encode
from rich.console import Console

PROCESSES = 100
HEARTBEATS = 4
"""For each trajectory: 4 million for 10^6, a day of 100 processes that send one every 2 s."""
OUTSTANDING = 48
FOLDED = 16
"""Trajectories of an update, each of which makes a version."""
EVALUATED = 100
"""Every so many trajectories there is an evaluated task."""
TRANSACTION = 1_000
LARGE = 1_000_000
"""From here on a status without a snapshot is measured once, and nobody reads all heartbeats."""
HEX = "0123456789abcdef" * 4
REF = ObjectRef(f"screenshots/2026-01-01/{HEX}.png", HEX, 3000)

console = Console(stderr=True)


class Made:
    """The records of a run of `count` trajectories, by their number."""

    def __init__(self, config: Config, count: int) -> None:
        self._run, self.count = config.run, count
        self.now = int(time.time() * 1000)
        suite = suite_named(config.feeder.suite)
        self._families = [suite.task(index, config.learner.seed, Split.TRAIN) for index in range(len(suite.families))]
        first = self._families[0].task_id
        self._stem = first.rstrip("0123456789")
        self._name = f"{self._stem}{'9' * max(6, len(str(count)))}"
        tasks = [replace(task, task_id=self._name, fed_version=0) for task in self._families]
        self._tasks = [encode(task) for task in tasks]
        self._played = [[encode(self._attempt(task, outcome)) for outcome in self._outcomes] for task in tasks]
        self._evaluation = encode(Evaluation(9_999_999, HEX, "e", self._attempt(tasks[0], Outcome.SUCCESS)))

    _outcomes = (Outcome.SUCCESS, Outcome.FAILURE)

    def _attempt(self, task: Task, outcome: Outcome) -> Trajectory:
        home = Action(ActionKind.HOME)
        step = Step(REF, (1, 2, 3), (4, 5), home, "home", -1.0, 0, HEX, self.now, 60.0, 4.0, 20.0, 1.0)
        ended = (self.now - 60_000, self.now)
        return Trajectory(task, HEX[:32], "worker-0", "phone", (step,), REF, outcome, "truth", "", False, *ended)

    def task_id(self, number: int) -> bytes:
        return f"{self._stem}{number:06d}".encode()

    def _with_id(self, payload: bytes, number: int) -> bytes:
        """Ids of more digits than six are one byte longer than others, and so is the length before them."""
        own, template = self.task_id(number), self._name.encode()
        return payload.replace(bytes([2 * len(template)]) + template, bytes([2 * len(own)]) + own, 1)

    def task(self, number: int) -> bytes:
        return self._with_id(self._tasks[number % len(self._tasks)], number)

    def trajectory(self, number: int) -> bytes:
        by_outcome = self._played[number % len(self._played)]
        return self._with_id(by_outcome[number // 7 % len(by_outcome)], number)

    def evaluation(self, number: int) -> bytes:
        return self._with_id(self._evaluation, number)

    def updates(self) -> Iterator[tuple[Update, Version]]:
        topic = topic_name(self._run, "trajectories")
        for u in range(self.count // FOLDED):
            at = self.now - 1_000 * (self.count // FOLDED - u)
            update = Update(u, (Watermark(topic, 0, FOLDED * (u + 1)),), HEX, at, version=u)
            yield update, Version(u, u - 1 if u else None, u, HEX, ObjectRef(f"adapters/{u}", HEX, 1), HEX, at)

    def heartbeats(self) -> list[tuple[bytes, bytes]]:
        """The last one of each process; those before it differ in numbers alone."""
        metrics = {f"metric_{n}": float(n) for n in range(12)}
        phones = tuple(DeviceHealth(f"10.0.0.{n}:5555", "leased", {"episodes": 9}) for n in range(8))
        names = ["learner", *(f"worker-{n}" for n in range(PROCESSES - 1))]
        roles = ["learner", *["worker"] * (PROCESSES - 1)]
        beats = [Heartbeat(n, role, self.now, 0, HEX, metrics, phones) for n, role in zip(names, roles, strict=True)]
        return [(beat.process.encode(), encode(beat)) for beat in beats]


def fill(config: Config, count: int) -> None:
    """Write the whole log of a run of so many trajectories."""
    topic_admin.ensure(config)
    made, partitions = Made(config, count), config.kafka.task_partitions
    fed = count + OUTSTANDING
    beats = made.heartbeats()
    _plain(config, "tasks", ((made.task_id(n), made.task(n), n % partitions) for n in range(fed)))
    _plain(config, "heartbeats", ((*beats[n % len(beats)], 0) for n in range(HEARTBEATS * count)))
    _plain(config, "evaluations", ((b"0", made.evaluation(n), 0) for n in range(0, count, EVALUATED)))
    _plain(config, "trajectories", ((made.task_id(n), made.trajectory(n), 0) for n in range(count)))
    journal = FencedProducer(config, ROLE, "the journal", lambda: claims.fenced(config.run, ROLE))
    with journal:
        lines = made.updates()
        while several := list(islice(lines, TRANSACTION)):
            updates, versions = topic_name(config.run, "updates"), topic_name(config.run, "versions")
            journal.write_all([Outgoing(updates, config.run.encode(), encode(update)) for update, _ in several])
            journal.write_all([Outgoing(versions, b"%d" % each.version, encode(each)) for _, each in several])
    ends = [
        TopicPartition(topic_name(config.run, "tasks"), p, len(range(p, count, partitions))) for p in range(partitions)
    ]
    group = Consumer(client_settings(config.kafka, "bench", {"group.id": workers_group(config)}))
    group.commit(offsets=ends, asynchronous=False)
    group.close()


def _plain(config: Config, topic: str, records: Iterable[tuple[bytes, bytes, int]]) -> None:
    """Records (key, value, partition), as fast as can be: by librdkafka's own producer."""
    own = {"compression.type": "zstd", "linger.ms": 100, "enable.idempotence": True}
    producer, name = Producer(client_settings(config.kafka, "bench", own)), topic_name(config.run, topic)
    for key, value, partition in records:
        while True:
            try:
                producer.produce(name, value, key, partition)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(600):
        raise SystemExit(f"{left} records of {topic} were not taken")


# What a measured process does.


def start_feeder(sets: list[str]) -> Mapping[str, float]:
    """Until it would feed. Then a snapshot, whose time is not part of that."""
    config = load(sets=sets, environ={})
    began, worked = time.perf_counter(), time.process_time()
    found = known(config, from_start=False)
    state = feeding.new_state(config, found.facts)
    with ExitStack() as stack:
        topics = Topics(config, found, Fleet(), stack)
        topics.read_all()
        state.find_next()
        ready, processor = time.perf_counter() - began, time.process_time() - worked
        saved = _save(config, found, topics)
    if not state.due(0):
        raise SystemExit("it would not feed")
    return {
        "seconds": ready,
        "processor, s": processor,
        "records": topics.coverage.records,
        "saving, processor s": saved,
        "peak resident, MB": _peak_mb(),
    }


def _save(config: Config, found: Known, topics: Topics) -> float:
    with RecordProducer(config, "bench") as producer:
        writer = SnapshotWriter(config, producer, 0)
        worked = time.process_time()
        writer.write(0.0, topics.coverage, found.facts, found.view)
        took = time.process_time() - worked
        if producer.flush(60):
            raise SystemExit("the snapshot was not taken")
    return took


def show_status(sets: list[str], from_start: bool = False) -> Mapping[str, float]:
    if from_start:
        feeds.restored = lambda *_: None  # type: ignore[assignment]
    began, worked = time.perf_counter(), time.process_time()
    with contextlib.redirect_stdout(open(os.devnull, "w")):
        command.console.file = sys.stdout
        command.status(None, sets)
    return {
        "seconds": time.perf_counter() - began,
        "processor, s": time.process_time() - worked,
        "peak resident, MB": _peak_mb(),
    }


def read_heartbeats(sets: list[str]) -> Mapping[str, float]:
    """All of them from the first one on, as `distrl status` did before."""
    config, view = load(sets=sets, environ={}), RunView()
    began = time.perf_counter()
    with LogReader(config, "heartbeats") as reader:
        for batch in reader.to_end():
            for raw in batch:
                view.feed(decoded(raw, Heartbeat))
    return {"seconds": time.perf_counter() - began}


def show_status_from_start(sets: list[str]) -> Mapping[str, float]:
    return show_status(sets, from_start=True)


CHILDREN = {each.__name__: each for each in (start_feeder, show_status, show_status_from_start, read_heartbeats)}


def _peak_mb() -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines["VmHWM"].split()[0]) * 1024 / 1e6


def child(name: str, sets: list[str], rounds: int = 1) -> Mapping[str, float]:
    """The medians of what so many processes say, and of the whole of each: `process, s`."""
    found: list[dict[str, float]] = []
    for _ in range(rounds):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, __file__, name, *sets], check=True, stdout=subprocess.PIPE, text=True)
        whole = time.perf_counter() - began
        found.append(json.loads(done.stdout.splitlines()[-1]) | {"process, s": whole})
    figures = {key: statistics.median(each[key] for each in found) for key in found[0]}
    console.print(f"{name}: {', '.join(f'{key} {figure:.3f}' for key, figure in figures.items())}", highlight=False)
    return figures


def snapshot_bytes(config: Config) -> int:
    with LogReader(config, TOPIC) as reader:
        raws = [raw for batch in reader.to_end() for raw in batch]
    decoded(raws[-1], Snapshot)
    return len(raws[-1].value or b"")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--trajectories", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="starts of each kind, whose median counts; a feeder without a snapshot once",
    )
    parser.add_argument("--plot", type=Path, help="draw the growth there, as SVG")


def measure(given: argparse.Namespace) -> Mapping[str, float]:
    """Starts of a feeder and of `distrl status` behind logs of several lengths, with a snapshot and without."""
    figures: dict[str, float] = {}
    points: dict[str, list[tuple[int, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as folder, ExitStack() as after:
        own = [
            f"stack.directory={folder}/stack",
            f"store.url=file://{folder}/objects",
            'devices.addresses=["127.0.0.1:1"]',
        ]
        stack = LocalStack(load(sets=[*own, "run=bench"], environ={}), console.print)
        with console.status("starting Kafka"):
            up = stack.up(reuse=True)
        after.callback(stack.down)
        for count in given.trajectories:
            config = with_run(up, f"bench-{count}")
            began = time.perf_counter()
            with console.status(f"writing {count:,} trajectories"):
                fill(config, count)
            console.print(
                f"{count:,} trajectories and what belongs to them: written in {time.perf_counter() - began:.0f} s"
            )
            sets = [*own, f"run={config.run}", f"kafka.bootstrap={up.kafka.bootstrap}", "feeder.max_lag=1000000"]
            sets.append(f"feeder.outstanding={2 * OUTSTANDING}")
            whole = {"start_feeder": child("start_feeder", sets)}  # once: it leaves a snapshot
            resumed = {name: child(name, sets, given.rounds) for name in ("start_feeder", "show_status")}
            whole["show_status"] = child("show_status_from_start", sets, given.rounds if count < LARGE else 1)
            if count < LARGE:
                figures[f"{count:,}: all heartbeats from the first, s"] = child("read_heartbeats", sets)["seconds"]
            figures[f"{count:,}: snapshot, KB"] = snapshot_bytes(config) / 1e3
            for name, title in (("start_feeder", "feeder"), ("show_status", "status")):
                for kind, found in (("no snapshot", whole[name]), ("snapshot", resumed[name])):
                    points.setdefault(f"{title}, {kind}", []).append((count, found["seconds"]))
                    for key, figure in found.items():
                        figures[f"{count:,}: {title}, {kind}: {key}"] = figure
                figures[f"{count:,}: {title}: ratio"] = whole[name]["seconds"] / resumed[name]["seconds"]
    if given.plot is not None:
        given.plot.parent.mkdir(parents=True, exist_ok=True)
        given.plot.write_text(_growth(points))
    return figures


def _growth(points: Mapping[str, list[tuple[int, float]]]) -> str:
    """Seconds over trajectories, both in powers of ten."""
    from distrl.evaluate.figures import AFTER, MUTED, _svg  # the colours and the form of the report's figures

    def draw(axes: Any) -> None:
        for name, line in points.items():
            colour = MUTED if "no snapshot" in name else AFTER
            style = "-" if name.startswith("feeder") else "--"
            axes.plot(
                *zip(*line, strict=True), style, color=colour, marker="o", markersize=4, linewidth=1.6, label=name
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("trajectories in the log")
        axes.set_ylabel("seconds")
        axes.legend(frameon=False, fontsize=8)

    return _svg(draw, (6.4, 3.0))


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    print(json.dumps(CHILDREN[sys.argv[1]](sys.argv[2:])))
