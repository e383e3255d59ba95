"""Errors of a phone, classified by what helps: DeviceGone a new connection, DeviceTimeout a longer wait or a new
connection, DeviceGarbage a retry, DeviceUnready a restart, DeviceRefused only another command. For the others, a person
follows the hint.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distrl.device.names import may_be_on_usb
from distrl.errors import DeviceError

_HINT = "see `adb devices` on this adb server; the pool reconnects the phone, and quarantines it while that fails"


class AdbServerGone(DeviceError):  # noqa: N818
    """No adb server answers at the configured address."""


class DeviceGone(DeviceError):  # noqa: N818
    """There is no connection to the phone, or it broke during an operation."""

    def __init__(self, where: str, what: str, hint: str = _HINT) -> None:
        super().__init__(where, what, hint)


class DeviceUnauthorized(DeviceGone):
    """The phone is connected and does not trust the adb server's key."""


class DeviceOffline(DeviceGone):
    """The adb server sees the phone, but its adbd does not answer."""


class DeviceAmbiguous(DeviceGone):
    """Several phones have this serial, so the adb server cannot choose one by it."""


class DeviceLocked(DeviceGone):
    """The phone answers, and waits for its owner's PIN, pattern, password or finger."""

    def __init__(self, where: str) -> None:
        super().__init__(
            where,
            "it is locked, and only a person can unlock it",
            "unlock it, and set its screen lock to none or a swipe: it locks itself again when its screen goes off",
        )


class DeviceTimeout(DeviceError):  # noqa: N818
    """The phone, or the adb server, did not finish within the deadline."""

    def __init__(self, where: str, what: str, hint: str = _HINT) -> None:
        super().__init__(where, what, hint)


def too_slow(setting: str) -> str:
    """The hint for a deadline that passed. setting: where it comes from; empty if no setting makes it longer."""
    if setting:
        return f"raise {setting} if it is slow"
    return "look at the load of the machine of the adb server, and at `adb devices` there"


class DeviceGarbage(DeviceError):  # noqa: N818
    """The phone's answer is invalid: a truncated screenshot, a broken packet."""

    def __init__(self, where: str, what: str, hint: str = _HINT) -> None:
        super().__init__(where, what, hint)


class DeviceBlack(DeviceGarbage):
    """A complete screenshot that is all black: the screen is off, or the window forbids screenshots.

    unexplained: the phone did not say in time which of them it is. asleep: the screen is off.
    """

    def __init__(self, where: str, what: str, hint: str, *, unexplained: bool = False, asleep: bool = False) -> None:
        super().__init__(where, what, hint)
        self.unexplained, self.asleep = unexplained, asleep


class DeviceOversized(DeviceError):  # noqa: N818
    """The screen has more pixels than the policy reads (images.MAX_PIXELS)."""


_OTHER_COMMAND = "ask for something that the phone can do"


class DeviceRefused(DeviceError):  # noqa: N818
    """The phone works but refuses this: a command that exits with an error, text that it cannot type."""

    def __init__(self, where: str, what: str, hint: str = _OTHER_COMMAND) -> None:
        super().__init__(where, what, hint)


class DeviceForbids(DeviceRefused):
    """The phone does not grant this to adb, whatever is asked for: a setting of the phone helps."""


class ActionRefused(DeviceRefused):
    """The phone works but cannot do this action: text that it cannot type, a point off its screen. Nothing was sent.

    For an action that a policy chose, it is the policy's mistake.
    """


@contextmanager
def must_succeed(kind: type[DeviceRefused] = DeviceRefused) -> Iterator[None]:
    """For commands that every working phone accepts: a refusal of this kind becomes a DeviceGarbage, which counts as
    the phone's failure."""
    try:
        yield
    except kind as error:
        hint = _HINT if error.hint == _OTHER_COMMAND else error.hint
        raise DeviceGarbage(error.where, error.what, hint) from error


class DeviceUnready(DeviceError):  # noqa: N818
    """An emulator cannot be started, or its snapshot cannot be restored."""


class DeviceHeld(DeviceError):  # noqa: N818
    """Another host has the phone. renewed: whether its lease was seen to be renewed."""

    def __init__(self, where: str, holder: str, *, renewed: bool = False) -> None:
        super().__init__(
            where,
            f"it is held by {holder}, by the lease on the phone",
            "stop the process that drives it there, or remove the phone from the configuration here; the lease of a "
            "dead process expires by itself",
        )
        self.holder = holder
        self.renewed = renewed


class DeviceForeignApp(DeviceError):  # noqa: N818
    """An app that devices.allowed_packages does not list stays in front, even after it was stopped."""


_UNSEEN = (
    "see `{adb} devices -l`; an adb server that DistRL starts looks for phones on USB with adb.usb=true alone; "
    "one of another program that has them is used with adb.port set to its port, mostly 5037"
)
_REFUSALS: tuple[tuple[tuple[str, ...], type[DeviceGone], str], ...] = (
    (
        ("unauthorized", "still authorizing", "failed to authenticate"), DeviceUnauthorized,
        "accept the dialog on the phone's screen and have it remember this computer; or copy ~/.android/adbkey from a "
        "computer that it trusts and restart the adb server",
    ),
    (
        ("more than one device",), DeviceAmbiguous,
        "list each in devices.serials by its USB port instead, the usb:… that `{adb} devices -l` shows; on a "
        "network by host:port in devices.addresses",
    ),
    (
        ("offline", "still connecting"), DeviceOffline,
        "`{adb} reconnect offline`, or unplug it and plug it in again; a phone in devices.addresses is "
        "reconnected by the pool",
    ),
    (
        ("no permissions", "insufficient permissions"), DeviceGone,
        "allow this user to open the phone's USB port (udev rules), then plug it in again",
    ),
)  # fmt: skip
"""Texts of the adb server (transport.cpp of AOSP's adb, 34.0), the error for each, and its hint."""


def refusal(who: str, words: str, adb: str) -> DeviceGone:
    """The error for the adb server's failure message `words`. adb: how a person calls that server, for the hint."""
    for signs, kind, hint in _REFUSALS:
        if any(sign in words for sign in signs):
            return kind(who, words, hint.format(adb=adb))
    if "not found" in words and may_be_on_usb(who):
        return DeviceGone(who, words, _UNSEEN.format(adb=adb))
    return DeviceGone(who, words)
