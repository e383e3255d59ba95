"""What can go wrong with a phone, by what helps: DeviceGone a new connection, DeviceTimeout patience or a new
connection, DeviceGarbage another try, DeviceUnready a restart, DeviceRefused nothing but another command."""

from __future__ import annotations

from distrl.errors import DeviceError

_MEND = "see `adb devices` on this adb server; the pool reconnects the phone and keeps away from it while that fails"


class DeviceGone(DeviceError):  # noqa: N818
    """There is no connection to the phone, or it broke while something was asked."""

    def __init__(self, where: str, what: str, mend: str = _MEND) -> None:
        super().__init__(where, what, mend)


class DeviceTimeout(DeviceError):  # noqa: N818
    """The phone, or the adb server, did not do it within the deadline."""

    def __init__(self, where: str, what: str, mend: str = "raise devices.operation_timeout_s if it is slow") -> None:
        super().__init__(where, what, mend)


class DeviceGarbage(DeviceError):  # noqa: N818
    """The phone answered with something that is not an answer: a truncated screenshot, a broken packet."""

    def __init__(self, where: str, what: str, mend: str = _MEND) -> None:
        super().__init__(where, what, mend)


class DeviceRefused(DeviceError):  # noqa: N818
    """The phone is well and will not do this: a command that exits with an error, text that it cannot type."""

    def __init__(self, where: str, what: str, mend: str = "ask for something that the phone can do") -> None:
        super().__init__(where, what, mend)


class DeviceUnready(DeviceError):  # noqa: N818
    """An emulator cannot be started, or not be put where a task begins."""
