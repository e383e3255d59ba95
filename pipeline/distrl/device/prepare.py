"""Making the snapshot that every emulator of a virtual device begins its tasks from."""

from __future__ import annotations

import threading
from collections.abc import Callable

from distrl import config
from distrl.device.emulator import Emulator
from distrl.device.leases import Leases
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError

ANIMATIONS = ("window_animation_scale", "transition_animation_scale", "animator_duration_scale")
"""A screen that is animated has no two equal frames, for which a worker waits after each action."""


def prepare(
    server: AdbServer, devices: config.Devices, stop: threading.Event, say: Callable[[str], None] = lambda _: None
) -> None:
    """Boot devices.emulators.avd cold, turn animations off, go home, save devices.emulators.snapshot, end.

    The one emulator that does it runs at devices.emulators.first_port and may write to its virtual device, so no other
    one of that device may run meanwhile. say: told what takes long. Raises DeviceError, which names the setting.
    """
    settings = devices.emulators
    for name in ("avd", "snapshot"):
        if not getattr(settings, name):
            raise DeviceError(f"devices.emulators.{name}", "is not set", "name it; see docs/emulators.md")
    leases = Leases(devices.directory, server.adb)
    serial = f"emulator-{settings.first_port}"
    hold = leases.take(serial)
    if isinstance(hold, str):
        raise DeviceError(serial, f"is held by {hold}", "stop that worker first, or set devices.emulators.first_port")
    emulator = Emulator(server, devices, settings.first_port, leases, stop, writable=True)
    try:
        say(f"booting {settings.avd} as {serial}, cold, which takes minutes")
        emulator.bring()
        # A phone that has just booted is busy for a while: there is as much time here as for the snapshot itself.
        longer = dict.fromkeys(("operation_timeout_s", "settle_timeout_s"), settings.snapshot_timeout_s)
        session = AdbSession(server, serial, devices.model_copy(update=longer))
        for name in ANIMATIONS:
            session.output(["settings", "put", "global", name, "0"])
        session.key("HOME")
        session.settle()
        say(f"saving snapshot {settings.snapshot}")
        emulator.save()
    finally:
        emulator.close()
        hold.release()
