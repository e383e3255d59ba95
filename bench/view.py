"""What `distrl view` takes on a log that grows: making the index, opening it, its lists, and memory at each length.
With --browser, how fluid the longest list is in a Chromium, too (view_browser.py).

Each part is a process of its own, on a broker in a temporary directory. Trajectories are real records of several steps.
At each length the index is made from nothing. Memory is the kernel's account of the process (`VmHWM`, `VmRSS`):
`ru_maxrss` would also count what the process was that started it, which has written the log.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from distrl.broker import topic_admin
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.config import Config, load, with_run
from distrl.runs.recorded import join
from distrl.stack.local import LocalStack
from distrl.types import Action, ActionKind, ObjectRef, Outcome, Point, Split, Step, Task, Trajectory, Version
from distrl.view.follow import RunFollower
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from rich.console import Console

HEX = "a" * 64
BEGAN = 1_760_000_000_000
VERSIONS = 50
TIMES = 10
"""How often each answer is asked for."""
WAITING = 2_000
"""Records on their way."""
LISTS = {
    "the newest": "",
    "one page in the middle": "&offset={middle}",
    "by lag": "&sort=lag",
    "by instruction": "&sort=instruction&order=asc",
    "failures of a family and version": "&outcome=failure&family=family-3&version=20",
    "text": "&text=number%2077",
}
"""What a list is asked for; each with 100 rows of the trajectories."""
PAGES = {"the run": "", "charts": "/series", "failures": "/failures", "devices": "/devices"}
console = Console()


def resident(field: str) -> float:
    """MB that this process holds (`VmRSS`), has held at most (`VmHWM`), or holds of no file (`RssAnon`)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def trajectory(number: int, steps: int, draw: random.Random) -> Trajectory:
    shot = ObjectRef(f"screenshots/2026-01-01/{HEX}.png", HEX, 30_000)
    at, version = BEGAN + number * 700, number * VERSIONS // 1_000_000
    step = Step(
        shot, tuple(range(300, 380)), tuple(range(12)), Action(ActionKind.TAP, Point(0.3, 0.7)), "tap 0.3 0.7", -1.5,
        version, HEX, at, 50.0, 25.0, 20.0, 1.0,
    )  # fmt: skip
    said = f"open the mail number {number} and answer it kindly"
    task = Task(f"task-{number:08d}", "home", f"family-{number % 8}", Split.TRAIN, said, 20, number)
    return Trajectory(
        task, f"attempt-{number}", f"worker-{number % 8}", f"10.0.0.{number % 64}:5555", (step,) * steps, shot,
        draw.choice((Outcome.SUCCESS, Outcome.FAILURE)), "ground-truth", "", False, at, at + 9_000,
    )  # fmt: skip


def begin(config: Config, count: int) -> None:
    """Write what a run of so many trajectories has beside them."""
    topic_admin.ensure(config)
    join(config, None, "learner", ("the measurement",))
    with Journal(config) as journal:
        for number in range(VERSIONS):
            at = BEGAN + number * count * 700 // VERSIONS
            journal.publish_version(
                Version(
                    number,
                    number - 1 if number else None,
                    number,
                    HEX,
                    ObjectRef(f"adapters/{number}", HEX, 1),
                    HEX,
                    at,
                )
            )


def fill(config: Config, numbers: range, count: int, steps: int) -> None:
    """Write the trajectories of these numbers, of a run that will have `count`."""
    draw, waiting = random.Random(numbers.start), deque()
    with RecordProducer(config, "the measurement") as producer:
        for number in numbers:
            made = trajectory(number, steps, draw)
            acted = tuple(replace(step, version=number * VERSIONS // count) for step in made.steps)
            waiting.append(producer.publish("trajectories", made.task_id, replace(made, steps=acted)))
            if len(waiting) > WAITING:
                waiting.popleft().result(60)
        for each in waiting:
            each.result(60)


def build(config: Config) -> Mapping[str, float]:
    """Make the index, or bring it up to date."""
    before = resident("VmRSS")
    began, spent = time.perf_counter(), time.process_time()
    follower = RunFollower(config)
    follower.caught_up.wait()
    took, spent = time.perf_counter() - began, time.process_time() - spent
    held = {"before, MB": before, "peak, MB": resident("VmHWM"), "after, MB": resident("VmRSS")}
    held["after, of no file, MB"] = resident("RssAnon")
    follower.close()
    size = sum(file.stat().st_size for file in follower.path.parent.iterdir())
    return {"seconds": took, "of the processor": spent, "index, MB": size / 1e6, **held}


def serve(config: Config) -> Mapping[str, float]:
    """Start the server over an index that is there, and ask what a page asks, ten times each."""
    before = resident("VmRSS")
    began = time.perf_counter()
    with Runs(lambda: [config.run], lambda name: config) as runs, ViewServer(runs, "127.0.0.1", 0, None) as server:

        def seconds(path: str) -> float:
            begun = time.perf_counter()
            with urllib.request.urlopen(f"{server.address}api/runs{path}") as answer:
                answer.read()
            return time.perf_counter() - begun

        one = f"/{config.run}"
        for path in ("", one, f"{one}/trajectories"):
            seconds(path)
        found = {"opened: runs, run and first list, s": time.perf_counter() - began}
        held = {"before, MB": before, "opened, MB": resident("VmRSS")}
        count = json.load(urllib.request.urlopen(f"{server.address}api/runs{one}"))["trajectories"]
        asked = {
            f"list, {name}, ms": f"{one}/trajectories?topic=trajectories&limit=100{rest.format(middle=count // 2)}"
            for name, rest in LISTS.items()
        }
        asked |= {f"{name}, ms": f"{one}{path}" for name, path in PAGES.items()}
        for name, path in asked.items():
            spent = time.process_time()
            found[name] = 1e3 * statistics.median(seconds(path) for _ in range(TIMES))
            found[f"{name} of the processor"] = 1e3 * (time.process_time() - spent) / TIMES
        held["after lists and pages, MB"] = resident("VmRSS")
        found["an episode, first time, ms"] = 1e3 * seconds(f"{one}/trajectories/0:{count // 3}")
        held |= {"peak, MB": resident("VmHWM"), "of no file at the end, MB": resident("RssAnon")}
    return {**found, **held}


def browse(config: Config) -> Mapping[str, float]:
    """Serve an index that is there to a browser."""
    import view_browser  # brings Playwright

    with Runs(lambda: [config.run], lambda name: config) as runs, ViewServer(runs, "127.0.0.1", 0, None) as server:
        runs.get(config.run).follower.caught_up.wait()
        return view_browser.browse(server.address, config.run)


PARTS: Mapping[str, Callable[[Config], Mapping[str, float]]] = {"build": build, "serve": serve, "browse": browse}


def child(part: str, sets: list[str]) -> Mapping[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, "--part", part, *(word for each in sets for word in ("--set", each))],
        check=True, stdout=subprocess.PIPE,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def measured(sets: list[str], in_browser: bool) -> dict[str, Mapping[str, float]]:
    """Figures of each part, on an index that is not there yet."""
    parts = [("make the index", "build"), ("extend it by nothing", "build"), ("serve", "serve")]
    if in_browser:
        parts.append(("in a browser", "browse"))
    return {title: child(part, sets) for title, part in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--trajectories", type=int, nargs="+", default=[10_000, 40_000, 100_000], help="lengths of the log, ascending"
    )
    parser.add_argument("--steps", type=int, default=8, help="of each trajectory")
    parser.add_argument("--browser", action="store_true", help="look at the longest in a Chromium, too")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--set", action="append", default=[], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        print(json.dumps(PARTS[given.part](load(sets=given.set, environ={}))))
        return
    with ExitStack() as after:
        folder = Path(after.enter_context(tempfile.TemporaryDirectory(prefix="distrl-bench-")))
        own = [
            f"stack.directory={folder / 'stack'}",
            f"store.url=file://{folder / 'objects'}",
            'devices.addresses=["127.0.0.1:1"]',
        ]
        stack = LocalStack(load(sets=[*own, "run=bench"], environ={}), console.print)
        up = stack.up(reuse=True)
        after.callback(stack.down)
        lengths = sorted(given.trajectories)
        config = with_run(up, f"bench-view-{lengths[-1]}")
        sets = [*own, f"run={config.run}", f"kafka.bootstrap={up.kafka.bootstrap}"]
        begin(config, lengths[-1])
        figures: dict[int, Mapping[str, Mapping[str, float]]] = {}
        for there, length in pairwise([0, *lengths]):
            began = time.perf_counter()
            fill(config, range(there, length), lengths[-1], given.steps)
            console.print(f"{length:,} trajectories written, the last in {time.perf_counter() - began:.0f} s")
            in_browser = given.browser and length == lengths[-1]
            figures[length] = measured([*sets, f"stack.cache={folder / f'cache-{length}'}"], in_browser)
            for title, found in figures[length].items():
                for name, value in found.items():
                    console.print(f"{length:,}: {title}: {name}: {value:.3g}")
        if given.json:
            given.json.parent.mkdir(parents=True, exist_ok=True)
            given.json.write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
