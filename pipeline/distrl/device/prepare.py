"""Makes the snapshot from which every emulator of a virtual device starts its tasks."""

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
"""Turned off: after each action a worker waits for two equal frames, which an animated screen does not show."""


def prepare(
    server: AdbServer,
    devices: config.DeviceSettings,
    stop: threading.Event,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Boot devices.emulators.avd cold, turn animations off, go home, save devices.emulators.snapshot, end.

    The emulator runs at devices.emulators.first_port and may write to its virtual device, so no other one of that
    device may run meanwhile. report: receives progress messages. Raises DeviceError, which names the setting.
    """
    settings = devices.emulators
    for name in ("avd", "snapshot"):
        if not getattr(settings, name):
            raise DeviceError(f"devices.emulators.{name}", "is not set", "set it; see docs/emulators.md")
    leases = Leases(devices.directory, server.adb)
    serial = f"emulator-{settings.first_port}"
    hold = leases.take(serial)
    if isinstance(hold, str):
        raise DeviceError(serial, f"is held by {hold}", "stop that worker first, or set devices.emulators.first_port")
    emulator = Emulator(server, devices, settings.first_port, leases, stop, writable=True)
    try:
        report(f"cold boot of {settings.avd} as {serial}, which takes minutes")
        emulator.bring()
        # A phone is slow right after its boot: allow as much time as for the snapshot itself.
        longer = dict.fromkeys(("operation_timeout_s", "settle_timeout_s"), settings.snapshot_timeout_s)
        session = AdbSession(server, serial, devices.model_copy(update=longer))
        for name in ANIMATIONS:
            session.output(["settings", "put", "global", name, "0"])
        session.key("HOME")
        session.settle()
        session.require_unlocked()  # else every emulator would begin with its lock screen
        report(f"saving snapshot {settings.snapshot}")
        emulator.save()
    finally:
        emulator.close()
        hold.release()
