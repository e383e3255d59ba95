"""The phones of one worker, lent one at a time to its threads; what fails is mended, or put aside for a while.

Thread-safe. A phone is idle, leased, or (after a failure) quarantined until it is due. Mending a phone is done by the
thread that wants to lease it, outside the lock, so that one dead phone never delays the lending of another. The ladder:
a broken screenshot is taken again (session.py), the app in front is left and stopped (recover_app.py), the phone is
connected anew, an emulator is started again (its snapshot is loaded before each task), and then comes quarantine.

A phone that the pool has once taken belongs to this process until `close`, unless another turns out to have it under
its other name, or another host by the lease on the phone (phone_lease.py). One that another process has is "held": it
is left alone, and looked at again from time to time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from distrl import config
from distrl.device.app_recovery import probe, recover_app
from distrl.device.emulator import Emulator, fleet
from distrl.device.errors import AdbServerGone, DeviceGone, DeviceHeld, DeviceRefused
from distrl.device.health import Health
from distrl.device.leases import Leases
from distrl.device.phone_lease import RENEWALS, Keeper, PhoneLease, holder_name, place_of
from distrl.device.pooled import PooledPhone
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.types import DeviceHealth

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 1.0
"""How long a lease waits before it looks at the injected clock again."""
HELD_S = 1.0
"""How long a phone that another process has is left alone before it is looked at again; at least so long, where it is
another host's."""

AT_ONCE = 16
"""Phones that are connected or started at the same time: one that never answers takes its whole deadline."""


class DevicePool:
    """The phones that config.Devices names. clock: monotonic seconds, against which quarantines run.

    stop: once set, no phone is connected, and no emulator waited for or started, any more. run: which other hosts are
    told that it drives the phones for.
    """

    def __init__(
        self,
        server: AdbServer,
        devices: config.Devices,
        clock: Callable[[], float] = time.monotonic,
        stop: threading.Event | None = None,
        run: str = "",
    ) -> None:
        if not devices.named:
            raise DeviceError(
                "devices.addresses",
                "no phone is named",
                "set devices.addresses to host:port of phones, devices.serials to serials that adb knows, or "
                "devices.emulators to what is to be started",
            )
        self._server = server
        self._devices = devices
        self._clock = clock
        self._changed = threading.Condition()
        self._leases = Leases(devices.directory, server.adb)
        self._keeper = Keeper()
        self._holder = holder_name(run)
        self._stop = stop or threading.Event()
        self._mending = threading.Semaphore(AT_ONCE)
        self._closed = False
        self._phones = {serial: PooledPhone(serial) for serial in devices.serials}
        self._phones |= {address: PooledPhone(address, over_tcp=True) for address in devices.addresses}
        emulators = fleet(server, devices, self._leases, self._stop)
        self._phones |= {each.serial: PooledPhone(each.serial, emulator=each) for each in emulators}

    @property
    def count(self) -> int:
        return len(self._phones)

    @property
    def answering(self) -> int:
        """This process's phones that answered when last heard of, lent or not. One that another has is none of them."""
        with self._changed:
            return sum(phone.hold is not None and phone.health.connected for phone in self._phones.values())

    def discover(self) -> Sequence[str]:
        """Connect the phones that are not connected, start emulators; the serials of those that answer.

        A phone that does not answer is tried again when it is leased. Raises DeviceError if there is no adb server,
        or no phone answers and an emulator could not be started: all of them have one cause then.
        """
        self._server.version()
        with self._changed:
            now = self._clock()
            untried = [each for each in self._phones.values() if not each.health.connected and not each.leased]
            untried = [each for each in untried if self._take(each, now)]
            for phone in untried:
                phone.leased = True
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self._mend, untried))
        with self._changed:
            for phone in untried:
                phone.leased = False
            self._changed.notify_all()
            found = [phone.serial for phone in self._phones.values() if phone.health.connected]
        faults = [phone.fault for phone in untried if phone.emulator is not None and phone.fault is not None]
        if faults and not found and not self._stop.is_set():
            raise faults[0]
        return found

    def close(self) -> None:
        """End the emulators that were started here, and let go of every phone; one that is leased, at its release."""
        with self._changed:
            self._closed = True
        emulators = [phone.emulator for phone in self._phones.values() if phone.emulator is not None]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(Emulator.close, emulators))
        with self._changed:
            free = [phone for phone in self._phones.values() if not phone.leased]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self._release_lease, free))
        with self._changed:
            for phone in free:
                phone.let_go()

    def snapshot_of(self, session: AdbSession) -> Callable[[], None] | None:
        """What puts a leased phone back to its snapshot; None where it has none."""
        emulator = self._phones[session.serial].emulator
        return emulator.load if emulator is not None and self._devices.emulators.snapshot else None

    def lease(self, timeout_s: float = 0.0) -> AdbSession | None:
        """A phone that answers, for this caller alone until `release`; None if there is none within timeout_s.

        Mending a phone may take it beyond timeout_s by that phone's own deadlines, and by those of others where
        AT_ONCE are being mended.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            phone = self._claim()
            if phone is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return None
                with self._changed:
                    self._changed.wait(min(left, LONGEST_WAIT_S))
                continue
            if (phone.health.connected and self._is_ours(phone)) or self._mend(phone):
                phone.counters["leases"] += 1
                return self._session(phone)
            self._put_back(phone, True, phone.fault)
            if time.monotonic() > deadline:
                return None

    def release(self, session: AdbSession, failure: DeviceError | None = None, *, well: bool = False) -> None:
        """Give a phone back. failure: what ended its last episode; a phone that only refused a command is well.

        well: an episode of this lease ended without a failure, so that those before the lease no longer count.
        """
        phone = self._phones[session.serial]
        if not phone.leased or phone.session is not session:
            raise ValueError(f"{session.serial} is not leased to this caller")
        failed = failure is not None and not isinstance(failure, DeviceRefused)
        phone.fault = failure if failed else None
        held = failure if isinstance(failure, DeviceHeld) else None
        if failure is not None:
            phone.counters["interrupted"] += 1
            log.warning("%s: %s", phone.serial, failure.what)
        if well:
            phone.health, phone.excused = phone.health.succeeded(), 0
        if held is not None:
            self._leave(phone, held)
        self._put_back(phone, failed, failure)

    @contextmanager
    def leased(self, timeout_s: float = 0.0) -> Iterator[AdbSession | None]:
        """`lease` and `release` around a block; a DeviceError that leaves the block counts as the phone's failure."""
        session = self.lease(timeout_s)
        failure: DeviceError | None = None
        try:
            yield session
        except DeviceError as error:
            failure = error
            raise
        finally:
            if session is not None:
                self.release(session, failure)

    def health(self) -> tuple[DeviceHealth, ...]:
        """State and counters of every phone, in the order in which they are named."""
        with self._changed:
            return tuple(DeviceHealth(phone.serial, phone.state, phone.counted()) for phone in self._phones.values())

    def _claim(self) -> PooledPhone | None:
        """The healthy phone that was lent least, else one whose quarantine is over; marked as leased."""
        with self._changed:
            now = self._clock()
            if self._closed:
                return None
            free = [phone for phone in self._phones.values() if not phone.leased and phone.health.due <= now]
            free.sort(key=lambda each: (not each.health.connected, each.health.failures, each.counters["leases"]))
            phone = next((each for each in free if self._take(each, now)), None)
            if phone is not None:
                phone.leased = True
            return phone

    def _take(self, phone: PooledPhone, now: float) -> bool:
        """Whether the phone is this process's; takes it if it is nobody's."""
        if phone.hold is not None:
            return True
        if now < phone.held_until:
            return False
        found = self._leases.take(phone.serial)
        if isinstance(found, str):
            if found != phone.held_by:
                log.warning("%s is held by %s; it is taken when that lets it go", phone.serial, found)
            phone.held_by, phone.held_until = found, now + HELD_S
            return False
        phone.hold, phone.held_by = found, ""
        return True

    def _put_back(self, phone: PooledPhone, failed: bool, fault: DeviceError | None) -> None:
        with self._changed:
            now = self._clock()
            phone.leased = False
            if phone.hold is not None:  # one that was left to another process has not failed
                phone.health = phone.health.failed(now) if failed else phone.health.succeeded()
                phone.excused = phone.excused + isinstance(fault, AdbServerGone) if failed else 0
                if phone.health.due > now:
                    phone.counters["quarantines"] += 1
                    log.warning("%s is put aside for %.0f s", phone.serial, phone.health.due - now)
            closed = self._closed
            self._changed.notify_all()
        if closed:
            self._release_lease(phone)
            with self._changed:
                phone.let_go()

    def _release_lease(self, phone: PooledPhone) -> None:
        """Before the lock is let go, and outside of our own: it is a question to the phone."""
        if phone.lease is not None:
            self._keeper.remove(phone.lease)
            phone.lease.release()

    def _is_ours(self, phone: PooledPhone) -> bool:
        """As far as is known without asking the phone."""
        try:
            self._guard(phone)
        except DeviceError:
            return False
        return True

    def _guard(self, phone: PooledPhone) -> None:
        if phone.lease is not None:
            phone.lease.check()

    def _hold_on_phone(self, phone: PooledPhone) -> None:
        """Lease the phone on itself, against other hosts. Raises DeviceHeld.

        An emulator of this process is reached by nobody else, and goes back to its snapshot before each task.
        """
        if phone.emulator is not None:
            return
        if phone.lease is None:
            session = AdbSession(self._server, phone.serial, self._devices)
            place = place_of(self._leases, phone.serial)
            phone.lease = PhoneLease(session, self._holder, place, self._devices.lease_ttl_s)
        phone.lease.hold()
        phone.left_to = ""
        self._keeper.add(phone.lease)

    def _leave(self, phone: PooledPhone, held: DeviceHeld) -> None:
        """Another host has it: it is held, and has not failed."""
        with self._changed:
            if phone.lease is not None:
                self._keeper.remove(phone.lease)
            if held.holder != phone.left_to:
                log.warning(
                    "%s is held by %s, on another host or by another name; it is taken when that lets it go",
                    phone.serial,
                    held.holder,
                )
            phone.let_go()
            phone.held_by = phone.left_to = held.holder
            phone.held_until = self._clock() + max(HELD_S, self._devices.lease_ttl_s / RENEWALS)
            phone.health, phone.session, phone.fault = Health(), None, None

    def _mend(self, phone: PooledPhone) -> bool:
        """Climb the ladder, and see whether the phone's shell answers; False once stopped.

        A first failure with which the connection stood is taken for the app's. After that, or where it does not help,
        the phone is connected, anew if it was before. An emulator that has ended is started again, and so is one that
        fails again right after a new connection.
        """
        with self._mending:
            return not self._stop.is_set() and self._mended(phone)

    def _mended(self, phone: PooledPhone) -> bool:
        timeout_s = self._devices.operation_timeout_s
        try:
            self._server_answers()
            if self._stop.is_set():
                return False
            if not self._unstuck(phone):
                if phone.emulator is not None:
                    phone.emulator.bring(anew=phone.health.failures - phone.excused > 1)
                elif not phone.over_tcp:
                    self._take_aliases(phone)
                else:
                    if phone.session is not None:
                        self._server.disconnect(phone.serial, timeout_s)
                        phone.counters["reconnects"] += 1
                    self._server.connect(phone.serial, timeout_s)
                self._hold_on_phone(phone)
                probe(self._session(phone))
        except DeviceHeld as error:
            self._leave(phone, error)
            return False
        except DeviceError as error:
            log.warning("%s does not answer: %s", phone.serial, error.what)
            phone.fault = error
            return False
        phone.health, phone.fault = phone.health.mended(), None
        return True

    def _unstuck(self, phone: PooledPhone) -> bool:
        fault, again = phone.fault, phone.health.failures > 1
        if phone.session is None or fault is None or again or isinstance(fault, DeviceGone | AdbServerGone):
            return False
        return recover_app(phone.session)

    def _server_answers(self) -> None:
        """Start the adb server where none runs: one that was killed would be away for every phone, and for ever.

        Raises AdbServerGone where it does not answer: that is no phone's failure.
        """
        try:
            self._server.start()
        except AdbServerGone:
            raise
        except DeviceError as error:
            raise AdbServerGone(error.where, error.what, error.hint) from error

    def _take_aliases(self, phone: PooledPhone) -> None:
        """Hold it under its other name as well: of a phone on USB, its serial or its place.

        Raises DeviceGone where somebody has it under that name. Whoever has it so may be waiting for our name in turn:
        of the two, the one whose own name is the larger lets the phone go, and looks at it again as at any held one.
        """
        for name in self._server.aliases(phone.serial):
            if name in phone.aliases:
                continue
            found = self._leases.take(name)
            if isinstance(found, str):
                if phone.serial > name:
                    self._release_lease(phone)
                    with self._changed:
                        phone.let_go()
                        phone.held_by, phone.held_until = found, self._clock() + HELD_S
                raise DeviceGone(phone.serial, f"{found} has it, as {name}", "name each phone once, in one process")
            phone.aliases[name] = found

    def _session(self, phone: PooledPhone) -> AdbSession:
        if phone.session is None:
            phone.session = AdbSession(self._server, phone.serial, self._devices, partial(self._guard, phone))
        return phone.session
