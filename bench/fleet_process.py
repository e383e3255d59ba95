"""One process of a simulated fleet: `fleet_parts.Child` starts it, as `python bench/fleet_process.py`.

Its standard input begins with what it is (a pickled Start); each further line is an order, in JSON. It reports by lines
of JSON on its standard output, and ends when its input does. What it measures is the project's own code; only phones,
screens and gradients are missing.
"""

from __future__ import annotations

import heapq
import json
import pickle
import queue
import random
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from distrl.broker.consumer import LoggedTask, TaskConsumer
from distrl.broker.heartbeats import HeartbeatSender
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, decoded
from distrl.broker.versions import VersionFollower
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import DistrlError
from distrl.feeder.run import run_feeder
from distrl.types import DeviceHealth, Heartbeat, LogPosition, Split, Task
from generator import Attempts

REPORT_S = 0.5
"""Between two reports of a process."""
TICK_S = 0.02
"""Longest pause of a simulated worker between two looks at its phones."""
COUNTERS = (
    "leases",
    "interrupted",
    "quarantines",
    "reconnects",
    "retries",
    "foreign_apps",
    "app_recoveries",
    "restarts",
)
"""Of a phone in a heartbeat, as the device pool counts them."""
METRICS = 17
"""Numbers in a worker's heartbeat."""


@dataclass(frozen=True, slots=True)
class Start:
    """part: a key of PARTS, called with the configuration, a Link and `given`."""

    part: str
    config: Config
    given: Mapping[str, Any]


@dataclass
class Link:
    """What a process has of the one that started it."""

    stop: threading.Event = field(default_factory=threading.Event)
    orders: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    _next: float = 0.0

    def report(self, **facts: Any) -> None:
        print(json.dumps(facts), flush=True)

    def due(self) -> bool:
        """Whether REPORT_S has passed since it was last due."""
        if time.monotonic() < self._next:
            return False
        self._next = time.monotonic() + REPORT_S
        return True

    def order(self) -> Any:
        """The next order, or None."""
        try:
            return self.orders.get_nowait()
        except queue.Empty:
            return None

    def listen(self) -> None:
        for line in sys.stdin:
            self.orders.put(json.loads(line))
        self.stop.set()


def feeder(config: Config, link: Link) -> None:
    """The feeder role, whole."""
    run_feeder(config, link.stop)


def learner(config: Config, link: Link) -> None:
    """The learner role without screens and gradients."""
    from fleet_learner import run_bookkeeping  # it imports torch, which no other part needs

    run_bookkeeping(config, link.stop, link.report)


def answers(config: Config, link: Link, steps: int) -> None:
    """Answers every task at once with a trajectory, as the phones of all workers together."""
    made = Attempts(steps, random.Random(0))
    with RecordProducer(config, "fleet") as producer, LogReader(config, "tasks") as reader:
        while not link.stop.is_set():
            for raw in reader.read(0.2):
                task = decoded(raw, Task)
                producer.publish("trajectories", task.task_id, made.at(task, task.fed_version))
            producer.flush(60)


def publisher(config: Config, link: Link, count: int, steps: int) -> None:
    """Publishes `count` trajectories, made beforehand in blocks that are acknowledged before the next."""
    made, ahead = Attempts(steps, random.Random(1)), 2_000
    task = Task("", "home", "search", Split.TRAIN, "open browser and search for red shoes", 14, 0)
    wall = processor = 0.0
    with RecordProducer(config, "fleet") as producer:
        for first in range(0, count, ahead):
            names = [f"home-train-0-{number:06d}" for number in range(first, min(count, first + ahead))]
            records = [made.at(replace(task, task_id=name), 0) for name in names]
            began, used = time.perf_counter(), time.process_time()
            futures = [producer.publish("trajectories", each.task_id, each) for each in records]
            for future in futures:
                future.result(60)
            wall, processor = wall + time.perf_counter() - began, processor + time.process_time() - used
    link.report(done=count, seconds=wall, cpu_s=processor)


def taker(config: Config, link: Link, phones: int) -> None:
    """Joins the group, and from the first order on takes tasks and commits each at once."""
    taken, last = 0, 0.0
    with TaskConsumer(config) as tasks:
        tasks.take_for(phones)
        tasks.pause()
        while not link.stop.is_set():
            if tasks.paused and link.order() is not None:
                tasks.resume()
            received = tasks.poll(0.1)
            if received is not None:
                tasks.commit(received.position)
                taken, last = taken + 1, time.time()
            if link.due():
                link.report(taken=taken, last=last, partitions=len(tasks.partitions))


def members(config: Config, link: Link) -> None:
    """Members of the workers' group, polled in turns. Orders: how many there are to be; the last ones leave."""
    group: list[TaskConsumer] = []
    with ExitStack() as opened:
        while not link.stop.is_set():
            wanted = link.order()
            while wanted is not None and len(group) > wanted:
                group.pop().close()
            while wanted is not None and len(group) < wanted:
                group.append(_member(config, len(group), opened))
            for each in group:
                each.poll(0)
            if link.due():
                owned = [len(each.partitions) for each in group]
                link.report(members=len(group), least=min(owned, default=0), partitions=sum(owned), at=time.time())
            time.sleep(TICK_S)


def followers(config: Config, link: Link, count: int) -> None:
    """`count` followers of the versions; reports when the last of them has each version."""
    had: Counter[int] = Counter()
    lock = threading.Lock()

    def follow(follower: VersionFollower) -> None:
        known = -1
        while not link.stop.is_set():
            newer = follower.wait_newer(known, REPORT_S)
            if newer is not None:
                known, now = newer.version, time.time()
                with lock:
                    had[known] += 1
                    if had[known] == count:
                        link.report(version=known, at=now)

    with ExitStack() as opened, ThreadPoolExecutor(count) as threads:
        every = [opened.enter_context(VersionFollower(config)) for _ in range(count)]
        link.report(ready=True)
        for ended in [threads.submit(follow, each) for each in every]:
            ended.result()


def heartbeats(config: Config, link: Link, workers: int, phones: int) -> None:
    """The heartbeats of so many workers with `phones` phones each, at their usual pace."""
    rule, sent = random.Random(2), 0
    fleet = [health(index * phones, phones, rule) for index in range(workers)]
    with RecordProducer(config, "fleet") as producer:
        due = [(index / workers * config.worker.heartbeat_s, index) for index in range(workers)]
        began = time.monotonic()
        while not link.stop.is_set():
            while due[0][0] <= time.monotonic() - began:
                at, index = due[0]
                heapq.heapreplace(due, (at + config.worker.heartbeat_s, index))
                beat = beat_of(index, fleet[index], rule)
                producer.publish("heartbeats", beat.process, beat)
                sent += 1
            if link.due():
                link.report(sent=sent)
            time.sleep(TICK_S)


def worker(config: Config, link: Link, first_phone: int, phones: int, episode_s: float, steps: int) -> None:
    """A worker whose phones are played by a clock: tasks in, trajectories out. Orders: how fast the clock runs.

    An episode lasts 0.5 to 1.5 times `episode_s` of that clock, the first of each phone less, so that not all end at
    once.
    """
    rule = random.Random(first_phone)
    made, clock, devices = Attempts(steps, rule), _Clock(), health(first_phone, phones, rule)
    begun, finished, free = 0, 0, phones
    playing: list[tuple[float, int, LoggedTask]] = []
    acknowledged: deque[LogPosition] = deque()
    with (
        RecordProducer(config, config.worker.name) as producer,
        VersionFollower(config) as versions,
        TaskConsumer(config) as tasks,
    ):
        beats = HeartbeatSender(
            config.worker.name,
            "worker",
            config.worker.heartbeat_s,
            lambda beat: producer.publish("heartbeats", beat.process, beat),
        )
        tasks.take_for(phones)
        while not link.stop.is_set():
            clock.run(link.order())
            now = clock.now()
            while playing and playing[0][0] <= now:
                _, _, ended = heapq.heappop(playing)
                newest = versions.latest()
                version = ended.task.fed_version if newest is None else newest.version
                future = producer.publish("trajectories", ended.task.task_id, made.at(ended.task, version))
                future.add_done_callback(lambda _, at=ended.position: acknowledged.append(at))
                finished += 1
            while acknowledged:
                tasks.commit(acknowledged.popleft())
                free += 1
            if free:
                tasks.resume()
            else:
                tasks.pause()
            received = tasks.poll(TICK_S)
            if received is not None:
                share = rule.uniform(0, 1) if begun < phones else rule.uniform(0.5, 1.5)
                begun, free = begun + 1, free - 1
                heapq.heappush(playing, (now + episode_s * share, begun, received))
            if link.due():
                link.report(begun=begun, finished=finished, playing=len(playing), unacknowledged=producer.waiting)
            if beats.due:
                beats.send(versions.latest(), {}, devices, sorted(tasks.partitions))


class _Clock:
    """Virtual seconds, at a speed that may change."""

    def __init__(self) -> None:
        self._speed, self._at, self._virtual = 1.0, time.monotonic(), 0.0

    def run(self, speed: float | None) -> None:
        if speed is not None:
            self._virtual, self._at = self.now(), time.monotonic()
            self._speed = speed

    def now(self) -> float:
        return self._virtual + (time.monotonic() - self._at) * self._speed


def beat_of(index: int, devices: tuple[DeviceHealth, ...], rule: random.Random) -> Heartbeat:
    name, owned = f"worker-{index}", (2 * index, 2 * index + 1)
    metrics = {f"metric_{number}": rule.random() for number in range(METRICS)}
    return Heartbeat(name, "worker", SYSTEM_CLOCK.now_ms(), 7, f"{7:064x}", metrics, devices, owned)


def health(first: int, count: int, rule: random.Random) -> tuple[DeviceHealth, ...]:
    """Phones that answer, with counters as of a run that has lasted."""
    return tuple(
        DeviceHealth(
            f"10.0.{number >> 8}.{number & 255}:5555", "leased", {name: rule.randrange(300) for name in COUNTERS}
        )
        for number in range(first, first + count)
    )


def _member(config: Config, number: int, opened: ExitStack) -> TaskConsumer:
    named = config.model_copy(update={"worker": config.worker.model_copy(update={"name": f"worker-{number}"})})
    made = opened.enter_context(TaskConsumer(named))
    made.take_for(1)
    return made


PARTS: Mapping[str, Callable[..., None]] = {
    each.__name__: each for each in (feeder, learner, answers, publisher, taker, members, followers, heartbeats, worker)
}


def main() -> None:
    start: Start = pickle.load(sys.stdin.buffer)
    link = Link()
    threading.Thread(target=link.listen, daemon=True).start()
    PARTS[start.part](start.config, link, **start.given)


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        raise SystemExit(str(error)) from None
