"""The commands of a simulated phone: those that a test driver uses on Android, and `simctl` for what only a simulation
can do.

A command's effect is complete when it returns: `input` and `am` first take the phone's time, then act. Text is data to
the last byte; nothing typed is ever parsed.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn, Protocol

from distrl.errors import DistrlError
from distrl.phone.apps import REGISTRY
from distrl.phone.faults import SLOW_S, UNREACHABLE, Fault, Faults
from distrl.phone.machine import PACKAGE, Event, Key, Open, Swipe, Tap, Text
from distrl.phone.sh import Command, ShellSyntaxError, parse

OK, FAILED, USAGE, NOT_FOUND = 0, 1, 2, 127
KEYS = {3: "HOME", 4: "BACK", 66: "ENTER", 67: "DEL"}
SWIPE_MS = 300
"""Android's length of a swipe that names none."""
LONGEST_SWIPE_MS = 10_000


class Result(NamedTuple):
    """afterwards: to be called once the answer has arrived. A phone that falls silent first says that it will."""

    stdout: bytes = b""
    stderr: bytes = b""
    code: int = OK
    afterwards: tuple[Callable[[], None], ...] = ()


class Machine(Protocol):
    """What the shell acts on; phone.machine.PhoneMachine is one."""

    @property
    def size(self) -> tuple[int, int]: ...
    def reset(self, seed: int, setup: Mapping[str, Any]) -> None: ...
    def apply(self, event: Event) -> None: ...
    def state(self) -> Mapping[str, Any]: ...
    def png(self) -> bytes: ...
    def focus(self) -> str: ...


class RefusedError(Exception):
    """A command that cannot be done as asked; its text goes to stderr."""


class Shell:
    """The shell of one phone. draw_latency: seconds that the next action takes."""

    def __init__(
        self,
        machine: Machine,
        faults: Faults,
        draw_latency: Callable[[], float],
        properties: Mapping[str, str],
    ) -> None:
        self._machine = machine
        self._faults = faults
        self._draw_latency = draw_latency
        self._properties = dict(properties)
        self._commands: Mapping[str, Callable[[Sequence[str]], Awaitable[bytes | Result]]] = {
            "am": self._am,
            "dumpsys": self._dumpsys,
            "echo": self._echo,
            "getprop": self._getprop,
            "input": self._input,
            "pm": self._pm,
            "screencap": self._screencap,
            "simctl": self._simctl,
            "wm": self._wm,
        }

    async def run(self, line: str) -> Result:
        """Run a line; its output is that of all its commands, its exit code that of the last one run."""
        try:
            commands = _entries(parse(line))
        except ShellSyntaxError as error:
            return Result(b"", f"/system/bin/sh: syntax error: {error}\n".encode(), USAGE)
        out, err, code, afterwards = bytearray(), bytearray(), OK, list[Callable[[], None]]()
        for command in commands:
            if command.if_ok and code != OK:
                continue
            result = await self._run_one(command.argv)
            out += result.stdout
            err += result.stderr
            code = result.code
            afterwards += result.afterwards
        return Result(bytes(out), bytes(err), code, tuple(afterwards))

    async def _run_one(self, argv: tuple[str, ...]) -> Result:
        name = argv[0]
        command = self._commands.get(name)
        if command is None:
            return Result(b"", f"/system/bin/sh: {name}: inaccessible or not found\n".encode(), NOT_FOUND)
        if self._faults.active(Fault.SLOW) and name != "simctl":
            await asyncio.sleep(SLOW_S)
        try:
            done = await command(argv[1:])
            return done if isinstance(done, Result) else Result(done)
        except RefusedError as error:
            return Result(b"", f"{name}: {error}\n".encode(), FAILED)

    async def _act(self, event: Event | None, seconds: float = 0.0) -> None:
        await asyncio.sleep(self._draw_latency() + seconds)
        if event is not None:
            self._machine.apply(event)

    async def _input(self, args: Sequence[str]) -> bytes:
        match args:
            case ["tap", x, y]:
                await self._act(Tap(_pixel(x), _pixel(y)))
            case ["swipe", x0, y0, x1, y1, *rest] if len(rest) <= 1:
                milliseconds = min(_pixel(rest[0]), LONGEST_SWIPE_MS) if rest else SWIPE_MS
                swipe = Swipe(_pixel(x0), _pixel(y0), _pixel(x1), _pixel(y1))
                await self._act(swipe, max(0, milliseconds) / 1000)
            case ["text", *pieces] if pieces:
                await self._act(Text("".join(piece.replace("%s", " ") for piece in pieces)))
            case ["keyevent", *codes] if codes:
                for key in [_key(code) for code in codes]:
                    await self._act(Key(key))
            case _:
                raise RefusedError("usage: input tap X Y | swipe X0 Y0 X1 Y1 [MS] | text TEXT | keyevent CODE …")
        return b""

    async def _screencap(self, args: Sequence[str]) -> bytes:
        if list(args) != ["-p"]:
            raise RefusedError("usage: screencap -p")
        png = self._machine.png()
        return png[: len(png) // 2] if self._faults.active(Fault.TRUNCATED) else png

    async def _wm(self, args: Sequence[str]) -> bytes:
        if list(args) != ["size"]:
            raise RefusedError("usage: wm size")
        width, height = self._machine.size
        return f"Physical size: {width}x{height}\n".encode()

    async def _getprop(self, args: Sequence[str]) -> bytes:
        if args:
            return f"{self._properties.get(args[0], '')}\n".encode()
        return "".join(f"[{name}]: [{value}]\n" for name, value in self._properties.items()).encode()

    async def _dumpsys(self, args: Sequence[str]) -> bytes:
        match args:
            case ["window", *_]:
                package, _, activity = self._machine.focus().partition("/")
                full = package + activity if activity.startswith(".") else activity
                return f"  mCurrentFocus=Window{{5f0cca1 u0 {package}/{full}}}\n".encode()
            case ["display", *_]:
                width, height = self._machine.size
                return f"  DisplayViewport{{orientation=0, deviceWidth={width}, deviceHeight={height}}}\n".encode()
        raise RefusedError("usage: dumpsys window | display")

    async def _am(self, args: Sequence[str]) -> bytes:
        """force-stop of the app in front, and start of the home screen, both lead home; start of a package opens it."""
        match args:
            case ["force-stop", package]:
                in_front = self._machine.focus().partition("/")[0] == package
                await self._act(Key("HOME") if in_front else None)
                return b""
            case ["start", *intent] if "android.intent.category.HOME" in intent:
                await self._act(Key("HOME"))
                return b"Starting: Intent { cat=[android.intent.category.HOME] }\n"
            case ["start", *intent]:
                package = _package_of(intent)
                app = package.removeprefix(PACKAGE)
                if not package.startswith(PACKAGE) or app not in REGISTRY:
                    raise RefusedError("Error: Activity not started, unable to resolve Intent")
                await self._act(Open(app))
                return f"Starting: Intent {{ pkg={package} }}\n".encode()
        raise RefusedError("usage: am force-stop PACKAGE | start -c android.intent.category.HOME | start -p PACKAGE")

    async def _pm(self, args: Sequence[str]) -> bytes:
        if args[:2] != ("list", "packages"):
            raise RefusedError("usage: pm list packages")
        return "".join(f"package:{PACKAGE}{app}\n" for app in sorted(REGISTRY)).encode()

    async def _echo(self, args: Sequence[str]) -> bytes:
        return (" ".join(args) + "\n").encode()

    async def _simctl(self, args: Sequence[str]) -> bytes | Result:
        match args:
            case ["state"]:
                return _json(self._machine.state())
            case ["reset", *options]:
                return _json(self._reset(options))
            case ["fault", "none"]:
                self._faults.clear()
                return _json({"faults": []})
            case ["fault", name, *seconds] if len(seconds) <= 1:
                return self._fault(name, seconds[0] if seconds else None)
        raise RefusedError("usage: simctl state | reset --seed N --setup JSON | fault NAME [SECONDS] | fault none")

    def _reset(self, options: Sequence[str]) -> Mapping[str, Any]:
        parser = _Options(add_help=False, allow_abbrev=False)
        parser.add_argument("--seed", type=int, required=True)
        parser.add_argument("--setup", default="{}")
        given = parser.parse_args(list(options))
        try:
            setup = json.loads(given.setup)
            if not isinstance(setup, dict):
                raise RefusedError("--setup is not a JSON object")
            self._machine.reset(given.seed, setup)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError, DistrlError) as error:
            raise RefusedError(f"this cannot be set up: {error}") from error
        return {"seed": given.seed}

    def _fault(self, name: str, seconds: str | None) -> Result:
        try:
            fault = Fault(name)
            duration = math.inf if seconds is None else float(seconds)
        except ValueError as error:
            raise RefusedError(f"{error}; faults are {', '.join(Fault)}, for a number of seconds") from error
        if math.isnan(duration) or duration <= 0 or (fault in UNREACHABLE and math.isinf(duration)):
            raise RefusedError(f"{fault} needs a positive number of seconds")
        return Result(_json({"faults": [fault]}), afterwards=(partial(self._faults.set, fault, duration),))


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RefusedError(message)


def _entries(commands: Sequence[Command]) -> list[Command]:
    """`input text` after `input text` on one line is one entry: here an entry replaces what the field held, and text
    with a "%s" in it can only be typed in two pieces.
    """
    found: list[Command] = []
    for command in commands:
        typed, before = command.argv[:2] == ("input", "text"), found[-1].argv[:2] if found else ()
        if typed and command.if_ok and before == ("input", "text"):
            found[-1] = replace(found[-1], argv=(*found[-1].argv, *command.argv[2:]))
        else:
            found.append(command)
    return found


def _package_of(intent: Sequence[str]) -> str:
    """The package that `am start -p` names; "" where it names none."""
    return next((value for option, value in itertools.pairwise(intent) if option == "-p"), "")


def _pixel(word: str) -> int:
    """A coordinate (or a number of milliseconds); Android takes fractions and drops them."""
    try:
        return int(float(word))
    except (ValueError, OverflowError) as error:
        raise RefusedError(f"{word!r} is no number") from error


def _key(code: str) -> str:
    """The name of a key that is given by number, by name or with Android's prefix."""
    name = KEYS.get(int(code), "") if code.isascii() and code.isdecimal() else code.removeprefix("KEYCODE_")
    if name not in KEYS.values():
        raise RefusedError(f"unknown key {code!r}; known are {', '.join(f'{n} {key}' for n, key in KEYS.items())}")
    return name


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode() + b"\n"
