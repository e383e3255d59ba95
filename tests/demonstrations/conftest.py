"""The adb server and the simulated phones of the device room, for what is done with a leased one."""

from device.conftest import adb, phone, start_phones, timeouts

__all__ = ["adb", "phone", "start_phones", "timeouts"]
