"""One phone behind the adb server: gestures, text, keys, screenshots; each with one total deadline and typed errors.

A session is the same for a real phone and a simulated one. It belongs to one thread at a time.

How fresh a screenshot is: each operation has its own connection, so a late answer is lost and never taken for that of a
later request; a gesture's command has ended before the next screenshot is requested; and `settle` takes two equal
screenshots, both requested after it was called. Whether an app has begun to show the effect of a gesture cannot be
known. A screen that did not change since is therefore watched for devices.settle_unchanged_s, and so is one that kept
changing before the gesture.
"""

from __future__ import annotations

import math
import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from distrl import config
from distrl.device.adb_protocol import Connection, Deadline, Finished
from distrl.device.errors import (
    ActionRefused,
    DeviceBlack,
    DeviceForbids,
    DeviceGarbage,
    DeviceGone,
    DeviceLocked,
    DeviceOversized,
    DeviceRefused,
    DeviceTimeout,
    must_succeed,
    too_slow,
)
from distrl.device.keyboard import KeyboardService, UntypableError, typing_lines
from distrl.device.names import adb_line
from distrl.device.screen_state import is_locked, off_word
from distrl.device.screenshot import BlackImageError, BrokenImageError, OversizedImageError, Screenshot, verified
from distrl.device.server import AdbServer
from distrl.device.window import SYSTEM_UI, FrontWindow, InFront, focus_after_windows, front_window, owner_of
from distrl.errors import DeviceError
from distrl.names import PACKAGE
from distrl.types import Action, ActionKind, Point

SCREENCAP = "screencap -p"
_DUMP_FILE = "/data/local/tmp/distrl-window.xml"
DUMP = f"rm -f {_DUMP_FILE}; uiautomator dump {_DUMP_FILE} >/dev/null; cat {_DUMP_FILE}"
"""Through a file, since uiautomator prints nothing without a terminal. An earlier file is removed first, since
`uiautomator` always exits with 0."""
OPERATION, SETTLE = "devices.operation_timeout_s", "devices.settle_timeout_s"
"""The settings of the deadlines."""
SWIPE_MS = 150
"""Duration of an action's swipe: long enough to scroll, too short to be a long press."""
KEYCODES = {"HOME": 3, "BACK": 4, "ENTER": 66, "DEL": 67, "WAKEUP": 224}
IDLE_S = 10.0
"""After so long without an action a phone may have turned its screen off: no phone's shortest time is below it."""
WORDS_SHOWN = 200
"""Characters of a phone's output shown in an error."""
_ERROR = re.compile(r"^Error", re.MULTILINE)
_FORBIDS = re.compile("INJECT_EVENTS|CLEAR_APP_USER_DATA|FORCE_STOP_PACKAGES")
"""The right that adb lacks, in the error of a phone on which it may not touch the screen, press keys, stop an app or
clear its data."""
_STANDS_IN = ".FallbackHome"
"""Activity of Settings that is the home screen between a phone's start and its first unlock."""
_HOME_ACTIVITY = re.compile(rf"^({PACKAGE.pattern})/\S+$", re.MULTILINE)
_SIZE = re.compile(r"(Physical|Override) size: (\d+)x(\d+)")
_KEYS = {ActionKind.BACK: "BACK", ActionKind.HOME: "HOME", ActionKind.ENTER: "ENTER"}


class AdbSession:
    """A phone by its serial. Every method raises DeviceGone, DeviceTimeout, DeviceGarbage or DeviceRefused (errors.py),
    and AdbServerGone if no adb server answers; none of them later than its deadline.

    retries: how often a broken screenshot was taken again while settling. foreign_apps: how often the phone was brought
    back from an app that is not allowed (allow_list.py). app_recoveries: how often it was sent home and its app stopped
    (app_recovery.py). guard: called before each command; raises DeviceError if the phone may no longer be used.
    """

    def __init__(
        self, server: AdbServer, serial: str, devices: config.DeviceSettings, guard: Callable[[], None] = lambda: None
    ) -> None:
        self.server = server
        self.retries = 0
        self.foreign_apps = 0
        self.app_recoveries = 0
        self._serial = serial
        self._devices = devices
        self._guard = guard
        self._adb = f"{adb_line(server.adb.host, server.adb.port)} -s {serial}"
        """For hints: how a person reaches the phone."""
        self._keyboard = KeyboardService(self._text, serial, self._adb)
        self._size: tuple[int, int] | None = None
        self._seen: Screenshot | None = None
        self._restless = False
        self._acted = -math.inf
        self._idle_s = 0.0
        """The longest time between two actions since the screen was last seen to be on."""
        self._before: bytes | None = None
        self._moved = False

    @property
    def serial(self) -> str:
        return self._serial

    @property
    def allowed_packages(self) -> tuple[str, ...]:
        """As configured; empty for all."""
        return self._devices.allowed_packages

    def run(self, command: Sequence[str] | str, within: Deadline | None = None) -> Finished:
        """Run a command, with any exit status. A sequence is quoted; a string is passed to the phone's shell unchanged.

        within: the deadline of the operation that the command is part of; default: devices.operation_timeout_s.
        """
        self._guard()
        line = command if isinstance(command, str) else shlex.join(command)
        with Connection(self.server.adb, self._serial, within or self._deadline()) as connection:
            connection.request(f"host:transport:{self._serial}")
            connection.request(f"shell,v2,raw:{line}")
            return connection.read_command()

    def output(self, command: Sequence[str] | str, within: Deadline | None = None) -> bytes:
        """The standard output of a command that succeeds. Raises DeviceRefused if it exits with an error."""
        finished = self.run(command, within)
        if finished.code != 0:
            reply = (finished.stderr or finished.stdout).decode("utf-8", "replace").strip()[:WORDS_SHOWN]
            line = command if isinstance(command, str) else shlex.join(command)
            what = f"`{line[:WORDS_SHOWN]}` exited with {finished.code}: {reply}"
            if _FORBIDS.search(reply):
                raise DeviceForbids(
                    self._serial,
                    what,
                    "allow it in the phone's developer options: Xiaomi calls it USB debugging (Security settings), "
                    "OPPO and realme have Disable permission monitoring",
                )
            raise DeviceRefused(self._serial, what)
        return finished.stdout

    def shell(self, command: Sequence[str] | str) -> str:
        """`output` as text."""
        return self._text(command, self._deadline())

    def tap(self, at: Point) -> None:
        deadline = self._deadline()
        x, y = self._pixels(at, deadline)
        self._act(f"input tap {x} {y}", deadline)

    def swipe(self, start: Point, end: Point, milliseconds: int = SWIPE_MS) -> None:
        deadline = self._deadline()
        (x0, y0), (x1, y1) = self._pixels(start, deadline), self._pixels(end, deadline)
        self._act(f"input swipe {x0} {y0} {x1} {y1} {int(milliseconds)}", deadline)

    def type_text(self, text: str) -> None:
        """Type text, literally. Raises ActionRefused for text that cannot be typed; then nothing was typed.

        By the means of devices.keyboard. Text beyond printable ASCII needs ADBKeyBoard on the phone. A long text takes
        several operations, each with a deadline of its own.
        """
        lines = None
        if (way := self._devices.keyboard) != "service":
            try:
                lines = typing_lines(text)
            except UntypableError as error:
                if way == "input":
                    hint = "type printable ASCII, or set devices.keyboard to auto and install ADBKeyBoard on the phone"
                    raise ActionRefused(self._serial, str(error), error.hint or hint) from error
        if lines is None:
            self._keyboard.type_text(text, self._deadline())
            self._note_act()
        for line in lines or ():
            self._act(line, self._deadline())

    def put_back_keyboard(self) -> None:
        """Select the phone's own keyboard again, in case an interrupted `type_text` has left another one."""
        self._keyboard.put_back(self._deadline())

    def key(self, name: str) -> None:
        """Press HOME, BACK, ENTER, DEL or WAKEUP (which does nothing to a phone that is awake)."""
        if name not in KEYCODES:
            raise DeviceRefused(self._serial, f"there is no key {name!r}", f"the keys are {', '.join(KEYCODES)}")
        self._act(f"input keyevent {KEYCODES[name]}", self._deadline())

    def focus(self) -> str:
        """The title of the window in front: package/activity, a system window's name, an app's text, or "" for none."""
        return self._front(self._deadline()).title

    def package_in_front(self) -> str:
        """The package that the window in front belongs to (window.py), or "" while no window has the focus."""
        return self.in_front().package

    def in_front(self) -> InFront:
        """Whose window is in front, and the app that it says has failed, if it is the system's dialog."""
        deadline = self._deadline()
        window = self._front(deadline)
        if (package := window.package) is None:
            package = owner_of(window.id, self._text("dumpsys window windows", deadline))
        # an app may give its own window such a title, about another app
        return InFront(package, window.failed_app if package == SYSTEM_UI else "")

    def launcher(self) -> str:
        """The package of the phone's home screen. Raises DeviceGarbage if the phone does not name one, and DeviceGone
        while it still starts: until then Settings stands in for it."""
        finished = self.run(
            "cmd package resolve-activity --brief -a android.intent.action.MAIN -c android.intent.category.HOME"
        )
        reply = (finished.stdout or finished.stderr).decode("utf-8", "replace")
        if (found := _HOME_ACTIVITY.search(reply)) is None:
            raise DeviceGarbage(
                self._serial,
                f"it names no home screen: {reply.strip()[:WORDS_SHOWN]!r}",
                "choose a launcher on the phone, or add its package to devices.allowed_packages",
            )
        if found.group().endswith(_STANDS_IN):
            raise DeviceGone(self._serial, "it still starts: its home screen is not there yet")
        return found.group(1)

    def start_app(self, package: str) -> None:
        """Bring an app to the front. Raises DeviceRefused if it is not installed."""
        line = shlex.join(
            [
                "am",
                "start",
                "-a",
                "android.intent.action.MAIN",
                "-c",
                "android.intent.category.LAUNCHER",
                "-p",
                self._package(package),
            ]
        )
        reply = self._act(f"{line} 2>&1", self._deadline())
        if _ERROR.search(reply):  # Android before 12 exits with 0 all the same
            raise DeviceRefused(self._serial, f"{package} cannot be started: {reply.strip()[:WORDS_SHOWN]}")

    def stop_app(self, package: str) -> None:
        """Stop an app, whether it runs or not."""
        self._act(["am", "force-stop", self._package(package)], self._deadline())

    def size(self, within: Deadline | None = None) -> tuple[int, int]:
        """Width and height of the screen in pixels: of the last screenshot, else by `wm size`."""
        if self._size is None:
            reply = self._text("wm size", within or self._deadline())
            sizes = {kind: (int(width), int(height)) for kind, width, height in _SIZE.findall(reply)}
            size = sizes.get("Override", sizes.get("Physical"))
            if size is None or 0 in size:
                raise DeviceGarbage(self._serial, f"`wm size` answered {reply[:WORDS_SHOWN]!r}")
            self._size = size
        return self._size

    def screenshot(self) -> Screenshot:
        """A complete screenshot. Raises DeviceGarbage for a broken PNG, DeviceBlack for one that is all black,
        DeviceOversized for one of more than images.MAX_PIXELS.
        """
        deadline = self._deadline()
        return self._verified(self.output(SCREENCAP, deadline), deadline)

    def hierarchy(self, timeout_s: float) -> bytes:
        """The elements of the window in front, as the XML of `uiautomator dump`. Its content is untrusted: the app's.

        Raises DeviceRefused if the phone makes none, as for a screen that never rests, DeviceTimeout after timeout_s.
        """
        return self.output(DUMP, Deadline(timeout_s))

    def settle(self) -> Screenshot:
        """The screen once two screenshots in a row are equal, else the last complete one by devices.settle_timeout_s.

        The latter is `restless`: a stopwatch, a video or a blinking cursor may never rest. A broken or black screenshot
        is taken again, as is one that the phone refuses. Raises DeviceGarbage if there is no complete one by the
        deadline, or the screen has come to rest broken or black; DeviceBlack or DeviceLocked if its screen has gone off
        by itself, whatever it shows; DeviceTimeout if there is none at all, or the phone left one operation unanswered.
        """
        self._require_shown_after_a_pause()
        deadline, operation_s = Deadline(self._devices.settle_timeout_s), self._devices.operation_timeout_s
        last: bytes | None = None
        whole: Screenshot | None = None
        fault: DeviceError | None = None
        rests = refused = False
        while (left := deadline.remaining()) > 0:
            try:
                with must_succeed():  # it may fail for a moment, as while the phone's compositor restarts
                    png = self.output(SCREENCAP, Deadline(left, SETTLE) if left < operation_s else self._deadline())
            except DeviceTimeout as late:
                if operation_s < left:
                    raise
                fault = fault or late
                break
            except DeviceGarbage as error:
                whole = None if refused else whole
                fault, last, rests, refused = error, None, False, True
                self.retries += 1
                time.sleep(min(self._devices.settle_poll_s, deadline.remaining()))
                continue
            refused = False
            same = png == last
            try:
                whole, rests = self._verified(png, deadline), same
            except DeviceGarbage as error:
                if not (isinstance(error, DeviceBlack) and error.unexplained and isinstance(fault, DeviceBlack)):
                    fault = error
                rests = False
                whole = None if same else whole
                self.retries += 1
            if rests and self._has_effect(png):
                break
            last = png
            time.sleep(min(self._devices.settle_poll_s, deadline.remaining()))
        if whole is None:
            raise fault or DeviceTimeout(self._serial, f"no screenshot within {deadline.seconds:g} s", too_slow(SETTLE))
        self._restless = not rests
        return replace(whole, restless=True) if self._restless else whole

    def perform(self, action: Action) -> None:
        """Do an action on the phone. Nothing is sent for COMPLETE and INVALID, which are not gestures.

        Raises ActionRefused for what the phone cannot do; then nothing was sent either.
        """
        if action.kind is ActionKind.TAP and action.touch is not None:
            self.tap(action.touch)
        elif action.kind is ActionKind.SWIPE and action.touch is not None and action.lift is not None:
            self.swipe(action.touch, action.lift)
        elif action.kind is ActionKind.TYPE:
            self.type_text(action.text)
        elif action.kind in _KEYS:
            self.key(_KEYS[action.kind])
        elif action.kind not in (ActionKind.COMPLETE, ActionKind.INVALID):
            raise ActionRefused(self._serial, f"a {action.kind} without coordinates")

    def _deadline(self) -> Deadline:
        return Deadline(self._devices.operation_timeout_s, OPERATION)

    def _text(self, command: Sequence[str] | str, deadline: Deadline) -> str:
        return self.output(command, deadline).decode("utf-8", "replace")

    def _act(self, command: Sequence[str] | str, deadline: Deadline) -> str:
        """Run a command that may change the screen. Returns its output."""
        try:
            return self._text(command, deadline)
        finally:
            self._note_act()

    def _note_act(self) -> None:
        now = time.monotonic()
        self._idle_s, self._acted = max(self._idle_s, now - self._acted), now
        self._before = self._seen.png if self._seen else None
        self._moved = self._restless

    def _has_effect(self, png: bytes) -> bool:
        """Whether `png` may show the effect of the last action: it changed, or did not for long enough.

        A change does not count if the screen kept changing before the action.
        """
        changed = png != self._before and not self._moved
        return changed or time.monotonic() - self._acted >= self._devices.settle_unchanged_s

    def _front(self, deadline: Deadline) -> FrontWindow:
        reply = self._text("dumpsys window displays", deadline)
        found = front_window(reply) or focus_after_windows(self._text("dumpsys window windows", deadline))
        if found is None:
            raise DeviceGarbage(self._serial, f"`dumpsys window` names no focus: {reply[:WORDS_SHOWN]!r}")
        return found

    def _package(self, name: str) -> str:
        if not PACKAGE.fullmatch(name):
            raise DeviceRefused(self._serial, f"{name[:WORDS_SHOWN]!r} is not a package name")
        return name

    def _pixels(self, point: Point, deadline: Deadline) -> tuple[int, int]:
        if not (math.isfinite(point.x) and math.isfinite(point.y) and 0 <= point.x <= 1 and 0 <= point.y <= 1):
            raise ActionRefused(self._serial, f"the point ({point.x}, {point.y}) is not on the screen")
        width, height = self.size(deadline)
        return min(int(point.x * width), width - 1), min(int(point.y * height), height - 1)

    def _verified(self, png: bytes, deadline: Deadline) -> Screenshot:
        if self._seen is not None and self._seen.png == png:
            return self._seen
        try:
            self._seen = verified(png)
        except BrokenImageError as error:
            raise DeviceGarbage(self._serial, f"the screenshot is broken: {error}") from error
        except OversizedImageError as error:
            raise DeviceOversized(
                self._serial,
                f"the screen is too large: {error}",
                f"reduce it with `{self._adb} shell wm size WIDTHxHEIGHT`; `… wm size reset` undoes that",
            ) from error
        except BlackImageError as error:
            raise self._black(str(error), deadline) from error
        self._size = (self._seen.width, self._seen.height)
        return self._seen

    def require_awake(self) -> None:
        """Raises DeviceBlack where the screen is off: the lock screen is in front of a real phone then, or nothing."""
        if off := self._off(self._deadline()):
            raise self._asleep(f"its screen is off ({off})")

    def require_unlocked(self) -> None:
        """Raises DeviceLocked where the phone says that it is locked. One that does not say counts as unlocked."""
        if is_locked(self.run("dumpsys trust").stdout.decode("utf-8", "replace")):
            raise DeviceLocked(self._serial)

    def _require_shown_after_a_pause(self) -> None:
        """Where the screen may have gone off by itself: raises DeviceBlack if it has, though an always-on display may
        show something, and DeviceLocked if the phone has locked itself and was lit again."""
        if max(self._idle_s, time.monotonic() - self._acted) <= IDLE_S:
            return
        settle_s = self._devices.settle_timeout_s
        deadline = Deadline(settle_s, SETTLE) if settle_s < self._devices.operation_timeout_s else self._deadline()
        # In one command, as a slow phone has a deadline for each. One that does not say is taken for one that is on.
        said = self.run("dumpsys power; dumpsys trust", deadline).stdout.decode("utf-8", "replace")
        if off := off_word(said):
            raise self._asleep(f"its screen is off ({off})")
        if is_locked(said):
            raise DeviceLocked(self._serial)
        self._idle_s = 0.0

    def _off(self, deadline: Deadline) -> str:
        """The phone's word for its state while its screen is off; "" while it is on."""
        return off_word(self._text("dumpsys power", deadline))

    def _asleep(self, what: str) -> DeviceBlack:
        return DeviceBlack(
            self._serial,
            what,
            f"`{self._adb} shell input keyevent WAKEUP` (a reset does so), and `… shell svc power stayon true` to keep "
            "it on",
            asleep=True,
        )

    def _black(self, what: str, deadline: Deadline) -> DeviceBlack:
        """The error for a black screenshot, with the cause if the phone reports it by the deadline."""
        try:
            off = self._off(deadline)
        except DeviceError as error:
            unknown = f"{what}, and whether its screen is on is unknown: {error.what}"
            return DeviceBlack(self._serial, unknown, f"see `{self._adb} shell dumpsys power`", unexplained=True)
        if off:
            return self._asleep(f"{what}: its screen is off ({off})")
        return DeviceBlack(
            self._serial,
            f"{what}, though its screen is on",
            "an app that forbids screenshots (FLAG_SECURE) cannot be driven; another app may need a longer "
            "devices.settle_timeout_s to start",
        )
