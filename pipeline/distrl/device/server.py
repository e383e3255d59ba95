"""The adb server: a running one, or one of our own on our own port, and its requests about phones.

A server that somebody else started is used and never stopped. Our own leaves the phones of other adb servers alone: it
does not look for emulators (which probes ports 5555 to 5585 of this machine), for phones on the network, or for phones
on USB unless `adb.usb` is set.
"""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

import adbutils

from distrl import config
from distrl.device.adb_protocol import Connection, Deadline
from distrl.device.errors import AdbServerGone, DeviceGone, DeviceTimeout, refusal
from distrl.device.names import LOOPBACK, USB, adb_line
from distrl.device.processes import wait_ended
from distrl.dial import dial
from distrl.errors import DeviceError

log = logging.getLogger(__name__)

START_S = 10.0
STOP_S = 5.0
POLL_S = 0.02
SERVER_S = 5.0
"""Deadline of a request that the adb server answers by itself."""
HUNG_S = 30.0
"""A server of our own that has answered nothing for so long is ended, and another one started."""
LISTENS_S = 1.0
"""Deadline of the test whether anything listens at the adb server's address."""
LOG_TAIL = 500
ALONE = {
    "ADB_EMU": "0",
    "ADB_LOCAL_TRANSPORT_MAX_PORT": "5554",
    "ADB_MDNS": "0",
    "ADB_MDNS_AUTO_CONNECT": "0",
    "ADB_REJECT_KILL_SERVER": "1",
}
"""Environment of our own server: no search for emulators and mDNS phones, and `adb kill-server`, which may be meant for
another server, is refused."""


class AdbServer:
    """The adb server at adb.host:adb.port. `start` makes sure that one runs; without it, one is expected to run.

    A context manager: entering starts it, leaving stops it if it is ours.
    log: the log file of a server of our own. needed: whether others use it, so that it is left running.
    """

    def __init__(
        self, adb: config.AdbSettings, *, log: Path | None = None, needed: Callable[[], bool] = lambda: False
    ) -> None:
        self.adb = adb
        self._log = log
        self._needed = needed
        self._child: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._silent_since: float | None = None

    @property
    def where(self) -> str:
        return f"{self.adb.host}:{self.adb.port}"

    @property
    def local(self) -> bool:
        """Whether it is, or would be, on this machine."""
        return self.adb.host in LOOPBACK

    @property
    def pid(self) -> int | None:
        """Of the server that we started, if we did."""
        return self._child.pid if self._child else None

    def __enter__(self) -> AdbServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self) -> bool:
        """Make sure that a server runs. Returns whether it is ours. Raises DeviceError if none can be started.

        May be called again, from any thread, after the server was killed, or has hung for HUNG_S.
        """
        if not self._listens():
            if not self.local:
                raise DeviceError(
                    "adb.host",
                    f"no adb server answers at {self.where}, and none can be started on another machine",
                    "start it there with `adb -a -P PORT server nodaemon`, or set adb.host to 127.0.0.1",
                )
            with self._starting:
                if not self._listens():  # no other thread has started one meanwhile
                    return self._start()
        try:
            self.version()  # outside the lock: threads wait for an unresponsive server in parallel
        except DeviceTimeout:
            if not self._replaces_hung():
                raise
            return True
        return False

    def _replaces_hung(self) -> bool:
        """Called when the server has not answered. Whether it was ours, hung for HUNG_S, and another one runs now."""
        with self._starting:
            since = self._silent_since = self._silent_since or time.monotonic()
            if self._child is None or time.monotonic() - since < HUNG_S:
                return False
            with suppress(DeviceTimeout):  # it may have been asked seldom, and be slow again
                self.version()
                return False
            log.warning(
                "the adb server at %s (pid %d) has not answered for %.0f s: another one is started",
                self.where,
                self.pid,
                HUNG_S,
            )
            self._silent_since = None
            return self._start()

    def _start(self) -> bool:
        if self._log is not None:
            self._log.parent.mkdir(parents=True, exist_ok=True)
        self._end()  # one of our own that does not listen
        with self._log.open("a+b") if self._log is not None else tempfile.TemporaryFile() as output:
            self._child = self._spawn(output)
            self._wait_started(self._child, output)
        if self._child.poll() is not None:  # another process started one at the same time, which has the port
            self._child = None
        return self._child is not None

    def _wait_started(self, child: subprocess.Popen[bytes], output: IO[bytes]) -> None:
        deadline = Deadline(START_S)
        while not self._listens():
            ended = child.poll() is not None
            if (ended and not self._listens()) or deadline.remaining() <= 0:
                self._end()
                raise DeviceError(
                    "adb.port",
                    f"the adb server did not start at {self.where}{_log_tail(output)}",
                    "set adb.port to a free port, and adb.binary to an adb that runs",
                )
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop the server if we started it, and nobody else needs it."""
        if self._child is not None and self._needed():
            log.info("the adb server at %s stays: other processes drive phones by it (pid %d)", self.where, self.pid)
            self._child = None
        self._end()

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.terminate()
        wait_ended(child, f"the adb server at {self.where}", STOP_S)

    def version(self) -> int:
        """The version of the server's protocol. Raises DeviceError if something else listens there."""
        answer = self.ask("host:version")
        try:
            return int(answer, 16)
        except ValueError as error:
            raise DeviceError(
                "adb.port",
                f"what listens at {self.where} is not an adb server: it answered {answer[:40]!r}",
                "set adb.port to a free port",
            ) from error

    def devices(self, timeout_s: float = SERVER_S) -> Mapping[str, str]:
        """Serial to state ("device", "offline", "unauthorized", …) of all phones that the server knows."""
        lines = (line.split("\t") for line in self.ask("host:devices", timeout_s).splitlines())
        return {parts[0]: parts[1] for parts in lines if len(parts) == 2}

    def state(self, name: str) -> str:
        """The state of the phone `name`: a serial, or a USB port such as usb:1-2. Raises DeviceGone."""
        return self.ask(f"host-serial:{name}:get-state", who=name)

    def aliases(self, name: str, timeout_s: float = SERVER_S) -> Sequence[str]:
        """Other names of the phone `name`: its USB port (usb:1-2) for a serial, and its serial for a USB port, unless
        several phones have that serial. Empty for a phone that is not connected.
        """
        try:
            if not name.startswith(USB):
                place = self.ask(f"host-serial:{name}:get-devpath", timeout_s, name)
                return [place] if place.startswith(USB) else []
            serial = self.ask(f"host-serial:{name}:get-serialno", timeout_s, name)
            same = self.ask(f"host-serial:{serial}:get-devpath", timeout_s, serial) == name
        except DeviceGone:
            return []
        return [serial] if same else []

    def connect(self, address: str, timeout_s: float = SERVER_S) -> None:
        """Connect the server to a phone at host:port. Raises DeviceGone if it cannot (DeviceUnauthorized if the phone
        does not trust it), DeviceTimeout if it waits."""
        answer = self.ask(f"host:connect:{address}", timeout_s, address)
        if not answer.startswith(("connected to", "already connected to")):
            raise refusal(address, answer, adb_line(self.adb.host, self.adb.port))

    def emulator(self, adb_port: int, timeout_s: float = SERVER_S) -> None:
        """Announce an emulator of this machine at `adb_port`, as emulators do themselves.

        The server does not answer. It connects at once if something listens there, unless it has that emulator already.
        """
        with suppress(DeviceGone):
            self.ask(f"host:emulator:{adb_port}", timeout_s)

    def disconnect(self, address: str, timeout_s: float = SERVER_S) -> None:
        """Forget the phone at host:port; no error if it is not known."""
        try:
            self.ask(f"host:disconnect:{address}", timeout_s, address)
        except DeviceGone as error:
            if "no such device" not in error.what:
                raise

    def ask(self, request: str, timeout_s: float = SERVER_S, who: str | None = None) -> str:
        """One request to the server itself and its answer."""
        with Connection(self.adb, who or self.where, Deadline(timeout_s)) as connection:
            connection.request(request)
            answer = connection.read_text()
        self._silent_since = None
        return answer

    def _listens(self) -> bool:
        """Whether anything does; one that is too slow to say so does. Raises AdbServerGone where that cannot be found
        out on this machine."""
        try:
            dial(self.adb.host, self.adb.port, LISTENS_S).close()
        except ConnectionRefusedError:
            return False
        except TimeoutError:
            return self.local
        except OSError as error:
            if self.local:
                raise AdbServerGone(
                    self.where,
                    f"nothing can be asked of the adb server there: {error.strerror or error}",
                    "look at this machine: how many files this process has open, and its memory",
                ) from None
            return False
        return True

    def _spawn(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        binary = str(self.adb.binary or adbutils.adb_path())
        known = {name: value for name, value in os.environ.items() if name not in ("ADB_SERVER_SOCKET", "ADB_TRACE")}
        known |= ALONE
        if not self.adb.usb:
            known["ADB_USB"] = "0"
        try:
            return subprocess.Popen(
                [binary, "-P", str(self.adb.port), "server", "nodaemon"],
                env=known,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise DeviceError(
                "adb.binary",
                f"{binary} cannot be run: {error.strerror}",
                "set adb.binary to an adb program, or leave it unset for the one that ships with adbutils",
            ) from error


def _log_tail(output: IO[bytes]) -> str:
    output.seek(max(0, output.seek(0, os.SEEK_END) - LOG_TAIL))
    words = output.read().decode("utf-8", "replace").strip()
    return f": {words}" if words else ""
