"""adbutils' own calls, each on a simulated phone behind a real adb server: what it answers is what Android would."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import adbutils
import pytest
from adbutils import Network
from adbutils._proto import BrightnessMode
from adbutils.errors import AdbError, AdbTimeout
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from simphone.serve import SimulatedPhone
from waiting import until

from .conftest import RunAdb, StartPhones, free_ports

NOT_FOUND = "/system/bin/sh: nope: inaccessible or not found\n"
WAIT_S = 20.0


@pytest.fixture
def client(adb: AdbServer) -> adbutils.AdbClient:
    return adbutils.AdbClient(adb.adb.host, adb.adb.port)


@pytest.fixture
def device(client: adbutils.AdbClient, session: AdbSession) -> adbutils.AdbDevice:
    return client.device(session.serial)


@pytest.fixture
def upper() -> Iterator[int]:
    """The port of a server on the host: it answers each connection with what it sends, in capitals, once."""

    def serve(server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(connection.recv(65536).upper())

    with socket.create_server(("127.0.0.1", free_ports(1))) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def asked(connection: socket.socket, what: bytes) -> bytes:
    with connection:
        connection.settimeout(WAIT_S)
        connection.sendall(what)
        return connection.recv(65536)


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        ("nope; echo $?", NOT_FOUND + "127\n"),
        ("echo a; nope; echo b; nope", f"a\n{NOT_FOUND}b\n{NOT_FOUND}"),
        ("nope | cat; echo $?", NOT_FOUND + "0\n"),
        ("which nope; echo $?", "1\n"),
        ("which ls which; echo $?", "/system/bin/ls\n/system/bin/which\n0\n"),
        ("which cd; echo $?", "1\n"),
        ("command -v cd; command -v ls; command -v nope; echo $?", "cd\n/system/bin/ls\n1\n"),
        ("/system/bin/echo hi", "hi\n"),
        ("nope 2>&1 | cat", NOT_FOUND),
        ("nope 2>/dev/null; echo $?", "127\n"),
    ],
)
def test_both_outputs_come_in_their_order(device: adbutils.AdbDevice, line: str, printed: str) -> None:
    assert device.shell(line, rstrip=False) == printed
    second = device.shell2(line, v2=True)
    assert second.output == printed
    assert sorted(second.stdout + second.stderr) == sorted(printed)


def test_shell_gives_text_bytes_lists_streams_and_exit_codes(device: adbutils.AdbDevice) -> None:
    assert device.shell("echo é") == "é"
    assert device.shell(["echo", "a  b", "$c"]) == "a  b $c"
    assert device.shell("echo é", encoding=None) == "é\n".encode()
    with device.shell("echo a; echo b", stream=True) as stream:
        assert stream.read_until_close() == "a\nb\n"
    with device.open_shell("echo hi") as stream:
        assert stream.read_until_close() == "hi\n"
    for v2 in (False, True):
        failed = device.shell2("nope", v2=v2, rstrip=True)
        assert (failed.returncode, failed.output) == (127, NOT_FOUND.strip())
        assert device.shell2(["which", "nope"], v2=v2).returncode == 1
        assert device.shell2("which sh2 ls", v2=v2).output == "/system/bin/ls\n"
    with pytest.raises(AdbTimeout):
        device.shell("sleep 60", timeout=0.2)


def test_a_followed_log_ends_when_it_is_stopped_though_nothing_happens(
    device: adbutils.AdbDevice, tmp_path: Path
) -> None:
    device.shell(["log", "-t", "MINE", "before"])
    following = device.logcat(tmp_path / "log", clear=True, re_filter=re.compile("MINE"))
    device.shell(["log", "-p", "w", "-t", "MINE", "hello"])
    until(lambda: "hello" in (tmp_path / "log").read_text(), "the line")
    following.stop(WAIT_S)
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert re.fullmatch(r"01-01 \d\d:\d\d:\d\d\.000 W/MINE +\( +612\): hello", line)
    dumped = device.shell("logcat -d -v tag")
    assert dumped.splitlines()[1:] == ["W/MINE    : hello"]


def test_reverse_ports_are_listed_added_and_removed(device: adbutils.AdbDevice, run_adb: RunAdb) -> None:
    assert device.reverse_list() == []
    device.reverse("tcp:7001", "tcp:8001")
    device.reverse("localabstract:mine", "tcp:8002")
    device.reverse("tcp:7001", "tcp:8003")  # takes the place of the first
    assert [tuple(vars(item).values()) for item in device.reverse_list()] == [
        ("tcp:7001", "tcp:8003"),
        ("localabstract:mine", "tcp:8002"),
    ]
    with pytest.raises(AdbError, match="cannot rebind existing socket"):
        device.reverse("tcp:7001", "tcp:8004", norebind=True)
    device.reverse("tcp:7002", "tcp:8004", norebind=True)
    device.reverse_remove("tcp:7001")
    with pytest.raises(AdbError, match="listener 'tcp:7001' not found"):
        device.reverse_remove("tcp:7001")
    for bad in ("tcp:99999", "nonsense", "tcp:x"):
        with pytest.raises(AdbError, match="cannot bind listener"):
            device.reverse(bad, "tcp:1")
    device.reverse_remove_all()
    assert device.reverse_list() == []
    port = run_adb("reverse", "tcp:0", "tcp:8001").stdout.strip().decode()
    assert f"tcp:{port} tcp:8001".encode() in run_adb("reverse", "--list").stdout
    assert run_adb("reverse", "--remove", f"tcp:{port}").returncode == 0


def test_what_connects_to_a_reverse_port_reaches_the_host(device: adbutils.AdbDevice, upper: int) -> None:
    device.reverse("tcp:7001", f"tcp:{upper}")
    device.reverse("localabstract:mine", f"tcp:{upper}")
    assert device.shell("echo from the phone | nc 127.0.0.1 7001") == "FROM THE PHONE"
    assert asked(device.create_connection(Network.TCP, 7001), b"over adb") == b"OVER ADB"
    assert asked(device.create_connection(Network.LOCAL_ABSTRACT, "mine"), b"by name") == b"BY NAME"
    forwarded = device.forward_port(7001)
    with socket.create_connection(("127.0.0.1", forwarded)) as through:
        assert asked(through, b"there and back") == b"THERE AND BACK"
    device.forward_remove(f"tcp:{forwarded}")
    many = b"x" * 60_000
    assert asked(device.create_connection(Network.TCP, 7001), many)[:1000] == many.upper()[:1000]


def test_a_port_at_which_nobody_listens_refuses(device: adbutils.AdbDevice) -> None:
    with pytest.raises(AdbError, match="closed"):
        device.create_connection(Network.TCP, 7009)
    with pytest.raises(AdbError, match="closed"):
        device.create_connection(Network.LOCAL_ABSTRACT, "nobody")
    refused = device.shell2("echo x | nc 127.0.0.1 7009", v2=True)
    assert (refused.returncode, refused.output) == (1, "nc: connect: Connection refused\n")
    device.reverse("tcp:7009", f"tcp:{free_ports(1)}")  # where nobody listens on the host
    reset = device.shell2("echo x | nc 127.0.0.1 7009", v2=True)
    assert (reset.returncode, reset.stdout) == (1, "")
    assert "unreachable" in device.shell("nc 8.8.8.8 53")


def test_reverse_ports_end_with_the_connection_that_asked_for_them(
    adb: AdbServer, device: adbutils.AdbDevice, phone: SimulatedPhone
) -> None:
    device.reverse("tcp:7001", "tcp:8001")
    adb.disconnect(phone.address)
    adb.connect(phone.address)
    until(lambda: not device.reverse_list(), "the list to be empty")


def test_forwards_are_listed_and_removed(device: adbutils.AdbDevice, client: adbutils.AdbClient) -> None:
    local = f"tcp:{free_ports(1)}"
    device.forward(local, "tcp:7001")
    assert (device.serial, local, "tcp:7001") in [tuple(vars(item).values()) for item in client.forward_list()]
    assert [item.local for item in device.forward_list()] == [local]
    with pytest.raises(AdbError):
        device.forward(local, "tcp:7002", norebind=True)
    assert device.forward_port(7001) == int(local[4:])
    device.forward_remove(local)
    with pytest.raises(AdbError):
        device.forward_remove(local)
    device.forward_remove(local, raise_non_found=False)
    device.forward(local, "tcp:7001")
    device.forward_remove_all()
    assert device.forward_list() == []


def test_each_phone_has_an_address_of_its_own(
    client: adbutils.AdbClient, adb: AdbServer, start_phones: StartPhones
) -> None:
    found = []
    for phone in start_phones(2):
        adb.connect(phone.address)
        device = client.device(phone.address)
        address = device.wlan_ip()
        assert re.fullmatch(r"10\.0\.\d+\.\d+", address)
        assert f"inet {address}/" in device.shell("ip addr show wlan0")
        assert f"inet {address}/" in device.shell(["ip", "-f", "inet", "addr", "show", "dev", "wlan0"])
        assert device.shell("ip route").endswith(f"src {address}")
        assert device.getprop("dhcp.wlan0.ipaddress") == address
        assert "No such device" in device.shell("ifconfig eth0")
        assert "does not exist" in device.shell("ip addr show eth0")
        found.append(address)
    assert len(set(found)) == 2


def test_what_the_device_is(device: adbutils.AdbDevice, client: adbutils.AdbClient) -> None:
    assert client.server_version() >= 40
    assert device.get_state() == "device"
    assert device.info["serialno"] == device.serial
    assert {"shell_v2", "cmd"} <= set(device.get_features().split(","))
    assert "model:Simulated_Phone" in str(device.prop)
    assert device.prop.get("ro.build.version.release") == "14"
    assert device.rotation() == 0
    width, height = device.window_size()
    assert tuple(device.window_size(landscape=True)) == (height, width)
    assert "cannot run as root" in device.root()
    with pytest.raises(AdbError, match="closed"):
        device.tcpip(5555)


def test_the_screen_goes_off_and_on(device: adbutils.AdbDevice) -> None:
    assert device.is_screen_on()
    device.switch_screen(False)
    assert not device.is_screen_on()
    assert device.screenshot().getextrema() == ((0, 0), (0, 0), (0, 0))
    device.switch_screen(True)
    assert device.is_screen_on()
    assert device.screenshot().getextrema() != ((0, 0), (0, 0), (0, 0))


def test_settings_keys_and_gestures(device: adbutils.AdbDevice, phone: SimulatedPhone) -> None:
    device.brightness_mode = BrightnessMode.AUTO
    assert device.brightness_mode == BrightnessMode.AUTO
    device.switch_wifi(False)
    assert device.shell("settings get global wifi_on") == "0"
    device.volume_mute()
    device.drag(0.5, 0.9, 0.5, 0.2, 0.01)
    device.click(0.5, 0.99, display_id=0)
    device.keyevent(4)
    log = device.shell("logcat -d -v raw")
    for noted in ("key KEYCODE_VOLUME_MUTE", "swipe from (64, 230) to (64, 51)", "key KEYCODE_BACK"):
        assert noted in log


def test_apps_are_told_apart(device: adbutils.AdbDevice) -> None:
    device.app_start("com.sim.clock")
    assert device.app_current().package == "com.sim.clock"
    info = device.package_info("com.sim.clock")
    assert info is not None
    assert info["package_name"] == "com.sim.clock"
    assert "RESTRICTED" in device.uninstall("com.sim.clock")
    device.app_clear("com.sim.clock")  # refused in words: `simctl reset` clears
    assert "com.sim.clock" in device.list_packages()


def test_there_is_no_recorder_of_the_screen(device: adbutils.AdbDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(AdbError, match="no valid screenrecord client"):
        device.start_recording("x.mp4")


def test_files_go_there_in_every_form(device: adbutils.AdbDevice, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    assert device.sync.push(tmp_path / "a.txt", "/sdcard/Download") == 4
    assert device.sync.read_text("/sdcard/Download/a.txt") == "text"
    with (tmp_path / "a.txt").open("rb") as file:
        assert device.sync.push(file, "/data/local/tmp/b", mode=0o644) == 4
    assert device.sync.stat("/data/local/tmp/b").mode & 0o777 == 0o644
    assert device.sync.pull_file("/data/local/tmp/b", tmp_path / "b") == 4
    assert b"".join(device.sync.iter_content("/data/local/tmp/b")) == b"text"
    assert device.sync.pull("/sdcard/Download", tmp_path / "back") == 4
    assert device.sync.stat("/none").mtime is None
