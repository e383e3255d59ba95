"""Decisions a second of a shipped model, beside another revision's.

    python bench/acting.py --against HEAD~1

Scripts that err play tasks of the home suite on phones in this process; what they saw and were told is the stream of
screenshots and prompts that is decided, as many episodes at once as a batch has rows. Each revision decides it in a
process of its own, in turns, with a policy that has seen no screenshot yet, on one thread; then the batcher decides it
for that many actors, threads that ask and wait. Seconds are those of the processor, so that other work on the machine
disturbs them less, and of the rounds the fastest counts. Both decide with one network: the base model that the other
revision shipped, which this one reads, too.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import revision
import torch
from distrl.config import PolicySettings
from distrl.policy.registry import policy_of
from distrl.rollout.batcher import Batcher
from distrl.rollout.episode import Observation
from distrl.tasks.gestures import event_of
from distrl.tasks.oracle import ImperfectScript
from distrl.tasks.suite import suites
from distrl.types import Action, ActionKind, ObjectRef, Split, Task, Version
from rich.console import Console
from rich.table import Table
from simphone.machine import PhoneMachine

try:
    from distrl.policy.sampling import FULL
except ImportError:  # another revision
    FULL: Any = 1.0  # type: ignore[no-redef]
    SAMPLING = {"temperature": FULL}
else:
    SAMPLING = {"sampling": FULL}

SHIPPED = "pipeline/distrl/policy/autoui/shipped"
"""In a revision's tree."""
ROWS = (1, 4, 8, 16)
DECISIONS = 192
"""In a round; all of them are of episodes that run at the same time."""
VERSION = Version(0, None, 0, "0" * 64, ObjectRef("adapter", "0" * 64, 1), "", 0)


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a decision is about."""

    task: Task
    png: bytes
    earlier: tuple[Action, ...]


def episodes(count: int) -> list[list[Seen]]:
    """What the scripts saw, an episode for each of `count` tasks."""
    made = []
    for index in range(count):
        task = suites()["home"].task(index, 4000, Split.TRAIN)
        phone, script = PhoneMachine(task.phone_seed, 0.1), ImperfectScript(task.phone_seed)
        phone.reset(task.phone_seed, json.loads(task.setup))
        seen: list[Seen] = []
        earlier: list[Action] = []
        while len(seen) < task.max_steps and not (earlier and earlier[-1].kind is ActionKind.COMPLETE):
            seen.append(Seen(task, phone.png(), tuple(earlier)))
            action, _ = script.act(task, phone.state())
            earlier.append(action)
            if (event := event_of(action)) is not None:
                phone.apply(event)
        made.append(seen)
    return made


def batches(made: Sequence[Sequence[Seen]], rows: int) -> Iterator[list[Seen]]:
    """Step after step of `rows` episodes; an episode that ends makes room for the next."""
    waiting = [list(each) for each in made]
    running = [waiting.pop(0) for _ in range(rows)]
    for _ in range(DECISIONS // rows):
        yield [each.pop(0) for each in running]
        running = [each or waiting.pop(0) for each in running]


def decided(made: Sequence[Sequence[Seen]], rows: int, base_model: Path) -> float:
    """Decisions a second of `Policy.decide`."""
    policy = policy_of(PolicySettings(base_model=base_model))
    asked = [
        (
            [each.png for each in batch],
            [policy.tokenizer.encode_prompt(each.task.instruction, each.earlier, SCREEN) for each in batch],
        )
        for batch in batches(made, rows)
    ]
    began = time.process_time()
    for number, (pngs, prompts) in enumerate(asked):
        policy.decide(pngs, prompts, FULL, range(number * rows, (number + 1) * rows))
    return len(asked) * rows / (time.process_time() - began)


def batched(made: Sequence[Sequence[Seen]], actors: int, base_model: Path) -> float:
    """Decisions a second of a batcher that `actors` threads ask."""
    policy = policy_of(PolicySettings(base_model=base_model))
    batcher = Batcher(policy, policy.tokenizer, **SAMPLING, wait_s=0.003)
    serving = threading.Thread(target=batcher.serve)
    serving.start()
    batcher.swap(VERSION, policy.adapter())
    asked = list(batches(made, actors))

    def act(place: int) -> None:
        with batcher.episode():
            for step, batch in enumerate(asked):
                seen = batch[place]
                batcher.decide(Observation(seen.task, "a", step, seen.png, seen.earlier, lambda: None))

    began = time.process_time()
    with ThreadPoolExecutor(actors) as pool:
        list(pool.map(act, range(actors)))
    found = len(asked) * actors / (time.process_time() - began)
    batcher.close()
    serving.join()
    return found


MODES: Mapping[str, Callable[[Sequence[Sequence[Seen]], int, Path], float]] = {"policy": decided, "batcher": batched}
SCREEN: Any = None
"""The shipped model's tokenizer makes nothing of a screen's size."""


class Peer:
    """A process that measures with one revision's code."""

    def __init__(self, tree: Path, stream: Path, base_model: Path) -> None:
        environ = os.environ | {"PYTHONPATH": str(tree / "pipeline"), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(stream), "--base-model", str(base_model)],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def measure(self, mode: str, rows: int) -> float:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{mode} {rows}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate()


def serve(stream: Path, base_model: Path) -> None:
    """Measure what each line of stdin names."""
    torch.set_num_threads(1)
    made: list[list[Seen]] = pickle.loads(stream.read_bytes())
    decided(made[:40], 1, base_model)  # what is made at the first use
    for line in sys.stdin:
        mode, rows = line.split()
        print(MODES[mode](made, int(rows), base_model), flush=True)


def compare(trees: Mapping[str, Path], rounds: int, base_model: Path) -> dict[tuple[str, int], dict[str, float]]:
    """The best of the rounds of each, by mode and rows, then by tree."""
    found: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    with tempfile.TemporaryDirectory() as temporary:
        stream = Path(temporary) / "stream"
        stream.write_bytes(pickle.dumps(episodes(64)))
        peers = {name: Peer(tree, stream, base_model) for name, tree in trees.items()}
        for _ in range(rounds):
            for mode in MODES:
                for rows in ROWS:
                    for name, peer in peers.items():
                        best = found[mode, rows].get(name, 0.0)
                        found[mode, rows][name] = max(best, peer.measure(mode, rows))
        for peer in peers.values():
            peer.close()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="the other revision, as git names it")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--base-model", type=Path, help="another directory of one")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.serve is not None:
        serve(given.serve, given.base_model)
        return 0
    with ExitStack() as stack:
        trees = {"this": revision.ROOT}
        if given.against is not None:
            trees[given.against] = stack.enter_context(revision.checkout(given.against))
        base_model = given.base_model or [*trees.values()][-1] / SHIPPED
        found = compare(trees, given.rounds, base_model)
    table = Table(title="decisions a second of one processor")
    for column in ("asked by", "rows", *trees, *(["ratio"] if given.against is not None else [])):
        table.add_column(column)
    for (mode, rows), each in found.items():
        rates = list(each.values())
        ratio = [f"{rates[0] / rates[1]:.2f}"] if len(rates) > 1 else []
        table.add_row(mode, str(rows), *(f"{rate:.0f}" for rate in rates), *ratio)
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
