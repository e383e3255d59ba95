"""Other people's clients on the simulated phone: what they see is what they would see of Android."""

from __future__ import annotations

import subprocess

import adbutils
import pytest
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.phone.serve import SimulatedPhone


@pytest.fixture
def adb_program(session: AdbSession) -> list[str]:
    return [adbutils.adb_path(), "-P", str(session.server.adb.port), "-s", session.serial]


def test_the_adb_program_sees_output_errors_and_exit_codes(adb_program: list[str], phone: SimulatedPhone) -> None:
    def adb(*words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run([*adb_program, *words], capture_output=True, timeout=10, check=False)

    assert adb("get-state").stdout == b"device\n"
    assert adb("shell", "echo", "hi").stdout == b"hi\n"
    failed = adb("shell", "reboot-now")
    assert (failed.returncode, failed.stderr) == (127, b"/system/bin/sh: reboot-now: inaccessible or not found\n")
    assert adb("exec-out", "screencap", "-p").stdout == phone.machine.png()
    assert adb("shell", "input keyevent 3").returncode == 0


def test_adbutils_discovers_and_drives_it(adb: AdbServer, session: AdbSession, phone: SimulatedPhone) -> None:
    client = adbutils.AdbClient(adb.adb.host, adb.adb.port)
    device = next(device for device in client.device_list() if device.serial == phone.address)
    assert tuple(device.window_size()) == phone.machine.size
    assert device.prop.model == "Simulated_Phone"
    assert device.shell2("nope", v2=True).returncode == 127
    assert device.screenshot().size == phone.machine.size
