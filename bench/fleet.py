"""How many phones a run can feed and learn from, and which part is first at its limit: `bench/scale.py fleet`.

Starts a broker in a temporary directory. The feeder, the workers' consumers and producers, the learner's bookkeeping
and the followers of versions are the project's own, each in processes as in production, with as many tasks outstanding
as the phones would have. Made up are the trajectories (by a generator: no phones, no pixels); the learner's gradients
and screens are left out. First each part alone at its maximum, then all together at growing rates until one lags.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import fleet_parts as parts
import psutil
from distrl.broker.reader import LogReader, decoded
from distrl.config import Config, load
from distrl.stack.local import LocalStack
from distrl.types import Heartbeat
from fleet_parts import Part
from fleet_world import World, memory_mb, wait
from rich.console import Console
from rich.table import Table

EPISODE_S = 240.0
"""The paper's phones with everything around them: 32 emulators bring 800 trajectories in 6,000 s (figure 6c)."""
SHORT_EPISODE_S = 7.5
"""The paper's fastest: a worker thread completes 6 to 10 trajectories a minute (A.3.2)."""
STEPS = 12
"""Of a trajectory, as in wire.py: a record of 5.3 kB before compression."""
SETTINGS = ("warmup.demonstrations=0", "warmup.updates=0", "kafka.connect_timeout_s=60")
"""Version 0 is there at once, and a busy broker may take its time to make hundreds of partitions."""
BUSY = 0.9
"""Share of the phones in an episode below which they wait for tasks."""
WINDOW = 256
"""Most trajectories of an update of all together: the learner reads none during one, so that a turn needs several."""
LAGGING = 0.1
"""Share of the trajectories of a turn by which the learner's backlog grows where it cannot keep up."""

console = Console()


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--phones", type=int, default=10_000)
    parser.add_argument("--phones-per-worker", type=int, default=64, help="of one worker process in production")
    parser.add_argument("--episode-s", type=float, default=EPISODE_S, help="seconds of an episode, resets included")
    parser.add_argument("--trajectories", type=int, default=12_000, help="with which each part is measured alone")
    parser.add_argument("--processes", type=int, default=4, help="worker processes on this machine, for all phones")
    parser.add_argument("--speeds", type=float, nargs="*", default=[1, 2, 4, 8, 16, 32, 64], help="of all together")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each speed")
    parser.add_argument("--heap-mb", type=int, default=1024, help="of the broker")


@dataclass(frozen=True, slots=True)
class Turn:
    """All parts together at one speed. Rates are trajectories a second, busy is the phones' share in an episode.

    backlog: by how many trajectories the learner's unread ones grew. untaken: tasks fed and in no worker's hands.
    cores: processor seconds a second, by part. behind: the part that cannot keep up, if one cannot.
    """

    speed: float
    offered: float
    finished: float
    learned: float
    busy: float
    backlog: int
    untaken: int
    unacknowledged: int
    cores: Mapping[str, float]
    behind: str


class Together:
    """Feeder, group, producers and learner on one log."""

    def __init__(self, world: World, episode_s: float, opened: ExitStack) -> None:
        self._world, self._episode_s = world, episode_s
        window = min(WINDOW, world.window)
        versions = -(-world.outstanding // window)
        self._config = config = world.run(
            "together",
            f"learner.trajectories_per_update={window}",
            f"feeder.max_lag={versions}",
            world.partitions,
        )
        self._beats = opened.enter_context(LogReader(config, "heartbeats"))
        self._fed = 0
        self._learner = opened.enter_context(world.started("learner", config))
        self._learner.until(lambda facts: "ready" in facts)
        self._feeder = opened.enter_context(world.started("feeder", config))
        share = max(1, world.phones // world.processes)
        self._phones = share * world.processes
        self._workers = [
            opened.enter_context(
                world.started(
                    "worker",
                    _named(config, f"worker-{index}"),
                    first_phone=index * share,
                    phones=share,
                    episode_s=episode_s,
                    steps=world.steps,
                )
            )
            for index in range(world.processes)
        ]
        wait(lambda: self._sum("playing") >= BUSY * self._phones, "workers")

    def turn(self, speed: float, seconds: float) -> Turn:
        for each in self._workers:
            each.order(speed)
        time.sleep(seconds / 2)  # until what is under way follows the speed
        begin, since = self._sample(), time.monotonic()
        busy = []
        while time.monotonic() - since < seconds:
            time.sleep(seconds / 10)
            busy.append(self._sum("playing") / self._phones)
        end, passed = self._sample(), time.monotonic() - since
        risen = {name: end[name] - begin[name] for name in begin}
        cores = {name.removeprefix("cpu "): risen[name] / passed for name in risen if name.startswith("cpu ")}
        made = Turn(
            speed,
            speed * self._phones / self._episode_s,
            risen["finished"] / passed,
            risen["read"] / passed,
            sum(busy) / len(busy),
            int(risen["finished"] - risen["read"]),
            int(end["fed"] - end["begun"]),
            int(end["unacknowledged"]),
            cores,
            "",
        )
        return _judged(made, self._phones, passed)

    def _sample(self) -> dict[str, float]:
        while batch := self._beats.read(0.1):
            for raw in batch:
                if raw.key == b"feeder":
                    # the first one of a feeder only names it
                    self._fed = int(decoded(raw, Heartbeat).metrics.get("fed", self._fed))
        counted = {name: self._sum(name) for name in ("begun", "finished", "unacknowledged")}
        learner = self._learner.facts
        used = {
            "cpu feeder": self._feeder.cpu_s(),
            "cpu workers": sum(each.cpu_s() for each in self._workers),
            "cpu learner": self._learner.cpu_s(),
            "cpu broker": self._world.broker_s(),
        }
        read = float(max(learner.get("read", 0), learner.get("folded", 0)))
        return {**counted, "fed": float(self._fed), "read": read, **used}

    def used(self) -> dict[str, Any]:
        """What it takes of disk and memory: bytes of a trajectory on the broker's disk, MB of each process."""
        stored = self._world.stored(self._config, "trajectories")
        return {
            "bytes of a trajectory": stored / max(1.0, self._sum("finished")),
            "broker, MB": memory_mb(self._world.broker),
            "feeder, MB": self._feeder.memory_mb(),
            "learner, MB": self._learner.memory_mb(),
            "worker without a policy, MB": max(each.memory_mb() for each in self._workers),
        }

    def _sum(self, name: str) -> float:
        return float(sum(each.facts.get(name, 0) for each in self._workers))


def _judged(turn: Turn, phones: int, seconds: float) -> Turn:
    """Who is behind: the learner if its backlog grows; if phones wait, whoever has what they wait for."""
    idle = (1 - turn.busy) * phones
    if turn.backlog > LAGGING * turn.finished * seconds + 4 * turn.finished:  # it reports every 2 s
        behind = "learner"
    elif turn.busy >= BUSY:
        behind = ""
    elif turn.unacknowledged > idle / 2:
        behind = "publishing"
    else:
        behind = "consumers" if turn.untaken > idle else "feeder"
    return replace(turn, behind=behind)


def together(
    world: World, episode_s: float, speeds: Sequence[float], seconds: float
) -> tuple[list[Turn], dict[str, Any]]:
    """All parts at growing speeds, until one is behind; and what they have used by then."""
    turns: list[Turn] = []
    with ExitStack() as opened:
        fleet = Together(world, episode_s, opened)
        for speed in speeds:
            turns.append(fleet.turn(speed, seconds))
            if turns[-1].behind:
                break
        return turns, fleet.used()


def measure(given: argparse.Namespace) -> Mapping[str, Any]:
    """Feeder, consumers, producers, learner's bookkeeping and version broadcast with records of a whole fleet."""
    workers = -(-given.phones // given.phones_per_worker)
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as folder, ExitStack() as after:
        config = load(
            sets=[
                f"run=fleet-{uuid.uuid4().hex[:8]}",
                f"stack.directory={folder}/stack",
                f"stack.kafka_heap_mb={given.heap_mb}",
                f"store.url=file://{folder}/objects",
                'devices.addresses=["127.0.0.1:1"]',
                *SETTINGS,
            ],
            environ={},
        )
        stack = LocalStack(config, console.print)
        config = stack.up()
        after.callback(stack.down)
        broker = next(part.pid for part in stack.status() if part.name == "kafka" and part.pid)
        world = World(
            config,
            Path(folder),
            psutil.Process(broker),
            given.phones,
            workers,
            STEPS,
            given.trajectories,
            given.processes,
        )
        return measured(world, given)


def measured(world: World, given: argparse.Namespace) -> Mapping[str, Any]:
    """As `measure`, on a broker that is there."""

    def said(what: str) -> None:
        console.print(f"{time.strftime('%H:%M:%S')} {what}")

    found: list[Part] = []
    windows = sorted({world.config.learner.trajectories_per_update, min(world.window, world.trajectories)})
    record_bytes = 0.0
    for window in windows:
        said(f"publishing, then the learner's bookkeeping, {window} trajectories an update")
        config = world.run(f"log-{window}", f"learner.trajectories_per_update={window}")
        published, record_bytes = parts.publishing(world, config)
        folded, screens = parts.folding(world, config)
        found.append(folded)
    found += [screens, published]
    said("the feeder, alone")
    many = ("feeder.max_lag=1000000", f"feeder.outstanding={world.outstanding}")
    config = world.run("feeder", *many, world.partitions)
    fed, filled_s, beats = parts.feeding(world, config)
    found.append(fed)
    said("the workers' group")
    found.append(parts.taking(world, config))
    joins = parts.joining(world, world.run("group", world.partitions))
    said("version broadcast")
    broadcast = parts.broadcasting(world, world.run("versions"))
    said("all together")
    turns, used = together(world, given.episode_s, given.speeds, given.seconds)
    for table in (_alone(world, found, given.episode_s), _turns(turns)):
        console.print(table)
    console.print(_first(found, turns, given.episode_s))
    return {
        "phones": world.phones,
        "workers": world.workers,
        "episode_s": given.episode_s,
        "outstanding": world.outstanding,
        "trajectories_per_update": world.window,
        "bytes of a trajectory in bulk": record_bytes,
        **used,
        "bytes of a task": world.stored(config, "tasks") / (world.outstanding + world.trajectories),
        "first tasks fed, s": filled_s,
        "parts": {part.name: asdict(part) for part in found},
        "heartbeats": asdict(beats),
        "joins": asdict(joins),
        "broadcast": asdict(broadcast),
        "together": [asdict(turn) for turn in turns],
    }


def _alone(world: World, found: Sequence[Part], episode_s: float) -> Table:
    rate = world.phones / episode_s
    shown = Table(title=f"each part alone; {world.phones:,} phones with episodes of {episode_s:g} s: {rate:.1f} /s")
    shown.add_column("part")
    for name in ("here /s", "CPU ms", "broker ms", "a core /s", "its phones", f"cores, {world.phones:,}"):
        shown.add_column(name, justify="right")
    for part in sorted(found, key=lambda each: (not each.single, each.most)):
        shown.add_row(
            part.name,
            f"{part.trajectories / part.seconds:,.0f}",
            f"{1000 * part.cpu_s:.3f}",
            f"{1000 * part.broker_s:.3f}",
            f"{part.most:,.0f}" + ("" if part.single else " +"),
            f"{part.most * episode_s:,.0f}" + ("" if part.single else " +"),
            f"{rate * part.cpu_s:.3f}",
        )
    shown.caption = "/s: trajectories a second. +: more processes do more. Processor time is of one trajectory."
    return shown


def _turns(turns: Sequence[Turn]) -> Table:
    shown = Table(title="all together")
    for name in ("offered /s", "finished /s", "learner read /s", "phones busy", "cores", "behind"):
        shown.add_column(name, justify="right")
    for turn in turns:
        rates = [f"{rate:,.1f}" for rate in (turn.offered, turn.finished, turn.learned)]
        cores = "\n".join(f"{name} {used:.2f}" for name, used in turn.cores.items())
        shown.add_row(*rates, f"{turn.busy:.0%}", cores, turn.behind)
    return shown


def _first(found: Sequence[Part], turns: Sequence[Turn], episode_s: float) -> str:
    """The verdict in words."""
    first = min((part for part in found if part.single), key=lambda part: part.most)
    words = (
        f"With a core for each process the first limit is {first.name}: {first.most:,.0f} trajectories a second, "
        f"{first.most * episode_s:,.0f} phones with episodes of {episode_s:g} s, {first.most * SHORT_EPISODE_S:,.0f} "
        f"with episodes of {SHORT_EPISODE_S:g} s."
    )
    if turns and turns[-1].behind:
        last = turns[-1]
        words += (
            f" Here, on {psutil.cpu_count()} cores for everything, {last.behind} fell behind at {last.offered:,.0f} "
            f"offered, {last.finished:,.0f} finished a second, with {sum(last.cores.values()):.1f} cores in use."
        )
    return words


def _named(config: Config, name: str) -> Config:
    return config.model_copy(update={"worker": config.worker.model_copy(update={"name": name})})
