"""Which host has a phone: a lease stored on the phone itself, with its holder and its time to live.

The locks of leases.py exclude the processes of one machine; this lease excludes other machines, and processes that
reach the phone by another name. It is one entry in DIRECTORY on the phone: its name has the holder and a count that
each renewal raises. Renaming the last known name is an atomic compare-and-swap in any Android shell; `mkdir` makes the
first entry atomically.

No clock of the phone or of another host is used: another process watches the entry and takes the phone over once the
entry has not changed for the holder's time to live. That holds through reboots and clock jumps. Loading a snapshot
brings an old entry back: an older one of ours is renewed, one of a process that our lock excludes is taken over, any
other one must again stay unchanged for its time to live.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import secrets
import shlex
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from urllib.parse import quote_plus, unquote_plus

from tenacity import wait_fixed

from distrl.birth import boot_id
from distrl.config.phones import LONGEST_LEASE_S, OPERATIONS_PER_LEASE
from distrl.device.adb_protocol import Deadline
from distrl.device.errors import DeviceGone, DeviceHeld
from distrl.device.leases import UNKNOWN, Leases
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.retry import retry
from distrl.supervised import SupervisedThread

log = logging.getLogger(__name__)

DIRECTORY: Final = "/data/local/tmp/distrl-lease"
LONGEST_HOLDER: Final = 70
"""Characters. A name on the phone has 255 bytes, and a character may take three of them."""
RENEWALS: Final = 4
"""Renewals per time to live."""
AGAIN: Final = 0.1
"""Share of the pause between two renewals after which a failed one is tried again: after a whole pause, one answer that
did not come in time would have cost the lease, and the episode."""
USABLE: Final = 1 - 1 / OPERATIONS_PER_LEASE
"""Share of the time to live after which a lease that was not renewed is no longer used: a running operation must end
before another host may take the phone."""
TRIES: Final = 3
"""Attempts to take a phone while others take or release it."""
RELEASE_S: Final = 2.0
"""Deadline of a release: a phone that does not answer must not delay the end of its worker."""
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux alone has the former."""


@dataclass(frozen=True, slots=True)
class LeaseName:
    """The parts of a lease's name."""

    holder: str
    place: str
    """Identifies the lock file that its holder has too (see place_of)."""
    nonce: str
    """Identifies one holding."""
    ttl_s: float
    count: int = 0
    """Renewals so far."""

    @property
    def name(self) -> str:
        holder = quote_plus(self.holder.encode("ascii", "replace")[:LONGEST_HOLDER]).replace("~", "%7E")
        return f"{holder},{self.place},{self.nonce},{self.ttl_s:g},{self.count}"


def parsed(name: str, ttl_s: float) -> LeaseName:
    """The parts of an entry's name. It is untrusted: an invalid name counts as another process's lease of `ttl_s`, and
    no lease lasts longer than LONGEST_LEASE_S."""
    try:
        holder, place, nonce, ttl, count = name.split(",")
        lasts = float(ttl)
        if not 0 < lasts < math.inf:
            raise ValueError(name)
        return LeaseName(unquote_plus(holder), place, nonce, min(lasts, LONGEST_LEASE_S), int(count))
    except ValueError:
        return LeaseName(UNKNOWN, "", name, ttl_s)


def place_of(leases: Leases, serial: str) -> str:
    """Identifies the lock of this phone. If we have the lock, a lease with the same place was left by a killed
    process.

    It depends on the running kernel, since locks do: a folder may have been copied with a home directory, or lie on a
    file system of which each machine locks its own view. It also depends on the folder itself: two containers may each
    have a copy of it. So a lease from before a restart is waited for like another host's.
    """
    return hashlib.sha256(f"{boot_id()}/{leases.domain()}/{leases.lock(serial).name}".encode()).hexdigest()[:16]


def seconds_since_boot() -> float:
    """Seconds since the boot, including those in which the machine was suspended: other hosts count these, too."""
    return time.clock_gettime(_CLOCK)


def holder_name(run: str = "") -> str:
    """This process's name for other hosts."""
    return f"process {os.getpid()} on {socket.gethostname()}" + (f" (run {run})" if run else "")


class PhoneLease:
    """This process's lease of one phone, held or wanted. Thread-safe.

    session: used by this lease only, since a session belongs to one thread. place: the caller holds its lock.
    clock: monotonic seconds.
    """

    def __init__(
        self,
        session: AdbSession,
        holder: str,
        place: str,
        ttl_s: float,
        clock: Callable[[], float] = seconds_since_boot,
    ) -> None:
        self.ttl_s = ttl_s
        self._session = session
        self._next = LeaseName(holder, place, secrets.token_hex(4), ttl_s)
        self._clock = clock
        self._lock = threading.Lock()
        self._wanted = False
        self._name = ""
        self._renewed = -math.inf
        self._lost: DeviceHeld | None = None
        self._seen: tuple[str, float] = ("-", -math.inf)
        self._renewing = False
        self._warned = False

    def hold(self) -> None:
        """Take the lease, or renew it. Raises DeviceHeld, with the holder, if another has it."""
        with self._lock:
            self._wanted = True
            self._hold()

    def renew(self) -> None:
        """`hold`, unless it was lost or released meanwhile."""
        with self._lock:
            if self._wanted:
                self._hold()

    def release(self) -> None:
        """Remove it from the phone, if it is there and the phone answers within RELEASE_S. Raises nothing."""
        deadline = Deadline(RELEASE_S)
        self._wanted = False
        if not self._lock.acquire(timeout=RELEASE_S):  # a renewal waits for the phone, which does not answer
            return
        try:
            name, self._name, self._wanted = self._name, "", False
            if name and self._is_fresh():  # else the phone likely does not answer
                # the second: of a renewal whose answer was lost
                names = dict.fromkeys((name, self._next.name))
                removed = " || ".join(f"rm {DIRECTORY}/{each} 2>/dev/null" for each in names)
                line = f"{removed} && rmdir {DIRECTORY} 2>/dev/null"
                with suppress(DeviceError):
                    self._session.run(line, deadline)
        finally:
            self._lock.release()

    def check(self) -> None:
        """Without a query to the phone. Raises DeviceHeld if another has taken it, DeviceGone if it was not renewed
        for so long that another may."""
        if (lost := self._lost) is not None:
            raise lost
        if self._name and not self._is_fresh():
            raise DeviceGone(
                self._session.serial,
                f"its lease could not be renewed for {self.ttl_s * USABLE:.0f} s, and another host may take it",
                "check the connection to the phone; devices.lease_ttl_s is the lease's time to live",
            )

    @property
    def usable(self) -> bool:
        """Whether this process has it, as far as is known without a query to the phone."""
        return bool(self._name) and self._is_fresh()

    def _is_fresh(self) -> bool:
        return self._clock() - self._renewed < self.ttl_s * USABLE

    def _hold(self) -> None:
        # A name of its own for each attempt: one whose answer was lost may have been carried out long ago, and then the
        # entry is as old as that. The next one renames it.
        mine = self._next = replace(self._next, count=self._next.count + 1)
        asked = self._clock()
        if self._name and self._session.run(f"mv {DIRECTORY}/{self._name} {DIRECTORY}/{mine.name}").code == 0:
            self._have(mine, asked)
            return
        found = self._found()
        for tries_left in reversed(range(TRIES + 1)):
            if found and min(found) == mine.name:
                self._have(mine, asked)
                return
            if not tries_left:
                break
            if found and mine.name in found:  # two were made at once, and the smaller name wins
                self._session.run(f"rm {DIRECTORY}/{mine.name}")
                found.remove(mine.name)
            way, empty = self._way(found), found == []
            asked = self._clock()
            code = self._session.run(f"{way} {DIRECTORY}/{mine.name}").code
            found = self._found()
            if empty and not found and code:  # the directory can be made, the entry cannot: the phone is full
                found = None
                break
        if found is not None:
            raise self._refused(min(found, default=""))
        if not self._warned:
            log.warning(
                "%s has no lease: %s cannot be created there, so other hosts cannot see that it is in use",
                self._session.serial,
                DIRECTORY,
            )
        self._name, self._lost, self._warned = "", None, True

    def _way(self, found: list[str] | None) -> str:
        """The command that takes a phone with these entries, up to the new entry's path. Raises DeviceHeld."""
        if found is None:
            return f"mkdir {DIRECTORY} && : >"
        name = min(found, default="")  # no entry: it is being made or removed
        if not self._is_over(name):
            raise self._refused(name)
        taken = shlex.quote(f"{DIRECTORY}/{name}")  # whoever has a shell there may have made it
        return f"mv {taken}" if name else f"rmdir {DIRECTORY} && mkdir {DIRECTORY} && : >"

    def _is_over(self, name: str) -> bool:
        entry = parsed(name, self.ttl_s)
        if entry.nonce == self._next.nonce or entry.place == self._next.place:
            return True
        now = self._clock()
        before, since = self._seen
        if name == before:
            return now - since >= entry.ttl_s
        self._renewing = parsed(before, self.ttl_s).nonce == entry.nonce
        self._seen = (name, now)
        return False

    def _refused(self, name: str) -> DeviceHeld:
        self._name, self._wanted = "", False
        self._lost = DeviceHeld(self._session.serial, parsed(name, self.ttl_s).holder, renewed=self._renewing)
        return self._lost

    def _have(self, mine: LeaseName, asked: float) -> None:
        self._name, self._renewed, self._lost = mine.name, asked, None

    def _found(self) -> list[str] | None:
        return entries(self._session)


def entries(session: AdbSession) -> list[str] | None:
    """The names of the leases on a phone, usually at most one; None if there is no directory."""
    finished = session.run(f"ls {DIRECTORY}")
    names = finished.stdout.decode("utf-8", "replace").split()
    return names if finished.code == 0 and not any("/" in name for name in names) else None


def lease_on(session: AdbSession, place: str) -> tuple[str, LeaseName] | None:
    """The name of the lease on a phone, and its parts; None if there is none, or if it belongs to a process of this
    machine (see leases.py)."""
    if not (names := entries(session)):
        return None
    entry = parsed(min(names), LONGEST_LEASE_S)
    return None if entry.place == place else (min(names), entry)


class LeaseRenewer:
    """Renews leases in the background, each RENEWALS times per time to live in a thread of its own: a phone that does
    not answer delays no other's renewal, and is asked again soon after its operation has timed out.

    A thread ends when its lease is removed or garbage-collected.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: weakref.WeakKeyDictionary[PhoneLease, threading.Event] = weakref.WeakKeyDictionary()

    def add(self, lease: PhoneLease) -> None:
        """Renew it from now on. Does nothing where that is so already."""
        with self._lock:
            if lease not in self._ends:
                end = threading.Event()
                renew = partial(_renew_until, end, weakref.ref(lease), lease.ttl_s / RENEWALS)
                SupervisedThread(renew, "phone lease")
                self._ends[lease] = end

    def remove(self, lease: PhoneLease) -> None:
        """Stop renewing it; a renewal that has begun may still finish."""
        with self._lock:
            end = self._ends.pop(lease, None)
        if end is not None:
            end.set()


def _renew_until(end: threading.Event, lease_of: weakref.ref[PhoneLease], pause_s: float) -> None:
    wait_s = pause_s
    while not end.wait(wait_s) and (lease := lease_of()) is not None:
        done = _renew(lease)
        wait_s = pause_s if done or not lease.usable else AGAIN * pause_s
        del lease  # else it would not be garbage-collected in the pause


def _renew(lease: PhoneLease) -> bool:
    """Whether it was renewed, or need not be any more."""
    try:
        lease.renew()
    except DeviceHeld as error:
        log.warning("%s: %s", error.where, error.what)
    except Exception as error:
        log.debug("a lease was not renewed: %s", error)
        return False
    return True


@contextmanager
def leased_on_phone(lease: PhoneLease, renewer: LeaseRenewer, stop: threading.Event) -> Iterator[None]:
    """This process has the phone's lease within the block. Waits until another's lease expires; raises DeviceHeld as
    soon as that one is renewed, StoppedError once `stop` is set.
    """
    began, waits = time.monotonic(), False

    def failed(held: DeviceHeld, _: float) -> None:
        nonlocal waits
        if held.renewed or time.monotonic() - began > LONGEST_LEASE_S:
            raise held
        if not waits:
            log.warning("%s: %s; waiting until that expires", held.where, held.what)
            waits = True

    retry(lease.hold, stop, DeviceHeld, wait_fixed(min(1.0, lease.ttl_s / RENEWALS)), failed)
    renewer.add(lease)
    try:
        yield
    finally:
        renewer.remove(lease)
        lease.release()
