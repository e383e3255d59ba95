"""A small world for the worker's tests: a phone that shows a number, a decider that plays a given list."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import factories
from distrl.clock import Clock
from distrl.errors import DeviceError
from distrl.rollout.episode import Decision, Observation, Screen
from distrl.tasks.outcome import StateCheck
from distrl.types import Action, ActionKind, DeviceHealth, HeldBack, ObjectRef, Point, Task, Unmet, Version
from PIL import Image

TAP = Action(ActionKind.TAP, Point(0.5, 0.25))
DONE = Action(ActionKind.COMPLETE)
INVALID = Action(ActionKind.INVALID, text="; reboot")


def task(name: str = "t-0", max_steps: int = 4, fed_version: int = -1) -> Task:
    return factories.task(
        name, family="counting", instruction="tap twice", max_steps=max_steps, fed_version=fed_version
    )


def shot(name: str) -> bytes:
    """A PNG whose header is read, and no more of it."""
    file = io.BytesIO()
    Image.new("L", (1, 1)).save(file, "PNG")
    return file.getvalue() + name.encode()


def ref(data: bytes, kind: str = "screenshots") -> ObjectRef:
    sha256 = hashlib.sha256(data).hexdigest()
    return ObjectRef(f"{kind}/{sha256}.png", sha256, len(data))


def version(number: int, adapter: bytes = b"weights", base: str = "base", published_at: int = 0) -> Version:
    stored = ref(adapter, "adapters")
    return factories.version(number, base_model_sha256=base, adapter=stored, published_at=published_at)


@dataclass
class TickingClock:
    """Moves on by `step` seconds whenever it is asked."""

    step: float = 1.0
    time: float = 1_000.0

    def __call__(self) -> float:
        self.time += self.step
        return self.time

    def clock(self) -> Clock:
        return Clock(self, self)


@dataclass
class CountingPhone:
    """Its screen is the number of actions it was sent. It fails when `fails_at` actions were sent."""

    serial: str = "phone-0"
    fails_at: int | None = None
    offers_truth: bool = True
    sent: list[Action] = field(default_factory=list)
    resets: int = 0
    seen: threading.Event = field(default_factory=threading.Event)
    hold: threading.Event | None = None
    foreign_apps: list[str] = field(default_factory=list)
    restless: bool = False

    def reset(self, task: Task) -> None:
        self.resets += 1
        self.sent.clear()

    def settle(self) -> Screen:
        self.seen.set()
        if self.hold is not None:
            self.hold.wait(60)
        return Screen(self.shown(), self.restless)

    def shown(self) -> bytes:
        return shot(f"screen {len(self.sent)}")

    def perform(self, action: Action) -> HeldBack:
        if self.fails_at == len(self.sent):
            raise DeviceError(self.serial, "the phone is gone", "connect it again")
        self.sent.append(action)
        return HeldBack.NO

    def left_apps(self) -> Sequence[str]:
        found, self.foreign_apps = tuple(self.foreign_apps), []
        return found

    def truth(self) -> Mapping[str, Any] | None:
        return {"taps": len(self.sent)} if self.offers_truth else None


@dataclass
class Recorded:
    """A decider that plays `actions` in order, and remembers what it was shown."""

    actions: Sequence[Action]
    version: int = 3
    seen: list[Observation] = field(default_factory=list)
    earlier_screens: int = 0

    def decide(self, observation: Observation) -> Decision:
        self.seen.append(observation)
        action = self.actions[observation.step]
        return Decision(action, action.kind.value, (1, 2), (3, 4), -0.5, self.version, "sha", 0.004, 0.25)


@dataclass
class Shelf:
    """A store in memory; while `away` is set, it cannot be reached."""

    objects: dict[str, bytes] = field(default_factory=dict)

    def keep(self, png: bytes) -> ObjectRef:
        named = ref(png)
        self.objects[named.sha256] = png
        return named

    def get(self, named: ObjectRef) -> bytes:
        return self.objects[named.sha256]

    def put_named(self, key: str, data: bytes) -> None:
        self.objects[key] = data

    def get_named(self, key: str) -> bytes | None:
        return self.objects.get(key)


def twice(task: Task, truth: Mapping[str, Any]) -> StateCheck:
    taps = truth["taps"]
    missing = () if taps == 2 else (Unmet("taps", "equals", "2", str(taps)),)
    return StateCheck(missing, f'{{"taps": {taps}}}')


@dataclass
class OneByOne:
    """A fleet of in-memory phones."""

    phones: Sequence[CountingPhone]
    lent: list[str] = field(default_factory=list)
    answers: int | None = None
    """How many of them answer; None: all. One that does not is not lent."""

    def __post_init__(self) -> None:
        self._free = list(self.phones)
        self._changed = threading.Condition()

    @property
    def count(self) -> int:
        return len(self.phones)

    @property
    def answering(self) -> int:
        return self.count if self.answers is None else self.answers

    def health(self) -> tuple[DeviceHealth, ...]:
        return tuple(DeviceHealth(phone.serial, "idle") for phone in self.phones)

    @contextmanager
    def lease(self, timeout_s: float) -> Iterator[CountingPhone | None]:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._free and self.answering), timeout_s)
            phone = self._free.pop(0) if self._free and self.answering else None
        try:
            if phone is not None:
                self.lent.append(phone.serial)
            yield phone
        finally:
            if phone is not None:
                with self._changed:
                    self._free.append(phone)
                    self._changed.notify_all()
