"""One phone as its commands see it: its machine, and Android's state around it."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from PIL import Image

from simphone.element import Elements
from simphone.faults import Fault, Faults
from simphone.files import Files
from simphone.keyboards import Keyboards
from simphone.logbook import Logbook
from simphone.machine import PACKAGE, Event, Key, Open, Swipe, Tap, Text, package_of
from simphone.ports import Ports

SETTINGS: Final[Mapping[tuple[str, str], str]] = {
    ("global", "airplane_mode_on"): "0",
    ("global", "animator_duration_scale"): "1.0",
    ("global", "device_name"): "Simulated_Phone",
    ("global", "transition_animation_scale"): "1.0",
    ("global", "wifi_on"): "1",
    ("global", "window_animation_scale"): "1.0",
    ("system", "accelerometer_rotation"): "0",
    ("system", "screen_brightness"): "102",
    ("system", "screen_brightness_mode"): "0",
    ("system", "screen_off_timeout"): "60000",
}
"""The `settings` of a new phone, beside the selected keyboard."""
SERVICES_STARTED: Final = frozenset({"sys.boot_completed", "dev.bootcomplete"})
"""Properties that a phone sets once its services run."""
WAKEUP: Final = Key("WAKEUP")
SLEEP: Final = Key("SLEEP")
POWER: Final = Key("POWER")
GO_HOME: Final = Key("HOME")
HOME_SCREEN: Final = f"{PACKAGE}launcher"
FRAMES: Final = 8
"""Frames of an app that repaints for ever, before they repeat."""
LOCK_SCREEN: Final = (24, 28, 44)
"""Colour of the lock screen."""
HUNG_POLL_S: Final = 0.05
"""Poll interval while `input` waits for an app that hangs."""
ENTRY_CHARACTERS: Final = 4096
"""Most of a text that is kept to be gone on with: typed text is untrusted."""


class Machine(Protocol):
    """What the commands act on; machine.PhoneMachine implements it."""

    @property
    def size(self) -> tuple[int, int]: ...
    def reset(self, seed: int, setup: Mapping[str, Any]) -> None: ...
    def apply(self, event: Event) -> None: ...
    def state(self) -> Mapping[str, Any]: ...
    def png(self) -> bytes: ...
    def picture(self, seconds: float | None = None) -> Image.Image: ...
    def animated(self) -> bool: ...
    def elements(self) -> Elements: ...
    def focus(self) -> str: ...
    def apps(self) -> Sequence[str]: ...
    def typing(self) -> bool: ...


class Handset:
    """Made and used only in the event loop that serves the phone.

    A reset affects only the machine: files, log and settings stay, as after clearing an app's data.
    draw_latency: seconds that the next action takes. keyboard_service: whether ADBKeyBoard is installed. mishaps: the
    faults that begin at the next action, and for how many seconds. clock: seconds, for animations; None: no
    animations.
    """

    def __init__(
        self,
        machine: Machine,
        faults: Faults,
        draw_latency: Callable[[], float],
        properties: Mapping[str, str],
        *,
        keyboard_service: bool = False,
        mishaps: Callable[[], Mapping[Fault, float]] = dict,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.machine = machine
        self.faults = faults
        self.clock = clock
        self._properties = properties
        self.log = Logbook()
        self.files = Files(self.log.now)
        self.ports = Ports()
        self.settings = dict(SETTINGS)
        self.keyboards = Keyboards(self.settings, service=keyboard_service)
        self._draw_latency = draw_latency
        self._mishaps = mishaps
        self.entry = ""
        """The text that was typed last, where nothing else was done since: a longer one may go on with it."""
        self._hung = ""
        self._frames = 0

    @property
    def properties(self) -> Mapping[str, str]:
        """The current properties, for `getprop`."""
        if not self.faults.active(Fault.BOOTING):
            return self._properties
        return {name: value for name, value in self._properties.items() if name not in SERVICES_STARTED}

    @property
    def asleep(self) -> bool:
        return self.faults.active(Fault.ASLEEP)

    @property
    def locked(self) -> bool:
        return self.faults.active(Fault.LOCKED)

    @property
    def hung(self) -> str:
        """The package of the app that is stuck; "" for none."""
        if not self.faults.active(Fault.STUCK):
            self._hung = ""
        elif not self._hung and (package := self._package()) != HOME_SCREEN:
            self._hung = package
        return self._hung

    @property
    def animated(self) -> bool:
        """Whether the app in front never stops drawing, so that it is never idle."""
        return self.clock is not None and self.machine.animated()

    def stopped(self, package: str) -> None:
        """The app of that name was stopped, whether it ran or not."""
        if package == self.hung != "":
            self.faults.end(Fault.STUCK)

    def png(self) -> bytes:
        """What the screen shows; black while it is off."""
        if not (self.asleep or self.locked or self._hangs()) and self.clock is None:
            return self.machine.png()
        out = io.BytesIO()
        self.picture().save(out, "PNG")
        return out.getvalue()

    def picture(self) -> Image.Image:
        """As `png`."""
        if self.asleep:
            return Image.new("RGB", self.machine.size)
        if self.locked:
            return Image.new("RGB", self.machine.size, LOCK_SCREEN)
        if self._hangs():
            return self._repainted()
        return self.machine.picture() if self.clock is None else self.machine.picture(self.clock())

    async def act(self, event: Event | None, seconds: float = 0.0, by_system: bool = False) -> float:
        """Wait for the phone's latency and `seconds` more, then act. Returns the seconds that it took.

        A sleeping or locked phone reacts only to WAKEUP and POWER, and to what its system does of itself. From an app
        that hangs in front only HOME and the start of another app lead away: gestures, keys and text for it wait until
        it no longer hangs in front, and are lost. by_system: of the activity manager, which needs no screen.
        """
        for fault, lasts in self._mishaps().items():
            self.faults.lengthen(fault, lasts)
        self.entry = ""
        took = self._draw_latency() + seconds
        await asyncio.sleep(took)
        if event == POWER:
            event = WAKEUP if self.asleep else SLEEP
        if event == WAKEUP:
            self.faults.end(Fault.ASLEEP)
        if event == SLEEP:
            self.faults.set(Fault.ASLEEP)
        if event not in (None, WAKEUP, SLEEP, GO_HOME) and not isinstance(event, Open) and self._hangs():
            while self._hangs():
                await asyncio.sleep(HUNG_POLL_S)
            return took
        leaves = event == GO_HOME or (isinstance(event, Open) and package_of(event.app) != self.hung)
        if event is not None and (by_system or not (self.asleep or self.locked)) and (leaves or not self._hangs()):
            before = self.machine.focus()
            if event != WAKEUP:
                self.machine.apply(event)
                self.entry = event.text[:ENTRY_CHARACTERS] if isinstance(event, Text) else ""
            self._note(event, before, self.machine.focus())
        return took

    def reset(self, seed: int, setup: Mapping[str, Any]) -> None:
        """The screen is on afterwards, as after a reset of a real phone. Raises ValueError for an invalid setup."""
        self.machine.reset(seed, setup)
        self.entry = ""
        self.faults.end(Fault.ASLEEP)
        self.log.tick()
        self.log.note("Simulation", f"reset with seed {seed}")

    def _package(self) -> str:
        return self.machine.focus().partition("/")[0]

    def _hangs(self) -> bool:
        return self.hung != "" and self.hung == self._package()

    def _repainted(self) -> Image.Image:
        """The app's screen with a bar that moves with each screenshot."""
        image = self.machine.picture().copy()
        self._frames += 1
        step = image.width // FRAMES
        left = self._frames % FRAMES * step
        image.paste((90, 90, 90), (left, image.height // 2, left + step, image.height // 2 + 8))
        return image

    def _note(self, event: Event, before: str, after: str) -> None:
        self.log.tick()
        match event:
            case Tap(x, y):
                self.log.note("InputReader", f"tap at ({x}, {y})")
            case Swipe(x0, y0, x1, y1):
                self.log.note("InputReader", f"swipe from ({x0}, {y0}) to ({x1}, {y1})")
            case Text(text):
                self.log.note("InputReader", f"text of {len(text)} characters: {text}")
            case Key(name):
                self.log.note("InputReader", f"key KEYCODE_{name}")
            case Open():
                self.log.note("ActivityTaskManager", f"START u0 {{cmp={after}}} from uid 2000")
        if after != before:
            self.log.note("ActivityTaskManager", f"Displayed {after} for user 0")
