"""Other people's clients on the simulated phone: what they see is what they would see of Android."""

from __future__ import annotations

import filecmp
import os
import random
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import adbutils
import pytest
from adbutils.errors import AdbError
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from PIL import Image
from simphone.faults import Fault
from simphone.files import MOST_BYTES
from simphone.serve import SimulatedPhone
from waiting import WITHIN_S

from .conftest import RunAdb

MB = 1024 * 1024


@pytest.fixture
def device(adb: AdbServer, session: AdbSession) -> adbutils.AdbDevice:
    return adbutils.AdbClient(adb.adb.host, adb.adb.port).device(session.serial)


def screen(phone: SimulatedPhone) -> bytes:
    return phone.machine.picture().convert("RGB").tobytes()


def test_the_adb_program_sees_output_errors_and_exit_codes(run_adb: RunAdb, phone: SimulatedPhone) -> None:
    assert run_adb("get-state").stdout == b"device\n"
    assert run_adb("shell", "echo", "hi").stdout == b"hi\n"
    failed = run_adb("shell", "reboot-now")
    assert (failed.returncode, failed.stderr) == (127, b"/system/bin/sh: reboot-now: inaccessible or not found\n")
    assert run_adb("exec-out", "screencap", "-p").stdout == phone.machine.png()
    assert run_adb("shell", "input keyevent 3").returncode == 0
    assert run_adb("shell", "-x", "echo a; nope").stdout == b"a\n" + failed.stderr.replace(b"reboot-now", b"nope")


def test_files_of_every_size_come_back_as_they_went(run_adb: RunAdb, tmp_path: Path) -> None:
    for size in (0, 1, 65536, 65537, 9 * MB):
        there, back = tmp_path / str(size), tmp_path / "back"
        there.write_bytes(os.urandom(size))
        pushed = run_adb("push", there, "/sdcard/")
        assert pushed.returncode == 0, pushed.stderr
        assert run_adb("pull", f"/storage/emulated/0/{size}", back).returncode == 0
        assert filecmp.cmp(there, back, shallow=False)
    assert run_adb("shell", f"rm /sdcard/{9 * MB} && ls /sdcard").stdout.startswith(b"0\n1\n65536\n65537\nDCIM\n")


def test_a_tree_of_directories_comes_back_as_it_went(run_adb: RunAdb, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("a", "b/c d", "b/e/f"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    assert run_adb("push", tree, "/data/local/tmp/").returncode == 0
    assert b"3 skipped" in run_adb("push", "--sync", tree, "/data/local/tmp/").stderr
    assert run_adb("pull", "/data/local/tmp/tree", tmp_path / "back").returncode == 0
    same = filecmp.dircmp(tree, tmp_path / "back")
    assert (same.left_only, same.right_only, same.diff_files) == ([], [], [])
    assert (tmp_path / "back" / "b" / "e" / "f").read_text() == "b/e/f"
    assert b"tree" in run_adb("ls", "/data/local/tmp").stdout


@pytest.mark.parametrize(
    ("to", "why"),
    [("/system/x", b"Permission denied"), ("/sdcard/../etc/x", b"Permission denied"), ("/sdcard/f/g", b"Not a direc")],
)
def test_a_push_that_fails_says_why(run_adb: RunAdb, tmp_path: Path, to: str, why: bytes) -> None:
    (tmp_path / "x").write_text("x")
    run_adb("push", tmp_path / "x", "/sdcard/f")
    failed = run_adb("push", tmp_path / "x", to)
    assert failed.returncode == 1
    assert why in failed.stderr


def test_a_full_phone_refuses_a_push_and_serves_the_next(run_adb: RunAdb, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(MOST_BYTES + 1))
    failed = run_adb("push", tmp_path / "big", "/sdcard/big")
    assert failed.returncode == 1
    assert b"No space left on device" in failed.stderr
    (tmp_path / "big").write_bytes(bytes(4 * MB))
    assert run_adb("push", tmp_path / "big", "/sdcard/big").returncode == 0


def test_a_screenshot_on_the_phone_is_pulled_as_uiautomator_users_do(
    run_adb: RunAdb, phone: SimulatedPhone, tmp_path: Path
) -> None:
    dumped = run_adb("shell", "screencap -p /sdcard/s.png && uiautomator dump")
    assert dumped.stdout == b"UI hierchary dumped to: /sdcard/window_dump.xml\n"
    run_adb("pull", "/sdcard/s.png", tmp_path)
    run_adb("pull", "/sdcard/window_dump.xml", tmp_path)
    assert (tmp_path / "s.png").read_bytes() == phone.machine.png()
    assert (tmp_path / "window_dump.xml").read_text().endswith("</hierarchy>")


def test_the_log_is_dumped_cleared_and_followed(run_adb: RunAdb, adb_program: list[str]) -> None:
    run_adb("shell", "monkey -p com.sim.clock -c android.intent.category.LAUNCHER 1")
    assert b"I ActivityTaskManager: START u0 {cmp=com.sim.clock/.Face}" in run_adb("logcat", "-d").stdout
    run_adb("logcat", "-c")
    with subprocess.Popen([*adb_program, "logcat", "-v", "raw", "*:I"], stdout=subprocess.PIPE) as following:
        try:
            assert following.stdout is not None
            assert following.stdout.readline() == b"--------- beginning of main\n"
            run_adb("shell", "input tap 5 6")
            assert following.stdout.readline() == b"tap at (5, 6)\n"
        finally:
            following.kill()
    assert run_adb("shell", "echo", "alive").stdout == b"alive\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["root"], 0, b"adbd cannot run as root in production builds"),
        (["remount"], 0, b"Not running as root"),
        (["jdwp"], 1, b"closed"),
        (["tcpip", "5555"], 1, b"closed"),
        (["reboot"], 1, b"closed"),
        (["uninstall", "com.sim.clock"], 1, b"DELETE_FAILED_USER_RESTRICTED"),
    ],
)
def test_what_is_not_offered_is_said_at_once(run_adb: RunAdb, words: list[str], code: int, said: bytes) -> None:
    answer = run_adb(*words)
    assert answer.returncode == code
    assert said in answer.stdout + answer.stderr
    assert run_adb("get-state").stdout == b"device\n"


def test_an_app_that_is_to_be_installed_is_refused_in_androids_words(run_adb: RunAdb, tmp_path: Path) -> None:
    (tmp_path / "a.apk").write_bytes(bytes(3 * MB))
    refused = run_adb("install", tmp_path / "a.apk")
    assert refused.returncode == 1
    assert b"INSTALL_FAILED_USER_RESTRICTED" in refused.stdout + refused.stderr


def test_adbutils_discovers_and_drives_it(adb: AdbServer, device: adbutils.AdbDevice, phone: SimulatedPhone) -> None:
    client = adbutils.AdbClient(adb.adb.host, adb.adb.port)
    assert phone.address in [each.serial for each in client.device_list()]
    assert tuple(device.window_size()) == phone.machine.size
    assert device.prop.model == "Simulated_Phone"
    assert device.shell2("nope", v2=True).returncode == 127
    assert device.shell2("false").returncode == 1
    assert device.shell2("echo a").output == "a\n"
    assert device.screenshot().tobytes() == device.screenshot(display_id=0).tobytes() == screen(phone)
    assert device.framebuffer().convert("RGB").tobytes() == screen(phone)
    assert device.is_screen_on()
    assert device.battery().level == 100
    assert device.get_serialno() == phone.address


def test_adbutils_starts_and_stops_apps_and_sees_what_is_in_front(device: adbutils.AdbDevice) -> None:
    assert "com.sim.shop" in device.list_packages()
    assert "com.sim.settings" not in device.list_packages(["-3"])
    device.app_start("com.sim.shop")
    assert device.app_current().package == "com.sim.shop"
    device.app_start("com.sim.clock", ".Face")
    current = device.app_current()
    assert (current.package, current.activity) == ("com.sim.clock", "com.sim.clock.Face")
    device.app_start(current.package, current.activity)
    device.app_stop("com.sim.clock")
    assert device.app_current().package == "com.sim.launcher"
    device.open_browser("example.org")
    assert device.app_current().package == "com.sim.browser"
    info = device.app_info("com.sim.browser")
    assert info is not None
    assert (info.version_name, info.path) == ("1.0", "/data/app/com.sim.browser/base.apk")
    assert device.app_info("com.none") is None


def test_adbutils_gestures_move_the_phone(device: adbutils.AdbDevice, phone: SimulatedPhone) -> None:
    before = screen(phone)
    icon = phone.machine.elements()[0].box
    device.click((icon[0] + icon[2]) // 2, (icon[1] + icon[3]) // 2)
    assert screen(phone) != before
    device.keyevent("KEYCODE_HOME")
    assert screen(phone) == before
    device.swipe(60, 200, 60, 60, 0.01)
    device.send_keys("a b; reboot")
    device.volume_up()
    assert "key KEYCODE_VOLUME_UP" in device.shell("logcat -d -v raw")
    device.switch_airplane(True)
    assert device.shell("settings get global airplane_mode_on") == "1"
    device.brightness_value = 7
    assert device.brightness_value == 7
    assert 'content-desc="clock"' in device.dump_hierarchy()


def test_adbutils_keeps_files_there(device: adbutils.AdbDevice, tmp_path: Path) -> None:
    content = os.urandom(3 * MB + 5)
    device.sync.push(content, "/sdcard/a/b.bin", check=True)
    assert device.sync.read_bytes("/sdcard/a/b.bin") == content
    assert device.sync.stat("/sdcard/a/b.bin").size == len(content)
    assert device.sync.exists("/sdcard/a")
    assert not device.sync.exists("/sdcard/none")
    assert [info.path for info in device.sync.list("/sdcard/a")] == [".", "..", "b.bin"]
    device.sync.pull("/sdcard/a", tmp_path / "a")
    assert (tmp_path / "a" / "b.bin").read_bytes() == content
    with pytest.raises(AdbError, match="No such file"):
        device.sync.read_bytes("/sdcard/none")
    device.remove("/sdcard/a/b.bin")
    device.rmtree("/sdcard/a")
    assert not device.sync.exists("/sdcard/a")


def test_adbutils_writes_the_log_to_a_file(device: adbutils.AdbDevice, tmp_path: Path) -> None:
    following = device.logcat(tmp_path / "log", clear=True, re_filter="KEYCODE")
    deadline = time.monotonic() + WITHIN_S
    while "KEYCODE_HOME" not in (tmp_path / "log").read_text():
        assert time.monotonic() < deadline
        device.keyevent("HOME")
    following.stop_nowait()
    device.keyevent("HOME")  # it looks whether it is to stop between two lines
    while not following.is_done():
        assert time.monotonic() < deadline
        device.keyevent("HOME")


def test_two_clients_move_files_and_drive_at_once(device: adbutils.AdbDevice, session: AdbSession) -> None:
    contents = [os.urandom(2 * MB) for _ in range(2)]

    def there_and_back(number: int) -> list[bool]:
        found = []
        for round_ in range(4):
            device.sync.push(contents[number], f"/sdcard/{number}-{round_}")
            found.append(device.sync.read_bytes(f"/sdcard/{number}-{round_}") == contents[number])
            device.remove(f"/sdcard/{number}-{round_}")
        return found

    def drive() -> list[bool]:
        return [session.shell("input keyevent HOME && echo ok") == "ok\n" for _ in range(40)]

    with ThreadPoolExecutor(3) as threads:
        pending = [threads.submit(there_and_back, 0), threads.submit(there_and_back, 1), threads.submit(drive)]
        assert all(all(each.result()) for each in pending)


def test_a_silent_phone_stops_in_the_middle_of_a_pull_and_goes_on(
    device: adbutils.AdbDevice, phone: SimulatedPhone
) -> None:
    content = os.urandom(4 * MB)
    device.sync.push(content, "/sdcard/f")
    pieces = device.sync.iter_content("/sdcard/f")
    got = bytearray(next(pieces))
    phone.faults.set(Fault.SILENT, 0.3)
    for piece in pieces:
        got += piece
    assert bytes(got) == content


GARBAGE = {
    "nothing": b"",
    "zeros": bytes(8),
    "an endless path": b"SEND\xff\xff\xff\xff",
    "a piece without a file": b"STAT\x07\0\0\0/sdcard" * 3 + b"DATA\1\0\0\0x",
    "noise": random.Random(1).randbytes(200_000),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_in_a_file_service_hurts_nobody(device: adbutils.AdbDevice, session: AdbSession, name: str) -> None:
    with device.open_transport() as connection:
        connection.send_command("sync:")
        connection.check_okay()
        connection.conn.sendall(GARBAGE[name])
    assert session.shell("echo alive") == "alive\n"
    assert device.sync.stat("/sdcard").mode & 0o40000


def test_a_truncated_framebuffer_is_short(device: adbutils.AdbDevice, phone: SimulatedPhone) -> None:
    phone.faults.set(Fault.TRUNCATED)
    with pytest.raises((AdbError, Image.UnidentifiedImageError)):
        device.framebuffer()
