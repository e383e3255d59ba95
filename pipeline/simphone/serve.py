"""Many simulated phones in one process, each on its own port: phone i listens on phones.base_port + i.

Life cycle: `serve` opens every port before it reports ready, and serves until it is cancelled. A phone with the fault
`gone` closes its port and its connections, and opens the port again when the fault ends.
"""

from __future__ import annotations

import asyncio
import errno
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from distrl.config import Config, Phones
from distrl.errors import ConfigError

from simphone.adbd import Adbd, properties
from simphone.commands.network import address_of
from simphone.faults import Fault, Faults
from simphone.handset import Handset
from simphone.machine import PhoneMachine
from simphone.profiles import Luck

HOST = "127.0.0.1"
HIGHEST_PORT = 65535
REOPEN_PAUSE_S = 0.1
"""Between two tries to open the port of a phone that comes back, where something else has taken it meanwhile."""


class SimulatedPhone:
    """One phone: its machine, its faults and its port."""

    def __init__(self, phones: Phones, number: int, host: str) -> None:
        self.host = host
        self.port = phones.base_port + number
        self.serial = f"sim{number}"
        self.machine = PhoneMachine(phones.seed + number, phones.popup_probability, phones.generation)
        self.faults = Faults(time.monotonic)
        luck = Luck(phones, number)
        handset = Handset(
            self.machine, self.faults, luck.latency.draw, properties(self.serial, address_of(number)),
            keyboard_service=phones.keyboard_service, mishaps=luck.faults,
            clock=time.monotonic if luck.moves else None,
        )  # fmt: skip
        self.handset = handset
        self.keyboards = handset.keyboards
        self._adbd = Adbd(handset)
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """host:port, as `adb connect` takes it."""
        return f"{self.host}:{self.port}"

    async def open(self) -> None:
        """Listen. Raises ConfigError if the port is in use or not to be had."""
        try:
            self._server = await asyncio.start_server(self._adbd.connected, self.host, self.port)
        except OSError as error:
            why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be opened: {error.strerror}"
            raise ConfigError(
                "phones.base_port",
                f"port {self.port} of {self.host}, for simulated phone {self.serial}, {why}",
                "stop what listens there, or set phones.base_port to the first of a free range of ports",
            ) from error

    async def run(self) -> None:
        """Come and go with the fault `gone`, until cancelled."""
        try:
            while True:
                await self.faults.until(Fault.GONE, active=True)
                # A connection that is accepted and not yet attached would be leaked by closing its server, and stay
                # open: it is attached in the next two rounds of the loop, and dropped by adbd, which sees the fault.
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                self.close()
                await self.faults.until(Fault.GONE, active=False)
                await self._reopen()
        finally:
            self.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        self._adbd.drop_connections()

    async def _reopen(self) -> None:
        while self._server is None:
            try:
                await self.open()
            except ConfigError:
                await asyncio.sleep(REOPEN_PAUSE_S)


async def serve(
    phones: Phones, host: str = HOST, ready: Callable[[Sequence[SimulatedPhone]], None] = lambda _: None
) -> None:
    """Serve phones.count + phones.evaluation_count phones until cancelled; `ready` is called when all ports are open.

    Raises ConfigError if a port is in use; then none stays open.
    """
    total = phones.count + phones.evaluation_count
    if phones.base_port + total - 1 > HIGHEST_PORT:
        raise ConfigError(
            "phones.base_port",
            f"{total} phones from port {phones.base_port} on need ports above {HIGHEST_PORT}",
            f"set phones.base_port to at most {HIGHEST_PORT + 1 - total}, or lower phones.count",
        )
    fleet = [SimulatedPhone(phones, number, host) for number in range(total)]
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


def run_phones(config: Config) -> None:
    """Serve the simulated phones of `config` until SIGTERM or SIGINT; prints one line when all ports are open.

    Raises ConfigError if a port is in use.
    """
    asyncio.run(_until_signalled(config.phones))


async def _until_signalled(phones: Phones) -> None:
    loop = asyncio.get_running_loop()
    serving = asyncio.current_task()
    assert serving is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    try:
        await serve(phones, HOST, _announce)
    except asyncio.CancelledError:
        serving.uncancel()


def _announce(fleet: Sequence[SimulatedPhone]) -> None:
    where = f" at {fleet[0].host}, ports {fleet[0].port} to {fleet[-1].port}" if fleet else ""
    print(f"ready: {len(fleet)} simulated phones{where}", flush=True)


class PhonesInThread:
    """The phones of `phones` on a thread of this process, for a program that wants to reach into them.

    A context manager: entered, every port is open; left, the thread has ended. Raises what `serve` raises.
    """

    def __init__(self, phones: Phones) -> None:
        self.fleet: Sequence[SimulatedPhone] = ()
        self._phones = phones
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
        await serve(self._phones, HOST, self._ready)

    def _ready(self, fleet: Sequence[SimulatedPhone]) -> None:
        self.fleet = fleet
        self._started.set()
