"""How long a learner takes from its start to its first update: `bench/scale.py restart`.

A run as a learner leaves it that was killed in an update: a broker with its records, journal and next window, a store
with its checkpoint, a folder (`learner.features_kept`) with the features of every screenshot of both. The start is a
process of its own, from its birth to the call that makes the update; beside it a plain reading of the features' files.
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
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

import feature_memory
import torch
from distrl.broker import topic_admin
from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History, Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.topics import topic_name
from distrl.config import Config, load
from distrl.learner import run as role
from distrl.learner.choose_checkpoint import chain
from distrl.learner.recover import log_of, snapshot
from distrl.learner.state import LearnerState
from distrl.policy.feature_folder import FeatureFolder, maker_of
from distrl.policy.protocol import ImageFeatures
from distrl.runs.settings import learning_fingerprint
from distrl.stack.local import LocalStack
from distrl.store.checkpoints import save_checkpoint
from distrl.store.objects import open_store
from distrl.types import LoggedTrajectory, LogPosition, ScreenSize, Update, Watermark
from rich.console import Console

STEPS: Final = 10
"""Of a trajectory, each with a screenshot of its own."""

console = Console(stderr=True)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--transitions", type=int, default=10_000, help="in the buffer, each with a screen of its own")
    parser.add_argument("--precision", choices=("float32", "float16"), default="float16")
    parser.add_argument("--folder", type=Path, help="for all that is written; the system's temporary one if not given")
    parser.add_argument("--rounds", type=int, default=3, help="of a start and a reading, in turn")
    parser.add_argument(
        "--cold", action="store_true", help="empty the kernel's cache before each, as after a power cut; asks for root"
    )


def measure(given: argparse.Namespace) -> Mapping[str, float]:
    """Whole starts of a learner that finds its features, beside reading their bytes."""
    with tempfile.TemporaryDirectory(prefix="distrl-bench-", dir=given.folder) as made, ExitStack() as after:
        folder = Path(made)
        sets = _sets(folder, given)
        stack = LocalStack(load(sets=sets, environ={}), print)
        with console.status("starting Kafka"):
            up = stack.up(reuse=True)
        after.callback(stack.down)
        sets.append(f"kafka.bootstrap={up.kafka.bootstrap}")
        with console.status("making a run"):
            _leave_run(load(sets=sets, environ={}), given.transitions)
        found: list[Mapping[str, float]] = []
        for _ in range(given.rounds):
            _prepare(given.cold)
            began, used = time.perf_counter(), time.process_time()
            size = sum(len(file.read_bytes()) for file in (folder / "kept").rglob("*") if file.is_file())
            plain = {
                "reading the files, s": time.perf_counter() - began,
                "reading the files, processor, s": time.process_time() - used,
                "files, MB": size / 1e6,
            }
            _prepare(given.cold)
            found.append({**_start(sets), **plain})
            console.print(found[-1])
    middle = sorted(found, key=lambda each: each["start to first update, s"])[len(found) // 2]
    return {**middle, "ratio to reading": middle["start to first update, s"] / middle["reading the files, s"]}


def _prepare(cold: bool) -> None:
    """What was written is on the disk, so that nothing is written beside what is timed; cold: it is only there."""
    os.sync()
    if cold:
        Path("/proc/sys/vm/drop_caches").write_text("3")


def _sets(folder: Path, given: argparse.Namespace) -> list[str]:
    feature_memory.save_large(folder / "base")
    return [
        "run=bench",
        f"stack.directory={folder}/stack",
        f"store.url=file://{folder}/objects",
        'devices.addresses=["127.0.0.1:1"]',
        f"policy.base_model={folder / 'base'}",
        f"policy.image_precision={given.precision}",
        f"algorithm.replay.capacity={given.transitions}",
        "algorithm.critic_warmup_updates=0",
        "warmup.updates=0",
        "warmup.demonstrations=0",
        f"learner.features_kept={folder / 'kept'}",
        f"learner.features_directory={folder}",
        "learner.device=cpu",
        "learner.publish_every=1000",
        f"learner.rebuild_window={10 * given.transitions}",
    ]


def _leave_run(config: Config, transitions: int) -> None:
    """Records, the journal of two updates, and a checkpoint of the first, whose window filled the buffer."""
    topic_admin.ensure(config)
    topic, window = topic_name(config.run, "trajectories"), config.learner.trajectories_per_update
    count = transitions // STEPS
    log = []
    with RecordProducer(config, "bench") as producer:
        for number in range(count + window):
            one = feature_memory.logged(number * STEPS, STEPS).trajectory
            placed = producer.publish("trajectories", one.task_id, one).result(60)
            assert isinstance(placed, LogPosition)
            log.append(LoggedTrajectory(placed, one))
    state = LearnerState(config)
    for logged in log[:count]:
        state.algorithm.memory.admit(logged)
    state.u, state.watermarks = 1, _marks(topic, log[:count])
    topics, fingerprint = log_of(config, History()), learning_fingerprint(config)
    updates = [
        Update(u, marks, fingerprint, 0, log_id=topics.id, device="cpu")
        for u, marks in enumerate((state.watermarks, _marks(topic, log)))
    ]
    with Journal(config) as journal:
        for update in updates:
            journal.append(update)
    seen = IdSet(f"{topic}/{logged.trajectory.task_id}" for logged in log[:count])
    made = snapshot(config, state, seen, chain(updates[:1]), log_id=topics.id)
    save_checkpoint(open_store(config.store), config.run, *made)
    assert config.learner.features_kept is not None
    maker = maker_of(state.policy, config.policy, config.learner.torch_threads)
    kept = FeatureFolder(config.learner.features_kept, config.run, maker)
    tokens = torch.randn(feature_memory.TOKENS)
    tokens = tokens.to(torch.float16 if config.policy.image_precision == "float16" else torch.float32)
    for ref in state.screens(log):
        kept.put(ref.sha256, ImageFeatures(tokens * (1 + int(ref.sha256, 16) / 16**64), ScreenSize(1, 1)))


def _marks(topic: str, log: Sequence[LoggedTrajectory]) -> tuple[Watermark, ...]:
    ends: dict[int, int] = {}
    for each in log:
        ends[each.position.partition] = max(ends.get(each.position.partition, 0), each.position.offset + 1)
    return tuple(Watermark(topic, partition, end) for partition, end in sorted(ends.items()))


def _start(sets: Sequence[str]) -> Mapping[str, float]:
    """This script as a learner."""
    born = time.time()
    made = subprocess.run([sys.executable, __file__, *sets], check=True, stdout=subprocess.PIPE, text=True)
    marks: dict[str, float] = json.loads(made.stdout.splitlines()[-1])
    return {
        "start to first update, s": marks["update"] - born,
        "of it: the interpreter and imports, s": marks["imported"] - born,
        "of it: model, checkpoint and log, s": marks["recovered"] - marks["imported"],
        "of it: features and the window, s": marks["update"] - marks["recovered"],
        "start, processor, s": marks["processor"],
    }


def begin(sets: Sequence[str]) -> None:
    """A learner until it makes its first update. Prints when it came how far."""
    marks, restore = {"imported": time.time()}, role.recover

    def recovered(*arguments: Any, **named: Any) -> Any:
        found = restore(*arguments, **named)
        assert found.state.u == 1, "it begins behind its checkpoint"
        marks["recovered"] = time.time()
        return found

    def learn(state: LearnerState, new: Sequence[LoggedTrajectory]) -> NoReturn:
        marks.update(update=time.time(), processor=time.process_time())
        print(json.dumps(marks), flush=True)
        os._exit(0 if new and state.transitions else 1)

    role.recover = recovered
    patched: Callable[..., NoReturn] = learn
    LearnerState.learn = patched  # type: ignore[method-assign]
    role.run_learner(load(sets=sets, environ={}), threading.Event())


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    begin(sys.argv[1:])
