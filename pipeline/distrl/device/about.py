"""What a phone says of itself, for people who look after many: one look, one deadline, no lease.

Looking disturbs nobody: the adb server runs a look beside whatever a worker does on the same phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from distrl import config
from distrl.device.leases import Leases
from distrl.device.phone_lease import holder_on, place_of
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError

AT_ONCE = 16
ONLINE = "device"
"""What adb calls a phone that it can talk to."""
UNKNOWN = "not connected"


@dataclass(frozen=True, slots=True)
class About:
    """state: as adb has it, or UNKNOWN. holder: the process that has it, of this machine, or of another by the lease on
    the phone; "" if none.

    The rest is "" where the phone did not say; `fault` tells why, if it failed.
    """

    serial: str
    state: str
    size: str = ""
    android: str = ""
    model: str = ""
    focus: str = ""
    fault: str = ""
    holder: str = ""


def look(server: AdbServer, devices: config.Devices) -> Sequence[About]:
    """Every phone that the configuration names, and every other one that the adb server knows.

    Addresses that the server does not know yet are connected. Raises DeviceError where no adb server answers; a phone
    that does not answer is told as such.
    """
    known = server.devices()
    faults = _connected(server, devices, [address for address in devices.addresses if address not in known])
    known = server.devices()
    named = dict.fromkeys([*devices.named, *sorted(known)])
    leases = Leases(devices.directory, server.adb)

    def one(serial: str) -> About:
        found = _look(server, devices, serial, known.get(serial) or _state(server, serial), leases)
        holder = leases.holder(serial) or found.holder
        return replace(found, fault=found.fault or faults.get(serial, ""), holder=holder)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return list(threads.map(one, named))


def _connected(server: AdbServer, devices: config.Devices, addresses: Sequence[str]) -> Mapping[str, str]:
    """Connect the addresses, side by side; what went wrong with those that cannot be."""

    def connect(address: str) -> str:
        try:
            server.connect(address, devices.operation_timeout_s)
        except DeviceError as error:
            return error.what
        return ""

    with ThreadPoolExecutor(AT_ONCE) as threads:
        return dict(zip(addresses, threads.map(connect, addresses), strict=True))


def _state(server: AdbServer, name: str) -> str:
    """Of a phone that is named by its place (usb:1-2), by which the server lists none."""
    try:
        return server.state(name)
    except DeviceError:
        return UNKNOWN


def _look(server: AdbServer, devices: config.Devices, serial: str, state: str, leases: Leases) -> About:
    if state != ONLINE:
        return About(serial, state)
    session = AdbSession(server, serial, devices)
    try:
        width, height = session.size()
        release, model = _properties(session, ("ro.build.version.release", "ro.product.model"))
        holder = holder_on(session, _place(leases, serial))
        return About(serial, state, f"{width}x{height}", release, model, session.focus(), holder=holder)
    except DeviceError as error:
        return About(serial, state, fault=error.what)


def _place(leases: Leases, serial: str) -> str:
    """Without a directory of locks, no lease is one of this machine's."""
    try:
        return place_of(leases, serial)
    except DeviceError:
        return ""


def _properties(session: AdbSession, names: Iterable[str]) -> list[str]:
    return [session.shell(["getprop", name]).strip() for name in names]
