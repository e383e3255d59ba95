"""What a real adb server says of phones that it cannot reach, and what a person is told to do about it."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from distrl import config
from distrl.device.about import look
from distrl.device.errors import (
    DeviceAmbiguous,
    DeviceGone,
    DeviceOffline,
    DeviceTimeout,
    DeviceUnauthorized,
    refusal,
)
from distrl.device.names import adb_line
from distrl.device.pool import DevicePool
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from simphone.faults import Fault
from simphone.serve import SimulatedPhone
from simphone.transport import CNXN, Packet, pack
from waiting import until

from .conftest import LONG_S, StartPhones, free_ports
from .test_emulator import frozen
from .test_pool import Clock, counters

AUTH = int.from_bytes(b"AUTH", "little")
TOKEN, SIGNATURE = 1, 2
NAMED = "127.0.0.1"
"""The adb server takes a host without a port for all its phones there: the name of one, or of several."""


@contextmanager
def phone_that(asks: bool) -> Iterator[str]:
    """The address of a phone that trusts no key, or (asks is False) one whose adbd has stopped answering."""
    with socket.create_server((NAMED, 0)) as listener:
        held: list[socket.socket] = []

        def read(peer: socket.socket, size: int) -> bytes:
            data = b""
            while len(data) < size:
                data += (more := peer.recv(size - len(data)))
                if not more:
                    raise EOFError
            return data

        def serve(peer: socket.socket) -> None:
            with suppress(OSError, EOFError), peer:
                while True:
                    command, kind, _, size, _, _ = struct.unpack("<6I", read(peer, 24))
                    read(peer, size)
                    if asks and (command == CNXN or (command == AUTH and kind == SIGNATURE)):
                        peer.sendall(pack(Packet(AUTH, TOKEN, 0, bytes(20)), checksum=True))

        def accept() -> None:
            with suppress(OSError):
                while True:
                    held.append(listener.accept()[0])
                    threading.Thread(target=serve, args=(held[-1],), daemon=True).start()

        thread = threading.Thread(target=accept)
        thread.start()
        yield f"{NAMED}:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for peer in held:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def own() -> Iterator[AdbServer]:
    """A server that knows no other phones."""
    with AdbServer(config.AdbSettings(port=free_ports(1))) as server:
        yield server


def test_a_phone_that_does_not_trust_this_computer_says_so_and_where_the_dialog_is(
    own: AdbServer, timeouts: config.DeviceSettings
) -> None:
    with phone_that(asks=True) as address:
        with pytest.raises(DeviceUnauthorized, match="failed to authenticate") as refused:
            own.connect(address, LONG_S)
        assert "accept the dialog" in refused.value.hint
        with pytest.raises(DeviceUnauthorized, match=r"unauthorized|still authorizing") as refused:
            AdbSession(own, address, timeouts).key("HOME")
        assert refused.value.where == address
        assert "adbkey" in refused.value.hint
        pool = DevicePool(own, timeouts.model_copy(update={"addresses": (address,)}))
        assert list(pool.discover()) == []
        (about,) = look(own, timeouts.model_copy(update={"addresses": (address,)}))
        assert about.state in ("unauthorized", "authorizing")


def test_a_phone_that_is_offline_says_so_and_how_it_is_reconnected(
    own: AdbServer, timeouts: config.DeviceSettings
) -> None:
    with phone_that(asks=False) as address:
        with pytest.raises(DeviceTimeout):
            own.connect(address, 0.3)
        until(lambda: own.devices().get(address) == "offline")  # the server may have been slow to take the request
        with pytest.raises(DeviceOffline, match="device offline") as refused:
            AdbSession(own, address, timeouts).settle()
        assert f"adb -P {own.adb.port} reconnect offline" in refused.value.hint


def test_a_phone_that_never_answered_is_disconnected_before_it_is_connected_again(
    own: AdbServer, timeouts: config.DeviceSettings
) -> None:
    """The server keeps it as offline, and says of each further connect that it is connected already."""
    clock = Clock()
    with phone_that(asks=False) as address:
        pool = DevicePool(own, timeouts.model_copy(update={"addresses": (address,)}), clock)
        assert list(pool.discover()) == []
        clock.now += 60
        assert pool.lease() is None
        assert counters(pool)["reconnects"] == 1


def test_of_two_phones_with_one_serial_neither_is_driven_and_each_can_be_named_by_its_place(
    own: AdbServer, start_phones: StartPhones, timeouts: config.DeviceSettings
) -> None:
    phones = start_phones(2)
    for phone in phones:
        own.connect(phone.address)
    before = [phone.machine.state() for phone in phones]
    with pytest.raises(DeviceAmbiguous, match="more than one device with serial") as refused:
        AdbSession(own, NAMED, timeouts).key("HOME")
    assert f"adb -P {own.adb.port} devices -l" in refused.value.hint
    assert [phone.machine.state() for phone in phones] == before
    pool = DevicePool(own, timeouts.model_copy(update={"serials": (NAMED,)}))
    assert list(pool.discover()) == []
    assert pool.lease() is None

    own.disconnect(phones[0].address)
    until(lambda: phones[0].address not in own.devices())  # it is listed until the server's own thread for it has ended
    session = AdbSession(own, NAMED, timeouts)
    assert session.settle().png == phones[1].machine.png()
    found = {each.serial: each.state for each in look(own, timeouts.model_copy(update={"serials": (NAMED,)}))}
    assert found == {NAMED: "device", phones[1].address: "device"}


@pytest.mark.parametrize(
    ("words", "kind", "hint"),
    [
        (
            "device unauthorized.\nThis adb server's $ADB_VENDOR_KEYS is not set",
            DeviceUnauthorized,
            "accept the dialog",
        ),
        ("device still authorizing", DeviceUnauthorized, "accept the dialog"),
        ("device offline", DeviceOffline, "-P 7 reconnect offline"),
        ("device still connecting", DeviceOffline, "reconnect"),
        ("more than one device with serial 0123456789ABCDEF", DeviceAmbiguous, "devices -l"),
        ("no permissions (missing udev rules? user is in the plugdev group)", DeviceGone, "udev"),
        ("device '0123' not found", DeviceGone, "adb.usb"),
    ],
)
def test_each_refusal_has_a_kind_and_a_hint(words: str, kind: type[DeviceGone], hint: str) -> None:
    error = refusal("0123", words, "adb -P 7")
    assert type(error) is kind
    assert hint in error.hint
    assert (error.where, error.what) == ("0123", words)


@pytest.mark.parametrize(
    ("host", "line"),
    [("127.0.0.1", "adb -P 7 devices"), ("localhost", "adb -P 7 devices"), ("lab-7", "adb -H lab-7 -P 7 devices")],
)
def test_a_hint_names_the_adb_server_that_is_configured(host: str, line: str) -> None:
    """Without its host adb would start a server of its own on this machine."""
    assert line in refusal("0123", "device '0123' not found", adb_line(host, 7)).hint


@pytest.mark.parametrize(
    ("timeouts_s", "setting"),
    [
        ({"settle_timeout_s": 0.3}, "devices.settle_timeout_s"),
        ({"operation_timeout_s": 0.3}, "devices.operation_timeout_s"),
    ],
)
def test_who_waited_too_long_is_given_the_setting_that_would_help(
    session: AdbSession, phone: SimulatedPhone, timeouts_s: dict[str, float], setting: str
) -> None:
    phone.faults.set(Fault.SILENT)
    session._devices = session._devices.model_copy(update=timeouts_s)
    with pytest.raises(DeviceTimeout) as late:
        session.settle()
    assert late.value.hint == f"raise {setting} if it is slow"


def test_a_deadline_that_no_setting_makes_longer_names_none(own: AdbServer) -> None:
    with frozen(own), pytest.raises(DeviceTimeout) as late:
        own.ask("host:version", 0.3)
    assert "devices." not in late.value.hint


def hint_for_unknown(server: AdbServer, name: str, timeouts: config.DeviceSettings) -> str:
    with pytest.raises(DeviceGone, match="not found") as refused:
        AdbSession(server, name, timeouts).key("HOME")
    return refused.value.hint


@pytest.mark.parametrize("name", ["R58M123ABC", "usb:1-2"])
def test_a_phone_on_usb_that_the_server_does_not_see_says_which_server_would(
    own: AdbServer, timeouts: config.DeviceSettings, name: str
) -> None:
    hint = hint_for_unknown(own, name, timeouts)
    assert "adb.usb=true" in hint
    assert f"adb -P {own.adb.port} devices -l" in hint


@pytest.mark.parametrize("name", ["127.0.0.1:5", "emulator-5554"])
def test_one_on_the_network_and_an_emulator_are_not_looked_for_on_usb(
    own: AdbServer, timeouts: config.DeviceSettings, name: str
) -> None:
    assert "usb" not in hint_for_unknown(own, name, timeouts)
