"""What the log costs, each beside a peer in the same run.

    ingest    the log read, decoded, deduplicated and put into the buffer, against a bare librdkafka consumer that only
              counts bytes
    rebuild   a buffer of 10,000 transitions refilled from the log by its bounds, against `torch.load` of the same
              buffer pickled
    journal   an update appended to the journal, against the time of that update's gradient steps
    flush     trajectories acknowledged one by one and 50 at a time by a topic that is flushed at every acknowledgement,
              as those of a single replica are, against one that is not

Starts a broker in a temporary directory (a configured one is used instead). Rounds alternate between the two sides and
the medians are compared, so that what drifts falls on both alike.

    python bench/log.py --trajectories 20000 --rounds 5 --json out/log.json
"""

from __future__ import annotations

import argparse
import io
import json
import random
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from distrl.algorithms.aride.memory import COLUMNS
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.connect import settings as client_settings
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config, load, with_run
from distrl.errors import DistrlError
from distrl.learner.pending import PendingLog
from distrl.learner.recover import read_back
from distrl.replay.circular import CircularBuffer
from distrl.stack.local import LocalStack
from distrl.types import LoggedTrajectory, LogPosition, Trajectory, Update, Watermark
from distrl.wire.gc_paused import gc_paused
from generator import trajectory
from rich.console import Console
from rich.progress import track
from rich.table import Table

BARE_BATCH = 500
"""Messages of one call of the bare consumer; LogReader takes as many."""

console = Console()


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. ours, peer: seconds or rates, `unit` says which. ratio: above 1 is better for us."""

    name: str
    ours: float
    peer: float
    unit: str
    ratio: float
    note: str


def publish(config: Config, count: int) -> None:
    rule = random.Random(0)
    with RecordProducer(config, "bench") as producer:
        for number in track(range(count), "writing trajectories", console=console):
            one = trajectory(number, rule)
            future = producer.publish("trajectories", one.task_id, one)
            if number % 5000 == 4999:
                future.result()  # the queue is bounded
        producer.flush(60)


def bare(config: Config) -> tuple[int, int]:
    """Every byte of the topic, counted and thrown away: what no reader can beat. Returns records and bytes."""
    topic = topic_name(config.run, "trajectories")
    own = {"group.id": f"bench-{uuid.uuid4().hex}", "enable.auto.commit": False, "auto.offset.reset": "error"}
    consumer = Consumer(client_settings(config.kafka, "bench", own))
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0))
    consumer.assign([TopicPartition(topic, 0, 0)])
    records = size = 0
    while records < end:
        for message in consumer.consume(BARE_BATCH, timeout=1.0):
            records, size = records + 1, size + len(message.value())
    consumer.close()
    return records, size


def ingest(config: Config) -> CircularBuffer:
    """The learner's way in: read, decode, drop duplicates, write into the ring."""
    name = topic_name(config.run, "trajectories")
    pending_log, buffer = PendingLog("none", name), CircularBuffer(config.algorithm.replay.capacity, COLUMNS)
    with LogReader(config, "trajectories") as reader:
        for batch in reader.to_end():
            with gc_paused():
                for raw in batch:
                    logged = LoggedTrajectory(raw.position, decoded(raw, Trajectory))
                    if pending_log.push(logged):
                        buffer.add(logged)
            pending_log.folded([Watermark(name, 0, batch[-1].position.offset + 1)])
    return buffer


def alternated(
    rounds: int,
    ours: Callable[[], object],
    peer: Callable[[], object],
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[float, float]:
    """Median seconds of each; they take turns, and each is run once before for its caches."""
    ours(), peer()
    taken: tuple[list[float], list[float]] = ([], [])
    for index in range(rounds):
        for side in (0, 1) if index % 2 == 0 else (1, 0):
            began = clock()
            (ours, peer)[side]()
            taken[side].append(clock() - began)
    return statistics.median(taken[0]), statistics.median(taken[1])


def compare_ingest(config: Config, rounds: int) -> Row:
    records, size = bare(config)
    ours, peer = alternated(rounds, lambda: ingest(config), lambda: bare(config))
    note = f"{records} records, {size / records:.0f} bytes each"
    return Row("ingest", records / ours, records / peer, "trajectories/s", peer / ours, note)


def compare_rebuild(config: Config, rounds: int) -> Row:
    buffer = ingest(config)
    places = [LogPosition(topic, partition, offset) for topic, partition, offset, _ in buffer.bounds()["entries"]]
    pickled = io.BytesIO()
    torch.save(buffer, pickled)
    data = pickled.getvalue()
    rebuilt: list[CircularBuffer] = []

    def ours() -> None:
        made = CircularBuffer(buffer.capacity, COLUMNS)
        made.refill(buffer.bounds(), read_back(config, places), buffer.columns)
        rebuilt[:] = [made]

    one, two = alternated(rounds, ours, lambda: torch.load(io.BytesIO(data), weights_only=False))
    if rebuilt[0].digest() != buffer.digest():
        raise SystemExit("the rebuilt buffer is another one")
    note = f"{len(buffer)} transitions in {len(places)} trajectories, {len(data) / 1e6:.1f} MB pickled"
    return Row("rebuild", one, two, "s", two / one, note)


def compare_journal(config: Config, rounds: int, update_s: float) -> Row:
    """Appends, each in a transaction of its own, as the learner does before every update."""
    taken = []
    with Journal(config) as journal:
        for u in range(rounds * 20):
            update = Update(u, (Watermark(topic_name(config.run, "trajectories"), 0, u),), "0" * 64, 0)
            began = time.perf_counter()
            journal.append(update)
            taken.append(time.perf_counter() - began)
    ours = statistics.median(taken)
    note = f"{100 * ours / update_s:.2f} % of an update; p95 {sorted(taken)[int(len(taken) * 0.95)] * 1000:.1f} ms"
    return Row("journal", ours, update_s, "s", update_s / ours, note)


def gradient_seconds(config: Config) -> float:
    """Seconds of one update at the shipped settings, on records of noise: the median, so mostly its gradient steps."""
    from distrl.learner.state import LearnerState
    from simphone.machine import PhoneMachine

    torch.set_num_threads(config.learner.torch_threads)
    state = LearnerState(config)
    png, rule = PhoneMachine(0, 0.0).png(), random.Random(1)
    for number in range(100):
        state.algorithm.memory.admit(LoggedTrajectory(LogPosition("bench", 0, number), trajectory(number, rule)))
    state.features.load(state.screens(state.held()), lambda _: png)
    first = config.warmup.updates + config.algorithm.critic_warmup_updates
    taken = []
    for u in range(first, first + 6):  # the first computes the whole buffer's columns
        began = time.perf_counter()
        state.algorithm.update(u)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def acknowledged(config: Config, made: list[Trajectory], at_once: int) -> None:
    """Publish `made`, waiting after each `at_once` for the broker to have them."""
    with RecordProducer(config, "bench") as producer:
        for begin in range(0, len(made), at_once):
            for future in [producer.publish("trajectories", t.task_id, t) for t in made[begin : begin + at_once]]:
                future.result(60)


def compare_flush(config: Config, rounds: int) -> Iterator[Row]:
    """Both topics are made for this; the one that is not flushed has the setting taken away."""
    flushed, plain = (with_run(config, f"{config.run}-{name}") for name in ("flushed", "plain"))
    for each in (flushed, plain):
        topic_admin.ensure(each)
    name, rule = topic_name(plain.run, "trajectories"), random.Random(2)
    away = ConfigEntry("flush.messages", None, incremental_operation=AlterConfigOpType.DELETE)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[away])
    client = admin(config.kafka)
    client.incremental_alter_configs([resource])[resource].result(60)
    made = [trajectory(number, rule) for number in range(200)]
    for at_once in (1, 50):
        ours, peer = alternated(
            rounds, lambda n=at_once: acknowledged(flushed, made, n), lambda n=at_once: acknowledged(plain, made, n)
        )
        each_ms = [1000 * seconds / len(made) for seconds in (ours, peer)]
        note = f"{each_ms[0]:.2f} ms a record flushed, {each_ms[1]:.2f} ms not"
        yield Row(f"flush, {at_once} at a time", len(made) / ours, len(made) / peer, "records/s", peer / ours, note)


def rows(config: Config, rounds: int) -> Iterator[Row]:
    yield compare_ingest(config, rounds)
    yield compare_rebuild(config, rounds)
    yield compare_journal(config, rounds, gradient_seconds(config))
    yield from compare_flush(config, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trajectories", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--config", type=Path, help="YAML file with settings: a broker to use instead of a local one")
    parser.add_argument("--set", action="append", default=[], help="one setting as path.to.it=value")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as folder, ExitStack() as after:
        own = [
            f"run=bench-{uuid.uuid4().hex[:8]}",
            f"stack.directory={folder}/stack",
            f"store.url=file://{folder}/objects",
            'devices.addresses=["127.0.0.1:1"]',
            "algorithm.replay.capacity=10000",
        ]
        config = load(given.config, [*own, *given.set])
        stack = LocalStack(config, console.print)
        with console.status("starting Kafka"):
            config = stack.up(reuse=True)
        after.callback(stack.down)
        topic_admin.ensure(config)
        publish(config, given.trajectories)
        with console.status("measuring"):
            found = list(rows(config, given.rounds))
    table = Table("measured", "ours", "peer", "unit", "ratio", "")
    for row in found:
        table.add_row(row.name, f"{row.ours:.4g}", f"{row.peer:.4g}", row.unit, f"{row.ratio:.2f}", row.note)
    console.print(table)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps([{name: getattr(row, name) for name in row.__slots__} for row in found]))


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        raise SystemExit(str(error)) from None
