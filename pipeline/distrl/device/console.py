"""Client of a running emulator's console: a command is one line, the answer is lines ended by OK or KO.

It listens on this machine only and requires the token that the emulator stores in its user's home; an empty token file
turns that off (developer.android.com/studio/run/emulator-console). Each session is one connection under one total
deadline, which a console that answers a byte at a time cannot extend.
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from types import TracebackType

from distrl import names
from distrl.device.adb_protocol import Deadline
from distrl.device.errors import DeviceGarbage, DeviceGone, DeviceRefused, DeviceTimeout
from distrl.dial import dial

HOST = "127.0.0.1"
MAX_ANSWER = 64 * 1024
"""Bytes. No answer is larger; a console that goes on sending must not exhaust the worker's memory."""
MAX_TOKEN = 256
WORDS_SHOWN = 200
_HINT = 'see docs/emulators.md, "Errors"'
_AUTH_HINT = (
    "set devices.emulators.token_file to the file of the user who started the emulator "
    "(~/.emulator_console_auth_token, made when an emulator first starts)"
)
_TOKEN = re.compile(r"[!-~]+")
_CHUNK = 4096
_WANTS_TOKEN = "Authentication required"  # noqa: S105 (what the greeting says, not a token)


class Console:
    """A session with the console of the emulator at `port`. Entering it connects and authenticates.

    deadline: of the whole session. Every method raises DeviceGone (nothing listens, or the connection broke),
    DeviceTimeout, DeviceGarbage (not a console's answer), or DeviceRefused with the console's text after KO.
    """

    def __init__(self, port: int, token_file: Path, deadline: Deadline) -> None:
        self._who = f"emulator-{port}"
        self._port = port
        self._token_file = token_file
        self._deadline = deadline
        self._buffer = bytearray()
        self._socket: socket.socket | None = None

    def __enter__(self) -> Console:
        try:
            self._socket = dial(HOST, self._port, self._deadline.timeout())
        except TimeoutError as error:
            raise self._late("connecting to the console") from error
        except OSError as error:
            raise DeviceGone(self._who, f"no console answers at {HOST}:{self._port} ({error.strerror})") from error
        try:
            if any(_WANTS_TOKEN in line for line in self._answer("greeting")):
                self._ask(f"auth {self._token()}", "auth", _AUTH_HINT)
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._socket is not None:
            self._socket.close()

    def ping(self) -> None:
        """Raises if the console does not answer."""
        self._ask("ping")

    def avd_name(self) -> str:
        """The virtual device that runs there."""
        lines = self._ask("avd name")
        if len(lines) != 1:
            raise DeviceGarbage(self._who, f"`avd name` answered {' / '.join(lines)[:WORDS_SHOWN]!r}")
        return lines[0]

    def save(self, snapshot: str) -> None:
        """Save the whole machine under a name. A read-only emulator refuses."""
        self._ask(f"avd snapshot save {self._snapshot(snapshot)}")

    def load(self, snapshot: str) -> None:
        """Restore the whole machine; its adb connections break and come back."""
        self._ask(f"avd snapshot load {self._snapshot(snapshot)}")

    def snapshots(self) -> str:
        """The list of snapshots, as the console prints it for people."""
        return "\n".join(self._ask("avd snapshot list"))

    def kill(self) -> None:
        """End the emulator. Returns when it has answered or has closed the connection, which it may do first."""
        try:
            self._ask("kill")
        except DeviceGone:
            return

    def _snapshot(self, name: str) -> str:
        if not names.DEVICE.fullmatch(name):
            raise DeviceRefused(
                self._who,
                f"{name[:WORDS_SHOWN]!r} is not a name of a snapshot",
                "use letters, digits, '.', '_' and '-', and neither '.' nor '-' first",
            )
        return name

    def _token(self) -> str:
        try:
            with self._token_file.expanduser().open("rb") as file:
                token = file.read(MAX_TOKEN + 1).decode("ascii", "replace").strip()
        except (OSError, RuntimeError) as error:  # RuntimeError: this user has no home
            why = f"its console requires a token, and {self._token_file} cannot be read ({error})"
            raise DeviceRefused(self._who, why, _AUTH_HINT) from error
        if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
            why = f"its console requires a token, and {self._token_file} contains none"
            raise DeviceRefused(self._who, why, _AUTH_HINT)
        return token

    def _ask(self, line: str, shown: str | None = None, hint: str = _HINT) -> list[str]:
        """Send a line; returns the lines of the answer, without its OK. shown: for errors, if the line is secret."""
        assert self._socket is not None, "entered"
        try:
            self._socket.settimeout(self._deadline.timeout())
            self._socket.sendall(line.encode("ascii") + b"\r\n")
        except TimeoutError as error:
            raise self._late(f"sending `{shown or line}`") from error
        except OSError as error:
            raise DeviceGone(self._who, f"its console closed the connection ({error.strerror})") from error
        return self._answer(shown or line, hint)

    def _answer(self, asked: str, hint: str = _HINT) -> list[str]:
        lines: list[str] = []
        size = 0
        while True:
            line = self._line(asked)
            size += len(line) + 1
            if line == "OK" or line.startswith("OK:"):
                return lines
            if line == "KO" or line.startswith("KO:"):
                why = line[3:].strip()[:WORDS_SHOWN] or "without a reason"
                raise DeviceRefused(self._who, f"its console refused `{asked}`: {why}", hint)
            lines.append(line)
            if size > MAX_ANSWER:
                raise DeviceGarbage(self._who, f"its console answered `{asked}` with more than {MAX_ANSWER} bytes")

    def _line(self, asked: str) -> str:
        assert self._socket is not None, "entered"
        while b"\n" not in self._buffer:
            left = self._deadline.remaining()
            if left <= 0:
                raise self._late(f"`{asked}`")
            if len(self._buffer) > MAX_ANSWER:
                raise DeviceGarbage(self._who, f"its console answered `{asked}` with an endless line")
            try:
                self._socket.settimeout(left)
                chunk = self._socket.recv(_CHUNK)
            except TimeoutError as error:
                raise self._late(f"`{asked}`") from error
            except OSError as error:
                raise DeviceGone(self._who, f"the connection to its console broke ({error.strerror})") from error
            if not chunk:
                raise DeviceGone(self._who, f"its console closed the connection before it had answered `{asked}`")
            self._buffer += chunk
        line, _, rest = bytes(self._buffer).partition(b"\n")
        self._buffer[:] = rest
        return line.decode("utf-8", "replace").strip()

    def _late(self, doing: str) -> DeviceTimeout:
        return DeviceTimeout(
            self._who,
            f"{doing} took longer than {self._deadline.seconds:g} s at its console",
            "raise devices.emulators.snapshot_timeout_s if snapshots are slow here, else devices.operation_timeout_s",
        )
