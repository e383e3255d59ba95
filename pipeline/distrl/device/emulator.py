"""One emulator that this process starts, waits for, restores to its snapshot, restarts and ends.

Life cycle: `bring` makes it a phone that answers, starting it if necessary; `close` ends it for good, from any thread,
also while another thread waits for it to boot.

The emulator is started with our adb server's port, and the server is given the emulator's: a server of our own does not
look for emulators by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from distrl import config
from distrl.device.adb_protocol import Deadline
from distrl.device.console import Console
from distrl.device.errors import AdbServerGone, DeviceGone, DeviceRefused, DeviceTimeout, DeviceUnready
from distrl.device.launch import GUIDE, Program, check_free, command_line, program
from distrl.device.leases import Leases
from distrl.device.names import EMULATOR
from distrl.device.server import SERVER_S, AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError

log = logging.getLogger(__name__)

ONLINE = "device"
BOOTED = "getprop sys.boot_completed"
POLL_S = 0.2
OFFLINE_S = 3.0
"""How long adb may report it as offline before it is reconnected: a connection to an ended emulator stays offline."""
WORDS_SHOWN = 300
FORGET_S = 2.0
"""Deadline for the adb server to drop a connection: an unresponsive one must not delay the end of a worker either."""
ASK_S = 2.0
"""Deadline for the console to take a `kill`: a hung emulator must not delay the end of its worker."""
FAIR_S = 0.5
"""An adb server that had less time to answer does not count as unresponsive."""
PING_S = 0.3
"""Deadline of the console query for the message of a DeviceTimeout."""


class Emulator:
    """The emulator of `devices.emulators` with its console at `port`. The caller holds the lease of its serial.

    leases: its log and its pid file are beside the lock of its serial. stop: once set, it is not started, and no boot
    is waited for. writable: the one instance that may save a snapshot, not one of several read-only ones.
    starts: how often it was started.
    """

    def __init__(
        self,
        server: AdbServer,
        devices: config.DeviceSettings,
        port: int,
        leases: Leases,
        stop: threading.Event,
        *,
        writable: bool = False,
    ) -> None:
        self.serial = f"{EMULATOR}{port}"
        self.starts = 0
        self._server = server
        self._devices = devices
        self._settings = devices.emulators
        self._port = port
        self._writable = writable
        self._session = AdbSession(server, self.serial, devices)
        self._program = Program(self.serial, leases.file(self.serial, ".log"), leases.file(self.serial, ".pid"))
        self._recognised = False
        self._changing = threading.Lock()
        self._closing = threading.Event()
        self._stop = stop

    @property
    def pid(self) -> int | None:
        """Of the running emulator; None if it does not run."""
        return self._program.pid

    def bring(self, *, anew: bool = False) -> None:
        """Make it a phone that answers: connect it to adb, or else start it, wait for its boot, load its snapshot.

        anew: restart it even if it answers. Raises DeviceError, which names the setting concerned, after ending the
        emulator.
        """
        if self.pid is not None and not anew:
            try:
                self._until_booted(
                    Deadline(self._devices.operation_timeout_s), "devices.operation_timeout_s", self._stop
                )
                return
            except (DeviceGone, DeviceTimeout) as error:  # not AdbServerGone: that is not the emulator's failure
                log.warning("%s is restarted: %s", self.serial, error.what)
        self.stop()
        try:
            self._start()
            boot = Deadline(self._settings.boot_timeout_s)
            self._until_booted(boot, "devices.emulators.boot_timeout_s", self._stop)
            self._recognise()
            if self._settings.snapshot and not self._writable:
                self.load()
        except BaseException:
            self.stop()
            raise

    def load(self) -> None:
        """Restore its snapshot and wait until it answers again.

        Raises DeviceUnready if its console refuses, DeviceTimeout after devices.emulators.snapshot_timeout_s.
        """
        deadline = Deadline(self._settings.snapshot_timeout_s)
        try:
            with self._console(deadline) as console:
                try:
                    console.load(self._settings.snapshot)
                except DeviceRefused as error:
                    kept = console.snapshots().strip()[:WORDS_SHOWN] or "none"
                    raise DeviceUnready(
                        self.serial,
                        f"{error.what}; its snapshots: {kept}",
                        "`distrl emulators prepare` saves one; or set devices.emulators.snapshot to one that it has",
                    ) from error
        except DeviceRefused as error:
            raise DeviceUnready(self.serial, error.what, error.hint) from error
        self._forget(deadline)  # the old connection is dead
        self._until_booted(deadline, "devices.emulators.snapshot_timeout_s", self._closing)

    def save(self) -> None:
        """Save devices.emulators.snapshot. Raises DeviceRefused with the console's reason."""
        with self._console(Deadline(self._settings.snapshot_timeout_s)) as console:
            console.save(self._settings.snapshot)

    def close(self) -> None:
        """End it and never start it again."""
        self._closing.set()
        self.stop()

    def stop(self) -> None:
        """End it if it runs."""
        with self._changing:
            self._program.stop(self._asked_to_end)
            self._recognised = False
        self._forget()

    def _start(self) -> None:
        with self._changing:
            if self._closing.is_set() or self._stop.is_set():
                raise DeviceGone(self.serial, "it is being ended")
            self._program.stop_leftover()
            check_free((self._port, self._port + 1))
            self._forget()
            line = command_line(self._settings, self._port, writable=self._writable)
            self._program.start(line, {"ANDROID_ADB_SERVER_PORT": str(self._server.adb.port)})
            self.starts += 1

    def _recognise(self) -> None:
        """Check that the emulator at the port is ours: another may have taken it while ours started."""
        try:
            with self._console(Deadline(self._devices.operation_timeout_s)) as console:
                name = console.avd_name()
        except DeviceRefused as error:
            raise DeviceUnready(self.serial, error.what, error.hint) from error
        if name != self._settings.avd or self.pid is None:
            raise DeviceUnready(
                "devices.emulators.first_port",
                f"{self.serial} runs {name[:100]!r}, not {self._settings.avd!r}",
                "end that emulator, or set another even port",
            )
        self._recognised = True

    def _until_booted(self, deadline: Deadline, setting: str, give_up: threading.Event) -> None:
        """Wait until adb lists it and Android has started.

        Waits also while the adb server does not answer. Raises DeviceTimeout, which names `setting`; DeviceGone if the
        emulator ends meanwhile or `give_up` is set; AdbServerGone if at the deadline the adb server does not answer.
        """
        online_at = time.monotonic()
        state, away = "unknown", None
        while True:
            self._check_running(give_up)
            fair = deadline.remaining() > min(FAIR_S, deadline.seconds / 2)
            try:
                state = self._server.devices(deadline.timeout(SERVER_S)).get(self.serial, "unknown")
                if state == ONLINE:
                    if self._booted(deadline):
                        return
                    online_at = time.monotonic()
                else:
                    if time.monotonic() - online_at > OFFLINE_S:
                        self._forget(deadline)
                        online_at = time.monotonic()
                    self._server.emulator(self._port + 1, deadline.timeout(SERVER_S))
                away = None
            except DeviceError as error:
                away = error if fair or isinstance(error, AdbServerGone) else away
            if deadline.remaining() <= 0 and away is not None:
                raise AdbServerGone(
                    "adb.port",
                    f"the adb server at {self._server.where} does not answer, so the state of {self.serial} is "
                    f"unknown: {away.what}",
                    "check the adb server with `distrl doctor`",
                )
            if deadline.remaining() <= 0:
                raise DeviceTimeout(
                    self.serial,
                    f"does not answer after {deadline.seconds:g} s: adb reports it as {state}, its console "
                    f"{'answers' if self._console_answers() else 'does not answer'}{self._program.log_tail()}",
                    f"raise {setting}, start fewer at once, or check hardware acceleration ({GUIDE}); "
                    f"its log is {self._program.log}",
                )
            self._closing.wait(min(POLL_S, deadline.remaining()))

    def _booted(self, deadline: Deadline) -> bool:
        within = Deadline(deadline.timeout(self._devices.operation_timeout_s))
        try:
            return self._session.run(BOOTED, within).stdout.strip() == b"1"
        except DeviceTimeout:  # the connection may be from before a snapshot was loaded
            self._forget(deadline)
            return False
        except DeviceError:
            return False

    def _forget(self, within: Deadline | None = None) -> None:
        """Have adb drop its connection: it would go on listing an ended emulator and never reconnect it."""
        with suppress(DeviceError):
            self._server.disconnect(self.serial, (within or Deadline(FORGET_S)).timeout(FORGET_S))

    def _check_running(self, give_up: threading.Event) -> None:
        if self._closing.is_set() or give_up.is_set() or (self.pid is None and self._program.status is None):
            raise DeviceGone(self.serial, "it is being ended")
        if self.pid is None:
            raise DeviceGone(
                self.serial,
                f"the emulator has ended with status {self._program.status}{self._program.log_tail()}",
                f"read {self._program.log}; `emulator -list-avds` names the virtual devices; see {GUIDE}",
            )

    def _console(self, deadline: Deadline) -> Console:
        return Console(self._port, self._settings.token_file, deadline)

    def _console_answers(self) -> bool:
        try:
            with self._console(Deadline(PING_S)) as console:
                console.ping()
        except DeviceError:
            return False
        return True

    def _asked_to_end(self) -> bool:
        if not self._recognised:  # the console at our port may be that of another emulator
            return False
        try:
            with self._console(Deadline(ASK_S)) as console:
                console.kill()
        except DeviceError:
            return False
        return True


def connect_emulator(server: AdbServer, port: int, devices: config.DeviceSettings) -> None:
    """Have adb connect to the emulator with its console at `port`, which somebody else has started.

    Raises DeviceGone where it does not within devices.operation_timeout_s.
    """
    deadline, serial = Deadline(devices.operation_timeout_s), f"{EMULATOR}{port}"
    state = server.devices().get(serial)
    while state != ONLINE and deadline.remaining() > 0:
        server.emulator(port + 1)
        time.sleep(POLL_S)
        state = server.devices().get(serial)
    if state != ONLINE:
        raise DeviceGone(
            serial,
            f"adb at {server.where} {f'reports it as {state}' if state else 'does not find it'}, and it is not started "
            "here",
            f"start it with `emulator -avd {devices.emulators.avd or 'NAME'} -port {port}`, or choose another phone "
            "with --serial",
        )


def fleet(
    server: AdbServer, devices: config.DeviceSettings, leases: Leases, stop: threading.Event
) -> Sequence[Emulator]:
    """The emulators of the configuration, none of them started.

    Raises DeviceError if the adb server is on another machine, or there is no emulator program.
    """
    settings = devices.emulators
    if not settings.count:
        return ()
    if not server.local:
        raise DeviceError(
            "devices.emulators.count",
            f"emulators are started on this machine; the adb server is on {server.adb.host}",
            "set adb.host to 127.0.0.1, or start the worker there",
        )
    program(settings)
    ports = range(settings.first_port, settings.first_port + 2 * settings.count, 2)
    return [Emulator(server, devices, port, leases, stop) for port in ports]
