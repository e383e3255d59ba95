"""Properties of the phones, for `distrl devices`: one query, one deadline, no lease.

A query does not disturb a worker on the same phone: the adb server runs both side by side. Another host's lease is
shown as run out once repeated queries have found it unchanged for its time to live (sightings.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from distrl import config
from distrl.device.leases import Leases
from distrl.device.phone_lease import lease_on, place_of, seconds_since_boot
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.device.sightings import unchanged_s
from distrl.errors import DeviceError

AT_ONCE = 16
ONLINE = "device"
"""adb's state of a phone that is connected."""
UNKNOWN = "not connected"


@dataclass(frozen=True, slots=True)
class About:
    """What is known of a phone. Unknown fields are empty."""

    serial: str
    state: str
    """As adb reports it, or UNKNOWN."""
    size: str = ""
    android: str = ""
    model: str = ""
    focus: str = ""
    fault: str = ""
    """Why the query failed."""
    holder: str = ""
    """The process that has it, by a lock on this machine, or by the lease on the phone."""
    lease_over: bool = False
    """The holder's lease has run out: it renews it no longer, and the next worker takes the phone."""


def look(
    server: AdbServer, devices: config.DeviceSettings, clock: Callable[[], float] = seconds_since_boot
) -> Sequence[About]:
    """Every phone that the configuration names, and every other one that the adb server knows.

    Addresses that the server does not know yet are connected. Raises DeviceError if no adb server answers; a phone
    that does not answer has a `fault`. clock: as of PhoneLease.
    """
    known = server.devices()
    faults = _connected(server, devices, [address for address in devices.addresses if address not in known])
    known = server.devices()
    named = dict.fromkeys([*devices.named, *sorted(known)])
    leases = Leases(devices.directory, server.adb)

    def one(serial: str) -> About:
        found = _look(server, devices, serial, known.get(serial) or _state(server, serial), leases, clock)
        found = replace(found, fault=found.fault or faults.get(serial, ""))
        holder = leases.holder(serial)
        return replace(found, holder=holder, lease_over=False) if holder else found

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(one, named))


def _connected(server: AdbServer, devices: config.DeviceSettings, addresses: Sequence[str]) -> Mapping[str, str]:
    """Connect the addresses in parallel. Returns address -> error message, "" if connected."""

    def connect(address: str) -> str:
        try:
            server.connect(address, devices.operation_timeout_s)
        except DeviceError as error:
            return error.what
        return ""

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(addresses, threads.map(connect, addresses), strict=True))


def _state(server: AdbServer, name: str) -> str:
    """The state of a phone that is configured by its USB port (usb:1-2), under which the server does not list it."""
    try:
        return server.state(name)
    except DeviceError:
        return UNKNOWN


def _look(
    server: AdbServer,
    devices: config.DeviceSettings,
    serial: str,
    state: str,
    leases: Leases,
    clock: Callable[[], float],
) -> About:
    if state != ONLINE:
        return About(serial, state)
    found, session = About(serial, state), AdbSession(server, serial, devices)
    try:
        width, height = session.size()
        release, model = _properties(session, ("ro.build.version.release", "ro.product.model"))
        found = About(serial, state, f"{width}x{height}", release, model, session.focus())
        if (leased := lease_on(session, _place(leases, serial))) is not None:
            name, lease = leased
            over = unchanged_s(leases, serial, name, clock()) >= lease.ttl_s
            found = replace(found, holder=lease.holder, lease_over=over)
        session.require_unlocked()
    except DeviceError as error:
        return replace(found, fault=error.what)
    return found


def _place(leases: Leases, serial: str) -> str:
    """Empty if there is no directory of locks: then no lease is from this machine."""
    try:
        return place_of(leases, serial)
    except DeviceError:
        return ""


def _properties(session: AdbSession, names: Iterable[str]) -> list[str]:
    return [session.shell(["getprop", name]).strip() for name in names]
