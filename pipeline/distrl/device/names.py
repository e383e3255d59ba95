"""What the adb server calls a phone: its serial, its address on the network, its USB port, an emulator's port. Pure."""

from __future__ import annotations

import re

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
"""Hosts of an adb server on this machine."""
USB = "usb:"
"""How the name of a phone begins that is named by its USB port, as in usb:1-2."""
EMULATOR = "emulator-"
"""How the name of an emulator of this machine begins; its console's port follows."""
_EMULATOR = re.compile(rf"{EMULATOR}(?P<console>[0-9]{{1,5}})")


def adb_line(host: str, port: int) -> str:
    """How a person calls the adb server at this address; without -H adb would start one of its own on this machine."""
    return f"adb -P {port}" if host in LOOPBACK else f"adb -H {host} -P {port}"


def is_address(name: str) -> bool:
    """Whether it is a phone's HOST:PORT, which the server has to be connected to."""
    return ":" in name and not name.startswith(USB)


def console_port(name: str) -> int | None:
    """Of an emulator of this machine, which is even; adb's is the next. None for another phone."""
    found = _EMULATOR.fullmatch(name)
    return int(found["console"]) if found else None


def may_be_on_usb(name: str) -> bool:
    """Whether it is a serial or a USB port."""
    return not is_address(name) and not name.startswith(EMULATOR)
