"""What driving phones costs this side of adb.

    operations  tap, shell, screenshot and current focus by AdbSession, by a raw socket that speaks the adb server's
                protocol and checks nothing, and by adbutils; on one simulated phone without latency. The three take
                turns, one call each.
    fleet       steps a second and the time of one step with 8, 64 and 256 phones in one worker process, on simulated
                phones of one constant latency, under a fixed policy (a tap, then HOME) that costs nothing; and with 8
                phones under the shipped base model. Everything but Kafka is the worker's own: pool, resets, settling,
                screenshots into a directory store, the batching policy thread. Beside each: the processor time that
                the worker process spends on a step, all of its threads together.

Starts its own adb server and phones, in processes of their own, and ends them.

    python bench/devices.py --json out/devices.json
"""

from __future__ import annotations

import argparse
import json
import platform
import socket
import statistics
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import adbutils
from distrl.config import Config, load
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DistrlError
from distrl.evaluate.curves import percentile
from distrl.policy.registry import policy_of
from distrl.policy.sampling import FULL, Sampling
from distrl.rollout.actor_pool import play_all
from distrl.rollout.back_pressure import Retry
from distrl.rollout.batcher import Batcher
from distrl.rollout.episode import Episode, Phone
from distrl.rollout.phones import Phones
from distrl.rollout.serving import serving
from distrl.rollout.wiring import TRUTH, screenshot_store
from distrl.stack import adb, ports
from distrl.stack.part import Site
from distrl.stack.phones import start_phones
from distrl.stack.processes import find_all, stop_all
from distrl.store.objects import open_store
from distrl.tasks.lists import suite_of
from distrl.types import (
    Action,
    ActionKind,
    ObjectRef,
    Outcome,
    Point,
    ScreenSize,
    Split,
    Step,
    Task,
    Trajectory,
    Version,
)
from rich.console import Console
from rich.table import Table

CALLS = 150
"""Of each operation by each of the three."""
LATENCY_MS = 20.0
"""Of every gesture on the fleet's phones: small, so that what this side costs shows, and constant."""
TAP = Point(0.5, 0.3)
EPISODES = 40
"""For each phone: more than it can play meanwhile, as an episode of fifteen steps takes seconds."""

console = Console()


@dataclass(frozen=True, slots=True)
class Operation:
    """Medians of seconds for one call. The ratios are ours over theirs: 1 is as fast, 2 takes twice as long."""

    name: str
    ours: float
    raw: float
    adbutils: float

    @property
    def to_raw(self) -> float:
        return self.ours / self.raw

    @property
    def to_adbutils(self) -> float:
        return self.ours / self.adbutils


@dataclass(frozen=True, slots=True)
class Fleet:
    """One fleet at work for `seconds`. Milliseconds of a step: p50, p99 of the whole, then means of its parts.

    phone: waiting for the phone and its adb (gesture, screenshots until the screen rests). policy: waiting for the
    decision. publish: storing the screenshot. worker: processor time of the worker process, policy included.
    """

    phones: int
    policy_is: str
    seconds: float
    steps: int
    interrupted: int
    p50: float
    p99: float
    phone: float
    policy: float
    publish: float
    worker: float

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds


# Operations


class Raw:
    """The adb server's protocol with no deadline, no check and no error but Python's own: what nothing can be below."""

    def __init__(self, server: AdbServer, serial: str) -> None:
        self._at, self._serial = (server.adb.host, server.adb.port), serial

    def run(self, line: str) -> bytes:
        """The standard output of a command."""
        with socket.create_connection(self._at) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection.makefile("rb") as answer:
                for request in (f"host:transport:{self._serial}", f"shell,v2,raw:{line}"):
                    connection.sendall(f"{len(request):04x}{request}".encode())
                    assert answer.read(4) == b"OKAY"
                out = b""
                while True:
                    kind, size = struct.unpack("<BI", answer.read(5))
                    data = answer.read(size)
                    if kind == 3:
                        return out
                    out += data if kind == 1 else b""


def operations(server: AdbServer, serial: str, config: Config) -> Iterator[Operation]:
    session, raw = AdbSession(server, serial, config.devices), Raw(server, serial)
    device = adbutils.AdbClient(server.adb.host, server.adb.port).device(serial)
    width, height = session.size()
    x, y = int(TAP.x * width), int(TAP.y * height)
    said = "getprop ro.product.model"

    def verified_anew() -> None:
        """A session knows the last screenshot again and need not verify it: here each is a session's first."""
        AdbSession(server, serial, config.devices).screenshot()

    calls: dict[str, tuple[Callable[[], object], ...]] = {
        "tap": (lambda: session.tap(TAP), lambda: raw.run(f"input tap {x} {y}"), lambda: device.click(x, y)),
        "shell": (lambda: session.shell(said), lambda: raw.run(said), lambda: device.shell(said)),
        "screenshot": (verified_anew, lambda: raw.run("screencap -p"), device.screenshot),
        "current focus": (session.focus, lambda: raw.run("dumpsys window displays"), device.app_current),
    }
    for name, sides in calls.items():
        with console.status(f"measuring: {name}"):
            yield Operation(name, *alternated(sides))


def alternated(sides: Sequence[Callable[[], object]]) -> list[float]:
    """Median seconds of a call of each; they take turns, another one first each time."""
    taken: list[list[float]] = [[] for _ in sides]
    for turn in range(CALLS):
        for place in range(len(sides)):
            side = (turn + place) % len(sides)
            began = time.perf_counter()
            sides[side]()
            taken[side].append(time.perf_counter() - began)
    return [statistics.median(each) for each in taken]


# Fleets


@dataclass(frozen=True, slots=True)
class Row:
    action_ids: tuple[int, ...]
    action: Action
    action_text: str
    logprob: float
    entropy: float | None = None


FIXED = (
    Row((3, 1), Action(ActionKind.TAP, touch=TAP), "tap", -1.0),
    Row((4, 1), Action(ActionKind.HOME), "home", -1.0),
)


class FixedPolicy:
    """Weights and tokens of a policy that costs nothing: a tap, HOME, a tap, HOME …, told by its prompt."""

    earlier_screens = 0

    def decide(
        self,
        pngs: Sequence[bytes],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        seeds: Sequence[int],
        earlier: Sequence[Sequence[bytes]] = (),
    ) -> Sequence[Row]:
        return [FIXED[len(prompt) % 2] for prompt in prompts]

    def load(self, adapter: bytes) -> None:
        return

    def encode_prompt(self, instruction: str, previous: Sequence[Action], screen: ScreenSize) -> tuple[int, ...]:
        return (3,) * (1 + len(previous) % 2)


@contextmanager
def deciding(config: Config, shipped: bool) -> Iterator[Batcher]:
    """The policy's thread, with a version loaded."""
    if shipped:
        agent = policy_of(config.policy)
        version, adapter = version_of(agent.base_sha256), agent.adapter()
        with serving(config, sampling=FULL) as policy:
            policy.batcher.swap(version, adapter)
            yield policy.batcher
        return
    fixed = FixedPolicy()
    batcher = Batcher(fixed, fixed, sampling=None, wait_s=config.worker.batch_wait_ms / 1000)
    thread = threading.Thread(target=batcher.serve, name="policy", daemon=True)
    thread.start()
    try:
        batcher.swap(version_of(""), b"")
        yield batcher
    finally:
        batcher.close()
        thread.join()


def version_of(base_sha256: str) -> Version:
    return Version(0, None, 0, base_sha256, ObjectRef("adapters/0", "0" * 64, 0), "", 0)


def fleet(config: Config, shipped: bool, seconds: float) -> Fleet:
    """Play with every phone of `config`, and count what falls into `seconds` after all phones have begun."""
    suite, count = suite_of(config.feeder), config.phones.count
    tasks = [suite.task(index, 0, Split.TRAIN) for index in range(EPISODES * count)]
    stop, give_up = threading.Event(), threading.Event()
    begun: set[str] = set()
    played: list[Trajectory] = []
    spent: list[tuple[int, float]] = []  # ms since the epoch, processor seconds so far
    retry = Retry(give_up)
    episode = Episode("bench", screenshot_store(open_store(config.store), config.run, retry), TRUTH)

    def clock_in() -> None:
        spent.append((time.time_ns() // 1_000_000, time.process_time()))

    def until_measured() -> None:
        end = time.monotonic() + 60.0
        while len(begun) < count and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(2.0)
        clock_in()
        time.sleep(seconds)
        clock_in()
        stop.set()

    with deciding(config, shipped) as batcher, Phones(config, stop) as phones:

        def play(task: Task, phone: Phone) -> Trajectory:
            begun.add(phone.serial)
            with batcher.episode():
                return episode.run(task, "bench", phone, batcher)

        timer = threading.Thread(target=until_measured)
        timer.start()
        play_all(
            tasks, phones, play, played.append, worker="bench", retries=0, drain_s=30.0, stop=stop, give_up=give_up
        )
        stop.set()
        timer.join()
    (first, cpu_first), (last, cpu_last) = spent
    steps = [step for each in played for step in each.steps if first <= step.at < last]
    if not steps:
        raise SystemExit(f"no step was played on {count} phones: {played[0].note if played else 'no episode ended'}")
    whole = [step.phone_ms + step.adb_ms + step.policy_ms + step.publish_ms for step in steps]
    return Fleet(
        count,
        "shipped" if shipped else "fixed",
        (last - first) / 1000,
        len(steps),
        sum(each.outcome is Outcome.INTERRUPTED for each in played),
        percentile(whole, 0.5),
        percentile(whole, 0.99),
        mean(steps, lambda step: step.phone_ms + step.adb_ms),
        mean(steps, lambda step: step.policy_ms),
        mean(steps, lambda step: step.publish_ms),
        1000 * (cpu_last - cpu_first) / len(steps),
    )


def mean(steps: Sequence[Step], of: Callable[[Step], float]) -> float:
    return statistics.fmean(of(step) for step in steps)


@contextmanager
def served(folder: Path, count: int, latency_ms: float) -> Iterator[Config]:
    """An adb server and `count` phones, and the settings that name them."""
    folder.mkdir()
    base = ports.draw("the bench", count=count)
    sets = [
        f"adb.port={ports.draw('the bench')}",
        f"phones.count={count}",
        "phones.evaluation_count=0",
        f"phones.base_port={base}",
        f"phones.latency_median_ms={latency_ms}",
        "phones.latency_sigma=0",
        "phones.popup_probability=0",
        f'devices.addresses=["127.0.0.1:{base}-{base + count - 1}"]',
        f"devices.directory={folder}/devices",
        "devices.lease_ttl_s=180",
        "devices.operation_timeout_s=60",
        "devices.settle_timeout_s=60",
        f"store.url=file://{folder}/objects",
    ]
    config = load(None, sets)
    site = Site(folder, folder, threading.Event(), console.print)
    try:
        adb.start_adb(site, config.adb)
        start_phones(site, config.phones)
        yield config
    finally:
        stop_all(find_all(folder), 10.0)


# What is shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--phones", type=int, nargs="*", default=[8, 64, 256], help="phones of each fleet")
    parser.add_argument("--seconds", type=float, default=20.0, help="measured of each fleet")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as name:
        folder = Path(name)
        with served(folder / "one", 1, 0.0) as config, AdbServer(config.adb) as server:
            serial = config.devices.addresses[0]
            server.connect(serial)
            done = list(operations(server, serial, config))
        console.print(shown_operations(done))
        fleets = []
        for number, (count, shipped) in enumerate([*((each, False) for each in given.phones), (8, True)]):
            with (
                served(folder / f"fleet-{number}", count, LATENCY_MS) as config,
                console.status(f"{count} phones, {'shipped' if shipped else 'fixed'} policy"),
            ):
                fleets.append(fleet(config, shipped, given.seconds))
    console.print(shown_fleets(fleets))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        found = {
            "python": platform.python_version(),
            "calls": CALLS,
            "latency_ms": LATENCY_MS,
            "operations": [asdict(each) | {"to_raw": each.to_raw, "to_adbutils": each.to_adbutils} for each in done],
            "fleets": [asdict(each) | {"steps_per_second": each.steps_per_second} for each in fleets],
        }
        given.json.write_text(json.dumps(found, indent=1))


def shown_operations(done: Sequence[Operation]) -> Table:
    table = Table("operation, median ms", "AdbSession", "raw socket", "adbutils", "ours / raw", "ours / adbutils")
    for each in done:
        times = (f"{1000 * seconds:.2f}" for seconds in (each.ours, each.raw, each.adbutils))
        table.add_row(each.name, *times, f"{each.to_raw:.2f}", f"{each.to_adbutils:.2f}")
    return table


def shown_fleets(fleets: Sequence[Fleet]) -> Table:
    table = Table(
        "phones",
        "policy",
        "steps/s",
        "step p50 ms",
        "p99 ms",
        "phone + adb",
        "policy ms",
        "publish",
        "worker's CPU",
        "interrupted",
    )
    for each in fleets:
        parts = (each.steps_per_second, each.p50, each.p99, each.phone, each.policy, each.publish, each.worker)
        table.add_row(str(each.phones), each.policy_is, *(f"{part:.1f}" for part in parts), str(each.interrupted))
    return table


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        raise SystemExit(str(error)) from None
