"""What the measurements of a fleet share: its processes, its runs, and what they use."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from distrl.broker import topic_admin
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.config import Config, load
from fleet_process import Start

LONGEST_S = 300.0
"""Longest wait for a part to get somewhere; only against a hang."""


class Child:
    """A process of the fleet. `facts` holds the last value of everything that it has reported."""

    def __init__(self, part: str, config: Config, log: Path, **given: Any) -> None:
        self.part, self.facts, self._log = part, dict[str, Any](), log
        self._changed = threading.Condition()
        line = [sys.executable, str(Path(__file__).with_name("fleet_process.py"))]
        with log.open("ab") as file:
            self._popen = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file)
        self._process = psutil.Process(self._popen.pid)
        assert self._popen.stdin is not None
        pickle.dump(Start(part, config, given), self._popen.stdin)
        self._popen.stdin.flush()
        threading.Thread(target=self._listen, daemon=True).start()

    def until(self, test: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """What it has reported once `test` holds of it."""
        with self._changed:
            self._changed.wait_for(lambda: test(self.facts) or self._popen.poll() is not None, LONGEST_S)
            if not test(self.facts):
                words = self._log.read_text(errors="replace")[-2000:]
                raise SystemExit(
                    f"{self.part} ended, or got nowhere in {LONGEST_S:.0f} s; it reported {self.facts}; {words}"
                )
            return dict(self.facts)

    def order(self, value: Any) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(value).encode() + b"\n")
        self._popen.stdin.flush()

    def cpu_s(self) -> float:
        return cpu_s(self._process)

    def memory_mb(self) -> float:
        return memory_mb(self._process)

    def stop(self) -> None:
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        try:
            self._popen.wait(60)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()

    def _listen(self) -> None:
        assert self._popen.stdout is not None
        for line in self._popen.stdout:
            with self._changed:
                self.facts |= json.loads(line)
                self._changed.notify_all()
        self._popen.wait()
        with self._changed:
            self._changed.notify_all()


def cpu_s(process: psutil.Process) -> float:
    """Processor seconds of a process so far, all threads together."""
    used = process.cpu_times()
    return float(used.user + used.system)


def memory_mb(process: psutil.Process) -> float:
    """Resident memory."""
    return float(process.memory_info().rss) / 1e6


@dataclass(frozen=True, slots=True)
class World:
    """Where the parts are measured. broker: its process. workers: processes that so many phones have in production."""

    config: Config
    folder: Path
    broker: psutil.Process
    phones: int
    workers: int
    steps: int
    trajectories: int
    processes: int
    """Of a kind, on this machine."""

    @property
    def outstanding(self) -> int:
        return self.config.feeder.outstanding_for(self.phones)

    @property
    def partitions(self) -> str:
        """The setting of the tasks topic, with which each worker has two or more."""
        return f"kafka.task_partitions={max(self.config.kafka.task_partitions, 2 * self.workers)}"

    @property
    def window(self) -> int:
        """learner.trajectories_per_update with which the lag's bound lets as many tasks be outstanding."""
        return -(-self.outstanding // (self.config.feeder.max_lag + 1))

    def run(self, name: str, *sets: str) -> Config:
        """The configuration of a new run of that name, whose topics are there."""
        own = [f"run={self.config.run}-{name}", *sets]
        made = load(sets=own, environ={}, base=self.config.model_dump())
        topic_admin.ensure(made)
        return made

    @contextmanager
    def started(self, part: str, config: Config, **given: Any) -> Iterator[Child]:
        child = Child(part, config, self.folder / f"{part}.log", **given)
        try:
            yield child
        finally:
            child.stop()

    def broker_s(self) -> float:
        return cpu_s(self.broker)

    def stored(self, config: Config, topic: str) -> int:
        """Bytes of a topic on the broker's disk."""
        found = self.config.stack.directory.glob(f"kafka/data/{topic_name(config.run, topic)}-[0-9]*/*.log")
        return sum(each.stat().st_size for each in found)


class Counting:
    """How many records a topic has got."""

    def __init__(self, config: Config, topic: str, opened: ExitStack) -> None:
        self._reader = opened.enter_context(LogReader(config, topic))
        self.count = 0

    def until(self, count: int, who: str) -> None:
        """Wait for so many."""
        deadline = time.monotonic() + LONGEST_S
        while self.count < count:
            self.count += len(self._reader.read(0.2))
            if time.monotonic() > deadline:
                raise SystemExit(f"{who} got to {self.count} of {count} in {LONGEST_S:.0f} s")


def wait(test: Callable[[], bool], who: str) -> None:
    deadline = time.monotonic() + LONGEST_S
    while not test():
        if time.monotonic() > deadline:
            raise SystemExit(f"{who} got nowhere in {LONGEST_S:.0f} s")
        time.sleep(0.1)
