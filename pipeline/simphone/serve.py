"""Many simulated phones in one process, each on its own port: phone i listens on base_port + i.

Life cycle: `serve` opens every port before it reports ready, and serves until it is cancelled. A phone with the fault
`gone` closes its port and its connections, and opens the port again when the fault ends.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType

from simphone.adbd import Adbd, properties
from simphone.commands.network import address_of
from simphone.faults import Fault, Faults
from simphone.fleet import FleetSettings, SettingError
from simphone.generations import generation_of
from simphone.handset import Handset
from simphone.machine import PhoneMachine
from simphone.profiles import Luck

HOST = "127.0.0.1"
REOPEN_PAUSE_S = 0.1
"""Pause between attempts to reopen the port of a phone, if something else has taken it meanwhile, or the file
descriptors are used up."""


class SimulatedPhone:
    """One phone: its machine, its faults and its port."""

    def __init__(self, settings: FleetSettings, number: int, host: str) -> None:
        self.host = host
        self.port = settings.base_port + number
        self.serial = f"sim{number}"
        generation = generation_of(number, settings.generations, settings.generation)
        self.machine = PhoneMachine(settings.seed + number, settings.popup_probability, generation)
        self.faults = Faults(time.monotonic)
        luck = Luck(settings, number)
        handset = Handset(
            self.machine,
            self.faults,
            luck.latency.draw,
            properties(self.serial, address_of(number)),
            keyboard_service=settings.keyboard_service,
            mishaps=luck.faults,
            clock=time.monotonic if luck.moves else None,
        )
        self.handset = handset
        self.keyboards = handset.keyboards
        self._adbd = Adbd(handset)
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """host:port, as `adb connect` takes it."""
        return f"{self.host}:{self.port}"

    async def open(self) -> None:
        """Listen. Raises SettingError if the port is in use or cannot be opened."""
        server: asyncio.Server | None = None
        try:
            server = await asyncio.start_server(self._adbd.connected, self.host, self.port)
        except OSError as error:
            if error.errno is not None:
                why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened: {error.strerror}"
                raise SettingError(
                    "base_port",
                    f"port {self.port} of {self.host}, for simulated phone {self.serial}, {why}",
                    "stop what listens there, or choose the first of a free range of ports",
                ) from error
        # Where no socket can be made, Python 3.11's asyncio returns a server that listens nowhere, and later ones raise
        # an error without a number.
        if server is None or not server.sockets:
            raise SettingError(
                "count",
                f"no file descriptor is left for the port of simulated phone {self.serial}",
                "raise the limit of open files (ulimit -n) or serve fewer phones",
            )
        self._server = server

    async def run(self) -> None:
        """Close and reopen the port with the fault `gone`, until cancelled."""
        try:
            while True:
                await self.faults.until(Fault.GONE, active=True)
                # A connection that is accepted and not yet attached would be leaked by closing its server, and stay
                # open. So none is accepted any more; what was is attached in the next two rounds of the loop, and
                # dropped by adbd, which sees the fault; what waits is reset as its port closes.
                self._accept_no_more()
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                self.close()
                await self.faults.until(Fault.GONE, active=False)
                await self._reopen()
        finally:
            self.close()

    def _accept_no_more(self) -> None:
        if self._server is not None:
            for listening in self._server.sockets:
                asyncio.get_running_loop().remove_reader(listening.fileno())

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._adbd.drop_connections()

    async def _reopen(self) -> None:
        while self._server is None:
            try:
                await self.open()
            except SettingError:
                await asyncio.sleep(REOPEN_PAUSE_S)


Ready = Callable[[Sequence[SimulatedPhone]], None]


async def serve(settings: FleetSettings, host: str, ready: Ready) -> None:
    """Serve the phones until cancelled; `ready` is called when all ports are open.

    Raises the process's soft limit of open files to the hard one. Raises SettingError if a port cannot be opened; then
    none stays open.
    """
    _raise_file_limit()
    fleet = [SimulatedPhone(settings, number, host) for number in range(settings.count)]
    try:
        for phone in fleet:
            await phone.open()
        ready(fleet)
        async with asyncio.TaskGroup() as running:
            for phone in fleet:
                running.create_task(phone.run())
            await asyncio.Event().wait()
    finally:
        for phone in fleet:
            phone.close()


def _raise_file_limit() -> None:
    """Each port and each connection takes a file descriptor, and a soft limit of 1,024 is common."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS has a lower bound of its own
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def announce(fleet: Sequence[SimulatedPhone]) -> None:
    """Print one line: the phones are ready."""
    print(f"ready: {len(fleet)} simulated phones at {HOST}, ports {fleet[0].port} to {fleet[-1].port}", flush=True)


def run_phones(settings: FleetSettings, ready: Ready = announce) -> None:
    """Serve simulated phones on loopback until SIGTERM or SIGINT; `ready` is called when all ports are open.

    Raises SettingError if a port cannot be opened.
    """
    asyncio.run(_until_signalled(settings, ready))


async def _until_signalled(settings: FleetSettings, ready: Ready) -> None:
    loop = asyncio.get_running_loop()
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serve(settings, HOST, ready)
    except asyncio.CancelledError:
        serving.uncancel()


class PhonesInThread:
    """Simulated phones on a thread of this process, for a program that accesses their state.

    A context manager: entered, every port is open; left, the thread has ended. Raises what `serve` raises.
    """

    def __init__(self, settings: FleetSettings) -> None:
        self.fleet: Sequence[SimulatedPhone] = ()
        self._settings = settings
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="phones", daemon=True)

    def __enter__(self) -> PhonesInThread:
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._loop is not None and self._serving is not None:
            self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except asyncio.CancelledError:
            pass
        except Exception as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = asyncio.current_task()
        await serve(self._settings, HOST, self._ready)

    def _ready(self, fleet: Sequence[SimulatedPhone]) -> None:
        self.fleet = fleet
        self._started.set()
