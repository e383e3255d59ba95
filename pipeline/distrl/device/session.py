"""One phone behind the adb server: gestures, text, keys, screenshots; each with one total deadline and typed errors.

The phone may be a real one or a simulated one; a session cannot tell. A session belongs to one thread at a time.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Sequence

from distrl import config
from distrl.device.errors import DeviceGarbage, DeviceRefused, DeviceTimeout
from distrl.device.keyboard import UntypableError, typing_line
from distrl.device.screenshot import BrokenImageError, Screenshot, verified
from distrl.device.server import AdbServer
from distrl.device.wire import Connection, Deadline, Finished
from distrl.types import Action, ActionKind, Point

SWIPE_MS = 150
"""Length of a swipe that an action asks for: long enough to scroll, too short to be a long press."""
KEYCODES = {"HOME": 3, "BACK": 4, "ENTER": 66, "DEL": 67}
WORDS_SHOWN = 200
"""How much of what a phone said goes into an error."""
PACKAGE = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
"""The name of an Android package. A task or a model names them, so each is looked at before it goes into a command."""
_FOCUS = re.compile(r"mCurrentFocus=Window\{\S+ \S+ ([^\s}]+)\}")
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")
_KEYS = {ActionKind.BACK: "BACK", ActionKind.HOME: "HOME", ActionKind.ENTER: "ENTER"}


class AdbSession:
    """A phone by its serial. Every method raises DeviceGone, DeviceTimeout, DeviceGarbage or DeviceRefused.

    retries: how often a broken screenshot was taken again while settling.
    """

    def __init__(self, server: AdbServer, serial: str, timeouts: config.Devices) -> None:
        self.server = server
        self.retries = 0
        self._serial = serial
        self._timeouts = timeouts
        self._size: tuple[int, int] | None = None
        self._seen: Screenshot | None = None

    @property
    def serial(self) -> str:
        return self._serial

    def run(self, command: Sequence[str] | str, timeout_s: float | None = None) -> Finished:
        """Run a command, whatever it exits with. Words are quoted; a string is given to the phone's shell as it is."""
        line = command if isinstance(command, str) else shlex.join(command)
        deadline = Deadline(self._timeouts.operation_timeout_s if timeout_s is None else timeout_s)
        with Connection(self.server.adb, self._serial, deadline) as connection:
            connection.request(f"host:transport:{self._serial}")
            connection.request(f"shell,v2,raw:{line}")
            return connection.read_command()

    def output(self, command: Sequence[str] | str, timeout_s: float | None = None) -> bytes:
        """The standard output of a command that succeeds. Raises DeviceRefused if it exits with an error."""
        finished = self.run(command, timeout_s)
        if finished.code != 0:
            said = (finished.stderr or finished.stdout).decode("utf-8", "replace").strip()[:WORDS_SHOWN]
            line = command if isinstance(command, str) else shlex.join(command)
            raise DeviceRefused(self._serial, f"`{line[:WORDS_SHOWN]}` exited with {finished.code}: {said}")
        return finished.stdout

    def shell(self, command: Sequence[str] | str) -> str:
        """`output` as text."""
        return self.output(command).decode("utf-8", "replace")

    def tap(self, at: Point) -> None:
        x, y = self._pixels(at)
        self.output(f"input tap {x} {y}")

    def swipe(self, start: Point, end: Point, milliseconds: int = SWIPE_MS) -> None:
        (x0, y0), (x1, y1) = self._pixels(start), self._pixels(end)
        self.output(f"input swipe {x0} {y0} {x1} {y1} {int(milliseconds)}")

    def type_text(self, text: str) -> None:
        """Type text, literally. Raises DeviceRefused for what cannot be typed; then nothing has been."""
        try:
            line = typing_line(text)
        except UntypableError as error:
            raise DeviceRefused(self._serial, str(error), "type printable ASCII only") from error
        if line:
            self.output(line)

    def key(self, name: str) -> None:
        """Press HOME, BACK, ENTER or DEL."""
        if name not in KEYCODES:
            raise DeviceRefused(self._serial, f"there is no key {name!r}", f"the keys are {', '.join(KEYCODES)}")
        self.output(f"input keyevent {KEYCODES[name]}")

    def focus(self) -> str:
        """The window in front as Android prints it: package/activity, a system window's name, or "" for none."""
        said = self.shell("dumpsys window displays")
        if "mCurrentFocus=" not in said:
            raise DeviceGarbage(self._serial, f"`dumpsys window displays` names no focus: {said[:WORDS_SHOWN]!r}")
        found = _FOCUS.search(said)
        return found.group(1) if found else ""

    def start_app(self, package: str) -> None:
        """Bring an app to the front. Raises DeviceRefused where the phone has none of that name."""
        said = self.shell(
            ["am", "start", "-a", "android.intent.action.MAIN", "-c", "android.intent.category.LAUNCHER", "-p",
             self._package(package)]
        )  # fmt: skip
        if "Error" in said:  # Android before 12 exits with 0 all the same
            raise DeviceRefused(self._serial, f"{package} cannot be started: {said.strip()[:WORDS_SHOWN]}")

    def stop_app(self, package: str) -> None:
        """Stop an app, whether it runs or not."""
        self.output(["am", "force-stop", self._package(package)])

    def size(self) -> tuple[int, int]:
        """Width and height of the screen in pixels: of the last screenshot, or what the phone says."""
        if self._size is None:
            said = self.shell("wm size")
            sizes = {kind: (int(width), int(height)) for kind, width, height in _SIZE.findall(said)}
            size = sizes.get("Override", sizes.get("Physical"))
            if size is None or 0 in size:
                raise DeviceGarbage(self._serial, f"`wm size` said {said[:WORDS_SHOWN]!r}")
            self._size = size
        return self._size

    def screenshot(self, timeout_s: float | None = None) -> Screenshot:
        """What the screen shows, whole. Raises DeviceGarbage for anything that is not a complete PNG."""
        return self._verified(self._screencap(timeout_s))

    def settle(self) -> Screenshot:
        """The screen once two screenshots in a row are equal. Raises DeviceTimeout if it keeps changing.

        A broken screenshot is taken again; it is raised as DeviceGarbage if there is nothing else by the deadline.
        """
        deadline = Deadline(self._timeouts.settle_timeout_s)
        last: bytes | None = None
        garbage: DeviceGarbage | None = None
        while deadline.remaining() > 0:
            try:
                png = self._screencap(min(deadline.remaining(), self._timeouts.operation_timeout_s))
            except DeviceTimeout as late:
                raise garbage or (late if last is None else self._restless(deadline)) from None
            if png == last:
                try:
                    return self._verified(png)
                except DeviceGarbage as error:
                    garbage = error
                    self.retries += 1
            last = png
            time.sleep(min(self._timeouts.settle_poll_s, deadline.remaining()))
        raise garbage or self._restless(deadline)

    def perform(self, action: Action) -> None:
        """Do an action on the phone. COMPLETE and INVALID are no gestures, and nothing is sent."""
        if action.kind is ActionKind.TAP and action.touch is not None:
            self.tap(action.touch)
        elif action.kind is ActionKind.SWIPE and action.touch is not None and action.lift is not None:
            self.swipe(action.touch, action.lift)
        elif action.kind is ActionKind.TYPE:
            self.type_text(action.text)
        elif action.kind in _KEYS:
            self.key(_KEYS[action.kind])
        elif action.kind not in (ActionKind.COMPLETE, ActionKind.INVALID):
            raise DeviceRefused(self._serial, f"a {action.kind} that does not say where")

    def _package(self, name: str) -> str:
        if not PACKAGE.fullmatch(name):
            raise DeviceRefused(self._serial, f"{name[:WORDS_SHOWN]!r} is no name of a package")
        return name

    def _pixels(self, point: Point) -> tuple[int, int]:
        if not (math.isfinite(point.x) and math.isfinite(point.y) and 0 <= point.x <= 1 and 0 <= point.y <= 1):
            raise DeviceRefused(self._serial, f"the point ({point.x}, {point.y}) is not on the screen")
        width, height = self.size()
        return min(int(point.x * width), width - 1), min(int(point.y * height), height - 1)

    def _restless(self, deadline: Deadline) -> DeviceTimeout:
        return DeviceTimeout(
            self._serial, f"no two screenshots in a row were equal within {deadline.seconds:g} s",
            "raise devices.settle_timeout_s, or turn the phone's animations off",
        )  # fmt: skip

    def _screencap(self, timeout_s: float | None) -> bytes:
        return self.output("screencap -p", timeout_s)

    def _verified(self, png: bytes) -> Screenshot:
        if self._seen is not None and self._seen.png == png:
            return self._seen
        try:
            self._seen = verified(png)
        except BrokenImageError as error:
            raise DeviceGarbage(self._serial, f"the screenshot is broken: {error}") from error
        self._size = (self._seen.width, self._seen.height)
        return self._seen
