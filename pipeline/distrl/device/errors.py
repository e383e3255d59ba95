"""What can go wrong with a phone, by what helps: DeviceGone a new connection, DeviceTimeout patience or a new
connection, DeviceGarbage another try, DeviceUnready a restart, DeviceRefused nothing but another command. The others
say what a person does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distrl.errors import DeviceError

_HINT = "see `adb devices` on this adb server; the pool reconnects the phone and keeps away from it while that fails"


class AdbServerGone(DeviceError):  # noqa: N818
    """No adb server answers at the configured address."""


class DeviceGone(DeviceError):  # noqa: N818
    """There is no connection to the phone, or it broke while something was asked."""

    def __init__(self, where: str, what: str, hint: str = _HINT) -> None:
        super().__init__(where, what, hint)


class DeviceUnauthorized(DeviceGone):
    """The phone is there and does not trust the adb server's key."""


class DeviceOffline(DeviceGone):
    """The adb server sees the phone and gets no answer from its adbd."""


class DeviceAmbiguous(DeviceGone):
    """Several phones go by this serial, so that the adb server reaches none of them by it."""


class DeviceTimeout(DeviceError):  # noqa: N818
    """The phone, or the adb server, did not do it within the deadline."""

    def __init__(self, where: str, what: str, hint: str = "raise devices.operation_timeout_s if it is slow") -> None:
        super().__init__(where, what, hint)


class DeviceGarbage(DeviceError):  # noqa: N818
    """The phone answered with something that is not an answer: a truncated screenshot, a broken packet."""

    def __init__(self, where: str, what: str, hint: str = _HINT) -> None:
        super().__init__(where, what, hint)


class DeviceBlack(DeviceGarbage):
    """A whole screenshot that is black all over: a screen that is off, or a window that may not be pictured."""


class DeviceOversized(DeviceError):  # noqa: N818
    """The screen has more pixels than the policy reads (images.MAX_PIXELS)."""


class DeviceRefused(DeviceError):  # noqa: N818
    """The phone is well and will not do this: a command that exits with an error, text that it cannot type."""

    def __init__(self, where: str, what: str, hint: str = "ask for something that the phone can do") -> None:
        super().__init__(where, what, hint)


class ActionRefused(DeviceRefused):
    """The phone is well and cannot do this action: text that it cannot type, a place off its screen. Nothing was sent.

    Of an action that a policy chose, it is the policy's mistake.
    """


@contextmanager
def owed() -> Iterator[None]:
    """Around what every phone that is well does, whoever asks: a refusal is raised as DeviceGarbage, its failure."""
    try:
        yield
    except DeviceRefused as error:
        raise DeviceGarbage(error.where, error.what) from error


class DeviceUnready(DeviceError):  # noqa: N818
    """An emulator cannot be started, or not be put where a task begins."""


class DeviceHeld(DeviceError):  # noqa: N818
    """Another host has the phone. holder: who. renewed: whether that was seen to be alive."""

    def __init__(self, where: str, holder: str, *, renewed: bool = False) -> None:
        super().__init__(
            where,
            f"it is held by {holder}, by the lease on the phone",
            "stop what drives it there, or leave the phone out here; the lease of a dead holder ends by itself",
        )
        self.holder = holder
        self.renewed = renewed


class DeviceStray(DeviceError):  # noqa: N818
    """An app that devices.allowed_packages does not name stays in front, whatever was done about it."""


_REFUSALS: tuple[tuple[tuple[str, ...], type[DeviceGone], str], ...] = (
    (
        ("unauthorized", "still authorizing", "failed to authenticate"), DeviceUnauthorized,
        "accept the dialog on the phone's screen and have it remember this computer; or copy ~/.android/adbkey from a "
        "computer that it trusts and start the adb server anew",
    ),
    (
        ("more than one device",), DeviceAmbiguous,
        "name each in devices.serials by its place instead, the usb:… that `adb -P {port} devices -l` shows beside it; "
        "on a network by host:port in devices.addresses",
    ),
    (
        ("offline", "still connecting"), DeviceOffline,
        "`adb -P {port} reconnect offline`, or unplug it and plug it in again; a phone in devices.addresses is "
        "reconnected by the pool",
    ),
    (
        ("no permissions", "insufficient permissions"), DeviceGone,
        "give this user the right to open the phone's USB port (udev rules), then plug it in again",
    ),
)  # fmt: skip
"""What the adb server says (transport.cpp of AOSP's adb, 34.0), which error that is, and what a person does."""


def refusal(who: str, words: str, port: int) -> DeviceGone:
    """The error for the words with which the adb server at `port` refuses to reach a phone."""
    for signs, kind, hint in _REFUSALS:
        if any(sign in words for sign in signs):
            return kind(who, words, hint.format(port=port))
    return DeviceGone(who, words)
