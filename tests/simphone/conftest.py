"""The adb server of the device room, for phones that are reached as any adb user reaches them."""

from device.conftest import adb

__all__ = ["adb"]
