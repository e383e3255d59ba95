"""The phones of one worker, leased to its threads; failed phones are recovered, or quarantined for a while.

Thread-safe. A phone is idle, leased, or (after a failure) quarantined until it is due. The thread that wants to lease a
phone recovers it, outside the lock, so that one dead phone never delays the lease of another. Recovery steps: a broken
screenshot is taken again (session.py), the app in front is left and stopped (app_recovery.py), the phone is
reconnected, an emulator is restarted (its snapshot is loaded before each task), and at last the phone is quarantined.

A phone that the pool has once taken belongs to this process until `close`, unless another process turns out to have it
under its other name, or another host by the lease on the phone (phone_lease.py). A phone that another process has is
"held": it is left alone, and checked again from time to time.
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
from distrl.device.errors import AdbServerGone, DeviceGone, DeviceHeld, DeviceLocked, DeviceRefused
from distrl.device.health import Health
from distrl.device.leases import Leases
from distrl.device.phone_lease import RENEWALS, LeaseRenewer, PhoneLease, holder_name, place_of
from distrl.device.pooled import PooledPhone
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.types import DeviceHealth

log = logging.getLogger(__name__)

LONGEST_WAIT_S = 1.0
"""Longest wait of `lease` before it reads the injected clock again."""
HELD_S = 1.0
"""How long a phone held by another process is left alone before it is checked again; the minimum for one held by
another host."""

AT_ONCE = 16
"""Phones connected or started in parallel: one that never answers takes its whole deadline."""


class DevicePool:
    """The phones that config.Devices names. clock: monotonic seconds, for quarantines.

    stop: once set, no phone is connected, and no emulator is started or waited for. run: shown to other hosts in the
    leases on the phones.
    """

    def __init__(
        self,
        server: AdbServer,
        devices: config.DeviceSettings,
        clock: Callable[[], float] = time.monotonic,
        stop: threading.Event | None = None,
        run: str = "",
    ) -> None:
        if not devices.named:
            raise DeviceError(
                "devices.addresses",
                "no phone is configured",
                "set devices.addresses to host:port of phones, devices.serials to serials that adb knows, or "
                "devices.emulators to start emulators",
            )
        self._server = server
        self._devices = devices
        self._clock = clock
        self._changed = threading.Condition()
        self._leases = Leases(devices.directory, server.adb)
        self._renewer = LeaseRenewer()
        self._holder = holder_name(run)
        self._stop = stop or threading.Event()
        self._recovering = threading.Semaphore(AT_ONCE)
        self._closed = False
        self.lock_fault: DeviceError | None = None
        """Why a phone's lock could not be tested; None again once one was taken."""
        self._phones = {serial: PooledPhone(serial) for serial in devices.serials}
        self._phones |= {address: PooledPhone(address, over_tcp=True) for address in devices.addresses}
        emulators = fleet(server, devices, self._leases, self._stop)
        self._phones |= {each.serial: PooledPhone(each.serial, emulator=each) for each in emulators}

    @property
    def count(self) -> int:
        return len(self._phones)

    @property
    def answering(self) -> int:
        """This process's phones that answered last time, leased or not. Phones held by others do not count."""
        with self._changed:
            return sum(phone.hold is not None and phone.health.connected for phone in self._phones.values())

    def discover(self) -> Sequence[str]:
        """Connect phones that are not connected, start emulators. Returns the serials of those that answer.

        A phone that does not answer is retried when it is leased. Raises DeviceError if there is no adb server, or if
        no phone answers and an emulator could not be started, as then all likely fail for the same reason.
        """
        self._server.version()
        with self._changed:
            now = self._clock()
            untried = [each for each in self._phones.values() if not each.health.connected and not each.leased]
            untried = [each for each in untried if self._take(each, now)]
            for phone in untried:
                phone.leased = True
        try:
            with ThreadPoolExecutor(AT_ONCE) as threads:
                list(threads.map(self._recover, untried))
        finally:
            with self._changed:
                for phone in untried:
                    phone.leased = False
                self._changed.notify_all()
        with self._changed:
            found = [phone.serial for phone in self._phones.values() if phone.health.connected]
        faults = [phone.fault for phone in untried if phone.emulator is not None and phone.fault is not None]
        if faults and not found and not self._stop.is_set():
            raise faults[0]
        return found

    def close(self) -> None:
        """End the emulators that were started here, and release every phone; a leased one when it is given back."""
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
                phone.release_locks()

    def snapshot_of(self, session: AdbSession) -> Callable[[], None] | None:
        """Restores a leased phone's snapshot when called; None if it has none."""
        emulator = self._phones[session.serial].emulator
        return emulator.load if emulator is not None and self._devices.emulators.snapshot else None

    def lease(self, timeout_s: float = 0.0) -> AdbSession | None:
        """A phone that answers, for this caller only until `release`; None if there is none within timeout_s.

        Recovering a phone may take longer than timeout_s, by that phone's own deadlines, and by those of others if
        AT_ONCE are being recovered.
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
            answers = False
            try:
                answers = (phone.health.connected and self._is_ours(phone)) or self._recover(phone)
            finally:
                if not answers:  # also after an error that is not of the phone: this machine has no thread left
                    self._put_back(phone, True, phone.fault)
            if answers:
                phone.counters["leases"] += 1
                if phone.emulator is not None:
                    phone.lent_start = phone.emulator.starts
                return self._session(phone)
            if time.monotonic() > deadline:
                return None

    def release(self, session: AdbSession, failure: DeviceError | None = None, *, well: bool = False) -> None:
        """Give a phone back. failure: what ended its last episode; a refused command does not count as a failure.

        well: an episode of this lease ended without a failure, so that earlier failures no longer count.
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
            phone.health, phone.server_failures = phone.health.succeeded(), 0
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
        """The healthy phone that was leased least often, else one whose quarantine is over; marked as leased."""
        with self._changed:
            now = self._clock()
            if self._closed:
                return None
            free = [phone for phone in self._phones.values() if not phone.leased and phone.health.due <= now]
            free.sort(key=lambda each: (not each.health.connected, each.health.failures, each.counters["leases"]))
            phone = next((each for each in free if self._could_take(each, now)), None)
            if phone is not None:
                phone.leased = True
            return phone

    def _could_take(self, phone: PooledPhone, now: float) -> bool:
        """As `_take`; also False if the lock cannot be tested for now, for instance without a free file descriptor: a
        worker that still has other phones must not end for that."""
        try:
            taken = self._take(phone, now)
        except DeviceError as error:
            self.lock_fault = error
            if phone.fault is None or phone.fault.what != error.what:
                log.warning("%s is not taken for now: %s", phone.serial, error.what)
            phone.fault, phone.held_until = error, now + HELD_S
            return False
        if taken:
            self.lock_fault = None
        return taken

    def _take(self, phone: PooledPhone, now: float) -> bool:
        """Whether this process has the phone; takes it if nobody has it. Raises DeviceError as `Leases.take` does."""
        if phone.hold is not None:
            return True
        if now < phone.held_until:
            return False
        found = self._leases.take(phone.serial)
        if isinstance(found, str):
            if found != phone.held_by:
                log.warning("%s is held by %s; it is taken once it is released", phone.serial, found)
            phone.held_by, phone.held_until = found, now + HELD_S
            return False
        phone.hold, phone.held_by = found, ""
        return True

    def _put_back(self, phone: PooledPhone, failed: bool, fault: DeviceError | None) -> None:
        """End this process's use of a phone. failed: whether that counts as the phone's failure; fault: which one."""
        with self._changed:
            now = self._clock()
            phone.leased = False
            if phone.hold is not None:  # one held by another process now has not failed
                phone.health = phone.health.failed(now) if failed else phone.health.succeeded()
                phone.server_failures = phone.server_failures + isinstance(fault, AdbServerGone) if failed else 0
                if phone.health.due > now:
                    phone.counters["quarantines"] += 1
                    log.warning("%s is quarantined for %.0f s", phone.serial, phone.health.due - now)
            closed = self._closed
            self._changed.notify_all()
        if closed:
            self._release_lease(phone)
            with self._changed:
                phone.release_locks()

    def _release_lease(self, phone: PooledPhone) -> None:
        """Call before its lock is released, and without our own lock, as it queries the phone."""
        if phone.lease is not None:
            self._renewer.remove(phone.lease)
            phone.lease.release()

    def _is_ours(self, phone: PooledPhone) -> bool:
        """Whether its lease is valid, as far as is known without a query to the phone."""
        try:
            self._guard(phone)
        except DeviceError:
            return False
        return True

    def _guard(self, phone: PooledPhone) -> None:
        if phone.lease is not None:
            phone.lease.check()

    def _hold_on_phone(self, phone: PooledPhone) -> None:
        """Take the lease on the phone, against other hosts. Raises DeviceHeld.

        Not for emulators of this process: nobody else reaches them, and loading a snapshot would remove the lease.
        """
        if phone.emulator is not None:
            return
        if phone.lease is None:
            session = AdbSession(self._server, phone.serial, self._devices)
            place = place_of(self._leases, phone.serial)
            phone.lease = PhoneLease(session, self._holder, place, self._devices.lease_ttl_s)
        phone.lease.hold()
        phone.lease_holder = ""
        self._renewer.add(phone.lease)

    def _leave(self, phone: PooledPhone, held: DeviceHeld) -> None:
        """Another host has the phone: it is held now, and has not failed."""
        with self._changed:
            if phone.lease is not None:
                self._renewer.remove(phone.lease)
            if held.holder != phone.lease_holder:
                log.warning(
                    "%s is held by %s, on another host or by another name; it is taken once it is released",
                    phone.serial,
                    held.holder,
                )
            phone.release_locks()
            phone.held_by = phone.lease_holder = held.holder
            phone.held_until = self._clock() + max(HELD_S, self._devices.lease_ttl_s / RENEWALS)
            phone.end_session()
            phone.health, phone.fault = Health(), None

    def _recover(self, phone: PooledPhone) -> bool:
        """Do the recovery steps, and check that the phone's shell answers; False once stopped.

        A first failure with a working connection counts as the app's. After that, or if stopping the app does not help,
        the phone is connected, or reconnected. An emulator is restarted if it has ended, or if it fails again right
        after a new connection.
        """
        with self._recovering:
            return not self._stop.is_set() and self._recovered(phone)

    def _recovered(self, phone: PooledPhone) -> bool:
        timeout_s = self._devices.operation_timeout_s
        try:
            self._server_answers()
            if self._stop.is_set():
                return False
            if not self._app_recovered(phone):
                if phone.emulator is not None:
                    self._bring(phone, phone.emulator)
                elif not phone.over_tcp:
                    self._take_aliases(phone)
                else:
                    # one that never answered, too: the server keeps an offline one, and calls it connected
                    never_answered = phone.fault is not None and not isinstance(phone.fault, AdbServerGone)
                    if phone.session is not None or never_answered:
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
        phone.health, phone.fault = phone.health.recovered(), None
        return True

    def _bring(self, phone: PooledPhone, emulator: Emulator) -> None:
        """Start an emulator that has ended, or one that fails again anew.

        One that is locked is left as it is, so that a person may unlock it. If it has been lent since its start, an
        episode may have locked it, and another start undoes that.
        """
        again = phone.health.failures - phone.server_failures > 1
        if again and isinstance(phone.fault, DeviceLocked):
            emulator.bring(anew=False)
            again = phone.lent_start == emulator.starts and self._is_locked(phone)
        emulator.bring(anew=again)

    def _is_locked(self, phone: PooledPhone) -> bool:
        try:
            self._session(phone).require_unlocked()
        except DeviceLocked:
            return True
        return False

    def _app_recovered(self, phone: PooledPhone) -> bool:
        fault, again = phone.fault, phone.health.failures > 1
        if phone.session is None or fault is None or again or isinstance(fault, DeviceGone | AdbServerGone):
            return False
        if not phone.counters["leases"]:  # no episode has been there: nobody's app is stopped
            return False
        return recover_app(phone.session)

    def _server_answers(self) -> None:
        """Start the adb server if none runs: without it no phone would ever recover.

        Raises AdbServerGone if it does not answer, which is not the phone's failure.
        """
        try:
            self._server.start()
        except AdbServerGone:
            raise
        except DeviceError as error:
            raise AdbServerGone(error.where, error.what, error.hint) from error
        except OSError as error:
            raise AdbServerGone(
                "adb.port",
                f"no adb server can be started: {error.strerror or error}",
                "look at this machine: room on its disk, and how many files this process has open",
            ) from error

    def _take_aliases(self, phone: PooledPhone) -> None:
        """Lock it under its other name as well: for a phone on USB, its serial or its USB port.

        Raises DeviceGone if another process has it under that name. That process may wait for our name in turn: of the
        two, the one with the larger name releases the phone, and checks it again like any held one. A name that it has
        no longer is released: of a port into which another phone is plugged now.
        """
        names = self._server.aliases(phone.serial)
        with self._changed:
            for name in phone.aliases.keys() - names if names else ():
                phone.aliases.pop(name).release()
        for name in names:
            if name in phone.aliases:
                continue
            found = self._leases.take(name)
            if isinstance(found, str):
                if phone.serial > name:
                    self._release_lease(phone)
                    with self._changed:
                        phone.release_locks()
                        phone.held_by, phone.held_until = found, self._clock() + HELD_S
                        phone.end_session()
                        phone.health = Health()  # else it would be lent without a lease once it is free
                raise DeviceGone(phone.serial, f"{found} has it, as {name}", "list each phone once, in one process")
            phone.aliases[name] = found

    def _session(self, phone: PooledPhone) -> AdbSession:
        if phone.session is None:
            phone.session = AdbSession(self._server, phone.serial, self._devices, partial(self._guard, phone))
        return phone.session
