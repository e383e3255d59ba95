"""What the adb server calls a phone: its serial, its address on the network, its USB port, an emulator's port. Pure."""

from __future__ import annotations

USB = "usb:"
"""How the name of a phone begins that is named by its USB port, as in usb:1-2."""
EMULATOR = "emulator-"
"""How the name of an emulator of this machine begins; its console's port follows."""


def is_address(name: str) -> bool:
    """Whether it is a phone's HOST:PORT, which the server has to be connected to."""
    return ":" in name and not name.startswith(USB)


def may_be_on_usb(name: str) -> bool:
    """Whether it is a serial or a USB port."""
    return not is_address(name) and not name.startswith(EMULATOR)
