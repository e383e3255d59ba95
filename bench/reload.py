"""How soon a published version acts, beside a bare copy of the same bytes.

A learner's journal publishes adapters; a follower, a reloader and the batching policy of a worker take them up while
one phone's episode goes on deciding. Measured from the moment the learner would begin to publish (before the object is
stored) to the end of the first decision made with the version. Its peer is the same bytes put into the same store and
read back: what any way of shipping weights through an object store has to do. To that comes what any way of acting on
them has to wait for, half a decision that is under way, on average, and a whole one. The rest is what is ours: the
version record through Kafka, hashing, parsing and checking the adapter, and the swap.

    python bench/reload.py --ranks 16 256 4096 --versions 20

A rank is that of LoRA on the shipped base model: it says how many bytes travel.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
import uuid
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from distrl.broker import topic_admin
from distrl.broker.journal import Journal
from distrl.broker.versions import VersionFollower
from distrl.config import Config, load
from distrl.errors import DistrlError
from distrl.policy.registry import policy_of
from distrl.rollout.episode import SYSTEM_CLOCK, Observation
from distrl.rollout.reload import Reloader
from distrl.rollout.serving import serving
from distrl.stack.local import LocalStack
from distrl.store.objects import open_store
from distrl.types import Split, Task, Version
from rich.console import Console
from rich.table import Table
from simphone.machine import PhoneMachine

TASK = Task("bench", "home", "search", Split.TRAIN, "open browser and search for red shoes", 14, 0)
WAIT_S = 60.0

console = Console()


@dataclass(frozen=True, slots=True)
class Row:
    """Milliseconds, medians over the versions. ratio: published to acted over the bare copy.

    ours_ms: what is left of published to acted without the copy and a decision and a half.
    """

    rank: int
    megabytes: float
    acted_ms: float
    loaded_ms: float
    copy_ms: float
    decision_ms: float
    ours_ms: float
    ratio: float


class Episode:
    """A phone that asks for one decision after another; `first` waits for one that a version made."""

    def __init__(self, decide) -> None:  # type: ignore[no-untyped-def]
        self._decide = decide
        self._png = PhoneMachine(0, 0.0).png()
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._seen: dict[int, float] = {}
        self.taken: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def first(self, version: int) -> float:
        with self._changed:
            if not self._changed.wait_for(lambda: version in self._seen, WAIT_S):
                raise SystemExit(f"version {version} never acted")
            return self._seen[version]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        step = 0
        while not self._stop.is_set():
            began = time.perf_counter()
            made = self._decide(Observation(TASK, "a", step, self._png, (), lambda: None))
            ended = time.perf_counter()
            self.taken.append(ended - began)
            with self._changed:
                self._seen.setdefault(made.version, ended)
                self._changed.notify_all()
            step += 1


def adapters(config: Config, count: int) -> tuple[str, list[bytes]]:
    """`count` adapters of equal size and different weights, and the base model's hash."""
    agent = policy_of(config.policy)
    torch.manual_seed(0)
    found = []
    for _ in range(count):
        with torch.no_grad():
            for parameter in agent.parameters().values():
                parameter.add_(torch.randn_like(parameter) * 1e-4)
        found.append(agent.adapter())
    return agent.base_sha256, found


def measure(config: Config, versions: int) -> Row:
    topic_admin.ensure(config)
    store = open_store(config.store)
    base, weights = adapters(config, 2 * versions + 1)
    acted, loaded, copied = [], [], []
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(config))
        follower = stack.enter_context(VersionFollower(config))
        policy = stack.enter_context(serving(config, None))
        reloader = Reloader(follower, store.get, policy.base_sha256, policy.batcher, SYSTEM_CLOCK)
        stop = threading.Event()
        thread = threading.Thread(target=reloader.run, args=(stop,), daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(stop.set)
        stack.enter_context(policy.batcher.episode())
        episode = None
        for number in range(versions + 1):
            began = time.perf_counter()
            ref = store.put("adapters", weights[number], "safetensors")
            journal.publish_version(
                Version(number, number - 1 if number else None, number, base, ref, "0" * 64, int(time.time() * 1000))
            )
            if not policy.batcher.wait_loaded(number, WAIT_S):
                raise SystemExit(f"version {number} was not loaded")
            in_place = time.perf_counter()
            if episode is None:
                episode = Episode(policy.batcher.decide)
                stack.callback(episode.stop)
                episode.first(0)
                continue
            acted.append(episode.first(number) - began)
            loaded.append(in_place - began)
            began = time.perf_counter()
            copy = store.put("adapters", weights[versions + number], "safetensors")
            store.get_named(copy.key)
            copied.append(time.perf_counter() - began)
        assert episode is not None
    ms = [1000 * statistics.median(each) for each in (acted, loaded, copied, episode.taken)]
    acted_ms, _, copy_ms, decision_ms = ms
    ours_ms = acted_ms - copy_ms - 1.5 * decision_ms
    return Row(config.policy.lora_rank, len(weights[0]) / 1e6, *ms, ours_ms, acted_ms / copy_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 256, 4096])
    parser.add_argument("--versions", type=int, default=20, help="measured for each rank")
    parser.add_argument("--config", type=Path, help="YAML file with settings: servers to use instead of local ones")
    parser.add_argument("--set", action="append", default=[], help="one setting as path.to.it=value")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as folder, ExitStack() as after:
        own = [f"stack.directory={folder}/stack", 'devices.addresses=["127.0.0.1:1"]']
        stack = LocalStack(load(given.config, [*own, *given.set]), console.print)
        with console.status("starting Kafka and the object store"):
            filled = stack.up(reuse=True)
        after.callback(stack.down)
        for rank in given.ranks:
            with console.status(f"measuring LoRA of rank {rank}"):
                policy = filled.policy.model_copy(update={"lora_rank": rank})
                run = f"bench-{uuid.uuid4().hex[:8]}"
                found.append(measure(filled.model_copy(update={"run": run, "policy": policy}), given.versions))
    table = Table(
        "rank", "MB", "published → acted, ms", "→ loaded, ms", "bare copy, ms", "a decision, ms", "ours, ms", "ratio"
    )
    for row in found:
        table.add_row(
            str(row.rank),
            f"{row.megabytes:.2f}",
            f"{row.acted_ms:.1f}",
            f"{row.loaded_ms:.1f}",
            f"{row.copy_ms:.1f}",
            f"{row.decision_ms:.1f}",
            f"{row.ours_ms:.1f}",
            f"{row.ratio:.2f}",
        )
    console.print(table)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps([asdict(row) for row in found], indent=2))


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        raise SystemExit(str(error)) from None
