"""The parts of a fleet, each alone at its maximum: what `bench/fleet.py` measures first.

Processor time is what counts: a process's seconds of it for one trajectory are nearly the same on a busy machine, and
say how many cores the part needs at any rate. What a machine with few cores does in a second says less.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass

from distrl.broker.journal import Journal
from distrl.config import Config
from distrl.types import ObjectRef, Version
from fleet_world import Child, Counting, World, wait

MOST_UPDATES = 200
"""Of the learner, with which its bookkeeping is measured."""
REST_S = 10.0
"""How long a part is watched at rest."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one part did alone. Processor time is of one trajectory, in seconds.

    single: one process of a run does this, on one core at most, so 1 / cpu_s trajectories a second are its limit.
    """

    name: str
    trajectories: int
    seconds: float
    cpu_s: float
    broker_s: float
    single: bool

    @property
    def most(self) -> float:
        """Trajectories a second of one core."""
        return 1 / self.cpu_s


def version(number: int) -> Version:
    """A version whose adapter is in no store."""
    name = f"{number:064x}"
    adapter = ObjectRef(f"adapters/bench/{name}.safetensors", name, 220_000)
    return Version(number, number - 1 if number else None, number, "0" * 64, adapter, "0" * 64, int(time.time() * 1000))


def publishing(world: World, config: Config) -> tuple[Part, float]:
    """Trajectories from a worker's producer into the log. Also returns the bytes of one on the broker's disk."""
    count = _folded(world, config)
    with world.started("publisher", config, count=count, steps=world.steps) as child:
        before = world.broker_s()
        done = child.until(lambda facts: "done" in facts)
        broker = world.broker_s() - before
    part = Part("producers", count, done["seconds"], done["cpu_s"] / count, broker / count, single=False)
    return part, world.stored(config, "trajectories") / count


def folding(world: World, config: Config) -> tuple[Part, Part]:
    """The learner over a log that is there: all but screens and gradients; and its screens, in features a screen."""
    window = config.learner.trajectories_per_update
    whole = _folded(world, config)
    with world.started("learner", config) as child:
        began = child.until(lambda facts: "ready" in facts)["cpu_s"]
        since, before = time.monotonic(), world.broker_s()
        ended = child.until(lambda facts: facts.get("folded", 0) >= whole)
        seconds, broker = time.monotonic() - since, world.broker_s() - before
    if ended["skipped"]:
        raise SystemExit(f"the learner skipped {ended['skipped']} of {whole} generated trajectories")
    name = f"learner, {window} an update"
    screens_s = ended["screen_s"] * world.steps
    return (
        Part(name, whole, seconds, (ended["cpu_s"] - began) / whole, broker / whole, single=True),
        Part("learner, screens", 1, screens_s, screens_s, 0.0, single=True),
    )


def _folded(world: World, config: Config) -> int:
    """The trajectories of whole updates."""
    window = config.learner.trajectories_per_update
    return min(world.trajectories // window, MOST_UPDATES) * window


@dataclass(frozen=True, slots=True)
class Beats:
    """The heartbeats of the fleet's workers. feeder, broker: cores that they take. bytes_s: on the broker's disk."""

    feeder: float
    broker: float
    bytes_s: float


def feeding(world: World, config: Config) -> tuple[Part, float, Beats]:
    """The feeder with as many tasks outstanding as the fleet has: each trajectory makes room for a task.

    Also returns the seconds until the first tasks are all fed, and what heartbeats cost.
    """
    with Journal(config) as journal:
        journal.publish_version(version(0))
    with ExitStack() as opened, world.started("feeder", config) as child:
        tasks = Counting(config, "tasks", opened)
        tasks.until(1, "feeder")
        since = time.monotonic()
        tasks.until(world.outstanding, "feeder")
        filled = time.monotonic() - since
        with world.started("answers", config, steps=world.steps):
            tasks.until(world.outstanding + world.trajectories // 10, "feeder")
            since, used, broker, first = time.monotonic(), child.cpu_s(), world.broker_s(), tasks.count
            tasks.until(world.outstanding + world.trajectories, "feeder")
            count = tasks.count - first
            seconds, used, broker = time.monotonic() - since, child.cpu_s() - used, world.broker_s() - broker
        beats = beating(world, config, child)
    return Part("feeder", count, seconds, used / count, broker / count, single=True), filled, beats


def beating(world: World, config: Config, feeder: Child) -> Beats:
    """What the workers' heartbeats cost a feeder that has nothing else to do, and the broker."""

    def watched() -> tuple[float, float]:
        used, broker = feeder.cpu_s(), world.broker_s()
        time.sleep(REST_S)
        return (feeder.cpu_s() - used) / REST_S, (world.broker_s() - broker) / REST_S

    time.sleep(REST_S)  # what it has fed is written, read back and compiled by then
    rest = watched()
    phones = -(-world.phones // world.workers)
    with world.started("heartbeats", config, workers=world.workers, phones=phones) as child:
        child.until(lambda facts: facts.get("sent", 0) > world.workers)
        before, sent = world.stored(config, "heartbeats"), child.facts["sent"]
        busy = watched()
        size = (world.stored(config, "heartbeats") - before) / max(1, child.facts["sent"] - sent)
    each_s = world.workers / config.worker.heartbeat_s
    return Beats(busy[0] - rest[0], busy[1] - rest[1], size * each_s)


def taking(world: World, config: Config) -> Part:
    """Worker processes of one group take all tasks of the topic and commit each."""
    with ExitStack() as opened:
        tasks = Counting(config, "tasks", opened)
        tasks.until(world.outstanding + world.trajectories, "the tasks topic")
        phones = max(1, world.phones // world.processes)
        every = [opened.enter_context(world.started("taker", config, phones=phones)) for _ in range(world.processes)]
        for each in every:
            each.until(lambda facts: facts.get("partitions", 0) > 0)
        time.sleep(REST_S)  # the last one to join has the others give partitions away
        since, broker, used = time.time(), world.broker_s(), sum(each.cpu_s() for each in every)
        for each in every:
            each.order("go")
        wait(lambda: sum(each.facts["taken"] for each in every) >= tasks.count, "takers")
        seconds = max(each.facts["last"] for each in every) - since
        used, broker = sum(each.cpu_s() for each in every) - used, world.broker_s() - broker
    return Part("consumers", tasks.count, seconds, used / tasks.count, broker / tasks.count, False)


@dataclass(frozen=True, slots=True)
class Joins:
    """Seconds until every member of the workers' group has its partitions: at the start, with one more, with one less.

    broker_s: processor seconds of the broker for all of it.
    """

    members: int
    partitions: int
    together_s: float
    one_more_s: float
    one_less_s: float
    broker_s: float


def joining(world: World, config: Config) -> Joins:
    """As many members as the fleet has workers, in one process."""
    partitions = config.kafka.task_partitions

    with world.started("members", config) as child:
        before = world.broker_s()

        def settled(members: int) -> float:
            child.order(members)
            since = time.time()
            found = child.until(
                lambda facts: (
                    (facts.get("members"), facts.get("partitions")) == (members, partitions)
                    and facts["least"] > 0
                    and facts["at"] > since
                )
            )
            return float(found["at"]) - since

        taken = [settled(members) for members in (world.workers, world.workers + 1, world.workers)]
        return Joins(world.workers, partitions, *taken, world.broker_s() - before)


@dataclass(frozen=True, slots=True)
class Broadcast:
    """How versions get to the workers: seconds from before a publication until all followers have it.

    broker, worker: cores that the broker takes for all followers, and one follower, while no version comes.
    """

    followers: int
    versions: int
    p50_s: float
    most_s: float
    broker: float
    worker: float


def broadcasting(world: World, config: Config, versions: int = 12) -> Broadcast:
    with world.started("followers", config, count=world.workers) as child, Journal(config) as journal:

        def published(number: int) -> float:
            began = time.time()
            journal.publish_version(version(number))
            had = child.until(lambda facts: facts.get("version", -1) >= number)
            return float(had["at"]) - began

        published(0)
        time.sleep(REST_S)  # all have begun to follow, and the broker's code is compiled
        broker, used = world.broker_s(), child.cpu_s()
        time.sleep(REST_S)
        broker, used = world.broker_s() - broker, child.cpu_s() - used
        taken = [published(number) for number in range(1, versions + 1)]
    every = world.workers
    return Broadcast(every, versions, statistics.median(taken), max(taken), broker / REST_S, used / REST_S / every)
