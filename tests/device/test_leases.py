"""One process a phone: whoever holds its lock file, until that process ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import gc
import logging
import os
import socketserver
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from distrl import config
from distrl.device.about import look
from distrl.device.errors import DeviceGone
from distrl.device.health import QUARANTINE_MAX_S
from distrl.device.leases import Hold, Leases, key_of
from distrl.device.pool import HELD_S, DevicePool
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from simphone.serve import SimulatedPhone

from .conftest import LONG_S
from .test_pool import Clock, some

HOLDER = """
import sys, time
from pathlib import Path
from distrl import config
from distrl.device.leases import Hold, Leases
hold = Leases(Path(sys.argv[1]), config.AdbSettings(port=int(sys.argv[2]))).take(sys.argv[3])
print("held" if isinstance(hold, Hold) else hold, flush=True)
sys.stdin.read()
"""
SERIAL = "127.0.0.1:26000"


@contextmanager
def holding(directory: Path, adb: config.AdbSettings, serial: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a phone."""
    line = [sys.executable, "-c", HOLDER, str(directory), str(adb.port), serial]
    holder = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield holder
    finally:
        holder.kill()
        holder.communicate()


def test_a_phone_that_is_held_is_refused_with_its_holder_and_free_once_let_go(tmp_path: Path) -> None:
    leases, others = Leases(tmp_path, config.AdbSettings()), Leases(tmp_path, config.AdbSettings(host="localhost"))
    hold = leases.take(SERIAL)
    assert isinstance(hold, Hold)
    assert others.take(SERIAL) == others.holder(SERIAL) == f"process {os.getpid()}"
    assert isinstance(others.take("another"), Hold)
    hold.release()
    assert others.holder(SERIAL) == ""
    assert isinstance(others.take(SERIAL), Hold)


def test_an_adb_server_is_in_use_while_another_phone_of_it_is_held(tmp_path: Path) -> None:
    adb = config.AdbSettings()
    leases = Leases(tmp_path, adb)
    assert not leases.in_use()
    mine = leases.take(SERIAL)
    assert isinstance(mine, Hold)
    assert not leases.in_use(), "by others"
    with holding(tmp_path, adb, "127.0.0.1:26001"):
        assert leases.in_use()
        assert not Leases(tmp_path, config.AdbSettings(port=adb.port + 1)).in_use()
    assert not leases.in_use(), "the file of a killed process is no holder"


@pytest.mark.parametrize(
    "names",
    [
        ("127.0.0.1:5601", "localhost:5601", "LOCALHOST:5601", "[::1]:5601", "127.0.0.1:05601", "emulator-5600"),
        ("phone.lab:5555", "Phone.Lab:5555"),
        ("[fe80::1]:5555", "[FE80::1]:5555"),
    ],
)
def test_a_phone_is_one_however_its_address_is_spelled(tmp_path: Path, names: tuple[str, ...]) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    for name in names:
        hold = leases.take(name)
        assert isinstance(hold, Hold), name
        for other in names:
            assert leases.holder(other) == leases.take(other) == f"process {os.getpid()}", (name, other)
        hold.release()


def test_names_that_are_no_address_are_taken_as_they_are() -> None:
    names = ["R58M12", "usb:1-2", "usb:1-2.4", "emulator-x", "127.0.0.1:5601", "127.0.0.1:5602", "10.0.0.1:5601", "a:b"]
    assert len({key_of(name) for name in names}) == len(names)


def test_a_phone_on_usb_is_one_by_its_serial_and_by_its_place(tmp_path: Path) -> None:
    """Two workers name it differently; the second leaves it alone until the first lets go."""
    known = {"usb:1-2": "R58", "usb:1-3": "TWIN", "usb:1-4": "TWIN"}
    with usb_phones(known) as adb:
        assert [*adb.aliases("R58"), *adb.aliases("usb:1-2")] == ["usb:1-2", "R58"]
        assert [*adb.aliases("usb:1-3"), *adb.aliases("TWIN"), *adb.aliases("missing")] == []
        by_serial = pool_by_name(adb, tmp_path, "R58")
        by_place = pool_by_name(adb, tmp_path, "usb:1-2")
        assert by_serial.lease() is not None
        assert by_place.lease() is None
        by_serial.close()
        assert by_place.lease() is None, "it is leased still"
        twins = [pool_by_name(adb, tmp_path, name) for name in ("usb:1-3", "usb:1-4")]
        assert all(twin.lease() is not None for twin in twins)


def test_phones_that_change_ports_are_lent_again(tmp_path: Path) -> None:
    """Each would need the port that the other one is remembered by."""
    known, clock = {"usb:1-2": "R58", "usb:1-3": "S20"}, Clock()
    with usb_phones(known) as adb:
        pool = pool_by_name(adb, tmp_path, "R58", "S20", clock=clock)
        for session in [some(pool.lease()), some(pool.lease())]:
            pool.release(session, DeviceGone(session.serial, "it was unplugged"))
        known.update({"usb:1-2": "S20", "usb:1-3": "R58"})
        lent = set[str]()
        for _ in range(4):
            clock.now += QUARANTINE_MAX_S
            lent |= {session.serial for session in (pool.lease(), pool.lease()) if session is not None}
        assert lent == {"R58", "S20"}
        pool.close()


PLACE = "usb:1-2"


@pytest.mark.parametrize("serial", ["R58", "zte"])
@pytest.mark.parametrize("place_first", [False, True])
def test_of_two_that_hold_a_phone_by_one_name_each_exactly_one_gives_way(
    tmp_path: Path, serial: str, place_first: bool
) -> None:
    """Both took their own names while it was not plugged in, when nobody knew that they are one phone's."""
    known, clock = dict[str, str](), Clock()
    with usb_phones(known) as adb:
        pools = {name: pool_by_name(adb, tmp_path, name, clock=clock) for name in (serial, PLACE)}
        order = [PLACE, serial] if place_first else [serial, PLACE]
        assert [pools[name].lease() for name in order] == [None, None]
        known[PLACE] = serial
        leased = dict[str, AdbSession]()
        for _ in range(2):
            clock.now += HELD_S
            leased |= {name: session for name in order if (session := pools[name].lease()) is not None}
        first, second = (pools[name] for name in sorted(pools))
        assert list(leased) == [min(pools)]
        (health,) = second.health()
        assert (health.state, health.counters["quarantines"]) == ("held", 0)
        clock.now += HELD_S
        assert second.lease() is None
        first.close()
        first.release(leased[min(pools)])
        clock.now += HELD_S
        assert some(second.lease()).serial == max(pools)
        second.close()


def test_a_phone_that_one_worker_names_twice_is_lent_once(tmp_path: Path) -> None:
    with usb_phones({PLACE: "R58"}) as adb:
        clock = Clock()
        pool = pool_by_name(adb, tmp_path, "R58", PLACE, clock=clock)
        for _ in range(2):
            pool.discover()
            clock.now += HELD_S
        assert some(pool.lease()).serial == "R58"
        assert pool.lease() is None
        pool.close()


def pool_by_name(adb: AdbServer, directory: Path, *names: str, clock: Clock | None = None) -> DevicePool:
    devices = config.DeviceSettings(serials=names, directory=directory, operation_timeout_s=LONG_S)
    return DevicePool(adb, devices, clock or Clock())


@contextmanager
def usb_phones(known: dict[str, str]) -> Iterator[AdbServer]:
    """An adb server that knows phones on USB (place to serial): the part of its protocol that is asked here."""

    def named(name: str) -> list[str]:
        return [place for place, serial in known.items() if name in (place, serial)]

    def answer(request: str) -> bytes:
        if request == "host:version":
            return b"OKAY00040029"
        name, _, what = request.removeprefix("host-serial:").rpartition(":")
        if request.startswith("host:transport:"):
            name, what = request.removeprefix("host:transport:"), ""
        places = named(name)
        if len(places) != 1:
            words = b"more than one device" if places else b"device not found"
            return b"FAIL" + f"{len(words):04x}".encode() + words
        said = {"get-devpath": places[0], "get-serialno": known[places[0]]}.get(what, "").encode()
        return b"OKAY" + (f"{len(said):04x}".encode() + said if what else b"")

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while size := self.request.recv(4):
                asked = self.request.recv(int(size, 16)).decode()
                if asked.startswith(("shell", "exec")):
                    failed = "distrl-lease" in asked  # a phone on which no lease can be kept
                    said = b"" if failed else struct.pack("<BI", 1, 2) + b"1\n"
                    self.request.sendall(b"OKAY" + said + struct.pack("<BIB", 3, 1, failed))
                    return
                self.request.sendall(answer(asked))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield AdbServer(config.AdbSettings(port=server.server_address[1]))
        finally:
            server.shutdown()
            thread.join()


def test_phones_of_two_adb_servers_are_two_phones(tmp_path: Path) -> None:
    holds = [Leases(tmp_path, config.AdbSettings(port=port)).take("emulator-5554") for port in (25037, 25038)]
    assert all(isinstance(hold, Hold) for hold in holds)


def test_a_killed_holder_leaves_nothing_held(tmp_path: Path) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    with holding(tmp_path, config.AdbSettings(), SERIAL) as holder:
        assert leases.take(SERIAL) == f"process {holder.pid}"
        holder.kill()
        holder.wait()
        assert isinstance(leases.take(SERIAL), Hold)


def test_a_hold_that_is_lost_is_let_go_and_no_file_stays(tmp_path: Path) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    leases.take(SERIAL)
    gc.collect()
    assert leases.holder(SERIAL) == ""
    assert list(tmp_path.iterdir()) == []


def test_serials_stay_in_the_directory_whatever_they_are(tmp_path: Path) -> None:
    leases = Leases(tmp_path / "leases", config.AdbSettings())
    holds = [leases.take(serial) for serial in ("../../escaped", "..", "a/b", "a%2Fb", "ü\n")]
    assert len(list((tmp_path / "leases").iterdir())) == len(holds)
    assert [path.name for path in tmp_path.iterdir()] == ["leases"]


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    (tmp_path / "precious").write_text("kept")
    leases.file("x", ".lock").symlink_to(tmp_path / "precious")
    with pytest.raises(DeviceError, match=r"x\.lock cannot be written"):
        leases.take("x")
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_directory_that_cannot_be_made_is_reported_with_its_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceError) as caught:
        Leases(tmp_path / "file", config.AdbSettings()).take(SERIAL)
    assert caught.value.where == "devices.directory"


def still_open(folder: Path) -> list[str]:
    """Of this process. Those elsewhere are no business of a test's: garbage of others is collected at any time."""
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the one that lists them
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(each for each in targets if each.startswith(str(folder)))


def full(*written: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_refuses_no_phone_and_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    monkeypatch.setattr(os, "pwrite", full)
    with caplog.at_level(logging.WARNING):
        holds = [leases.take(serial) for serial in ("first", "second")]
    assert all(isinstance(hold, Hold) for hold in holds)
    assert leases.take("first") == "another process"
    assert [each.name for each in caplog.records].count("distrl.device.leases") == 1


def test_a_full_disk_leaves_no_file_of_a_folder_that_could_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(DeviceError, match="cannot be written"):
            leases.domain()
    assert list(tmp_path.iterdir()) == []
    assert leases.domain() == leases.domain()


def test_a_lock_that_cannot_be_looked_at_for_a_moment_costs_no_lease_of_another_phone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with usb_phones({PLACE: "R58", "usb:3-4": "R59"}) as adb:
        clock = Clock()
        pool = pool_by_name(adb, tmp_path, "R58", "R59", clock=clock)
        with holding(tmp_path, adb.adb, "R59"):
            assert some(pool.lease()).serial == "R58"
            assert pool.lease() is None
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", full)
            for _ in range(3):
                clock.now += HELD_S
                assert pool.lease() is None
        assert sum("R59 is not taken for now" in each.message for each in caplog.records) == 1
        clock.now += HELD_S
        assert some(pool.lease()).serial == "R59"
        pool.close()


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
@pytest.mark.parametrize("broken", ["fstat", "pread"])
def test_no_lock_file_stays_open_whatever_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    hold = leases.take(SERIAL) if broken == "pread" else None
    before = still_open(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, broken, full)
        with pytest.raises(DeviceError) as caught:
            leases.take(SERIAL)
    assert caught.value.where == "devices.directory"
    assert still_open(tmp_path) == before
    del hold


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no /proc")
def test_a_lock_file_that_cannot_be_removed_is_let_go_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases, before = Leases(tmp_path, config.AdbSettings()), still_open(tmp_path)
    hold = leases.take(SERIAL)
    assert isinstance(hold, Hold)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", full)
        hold.release()
    assert still_open(tmp_path) == before
    assert leases.holder(SERIAL) == ""
    assert isinstance(leases.take(SERIAL), Hold)


def test_a_look_at_a_phone_of_the_dead_does_not_send_its_taker_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    file = leases.file(SERIAL, ".lock")
    file.write_text("process 1")
    looking = os.open(file, os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("distrl.device.leases.time.sleep", lambda seconds: fcntl.flock(looking, fcntl.LOCK_UN))
    hold = leases.take(SERIAL)
    os.close(looking)
    assert isinstance(hold, Hold)


def test_takers_that_race_with_releases_never_hold_a_phone_together(tmp_path: Path) -> None:
    inside, together, taken = threading.Lock(), list[str](), [0]

    def work() -> None:
        leases = Leases(tmp_path, config.AdbSettings())
        for _ in range(300):
            hold = leases.take(SERIAL)
            if isinstance(hold, str):
                continue
            if inside.acquire(blocking=False):
                taken[0] += 1
                leases.holder(SERIAL)
                inside.release()
            else:
                together.append(SERIAL)
            hold.release()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == []
    assert taken[0] > 0


def test_a_worker_leaves_a_phone_of_another_alone_shows_it_and_takes_it_over(
    adb: AdbServer, phone: SimulatedPhone, tmp_path: Path
) -> None:
    clock = Clock()
    devices = config.DeviceSettings(addresses=(phone.address,), directory=tmp_path)
    with holding(tmp_path, adb.adb, phone.address) as holder:
        pool = DevicePool(adb, devices, clock)
        assert pool.discover() == []
        assert pool.lease() is None
        (health,) = pool.health()
        assert health.state == "held"
        assert set(health.counters.values()) == {0}
        (about,) = [each for each in look(adb, devices) if each.serial == phone.address]
        assert about.holder == f"process {holder.pid}"
        holder.kill()
        holder.wait()
        assert pool.lease() is None  # it is looked at again after a while, not for ever
        clock.now += 1.0
        assert some(pool.lease()).serial == phone.address
    pool.close()


def test_a_phone_belongs_to_its_pool_between_leases_and_to_nobody_after_the_end(
    adb: AdbServer, phone: SimulatedPhone, tmp_path: Path
) -> None:
    devices = config.DeviceSettings(addresses=(phone.address,), directory=tmp_path)
    clock = Clock()
    first, second = DevicePool(adb, devices), DevicePool(adb, devices, clock)
    first.release(some(first.lease()))
    assert second.lease() is None
    held = some(first.lease())
    first.close()
    clock.now += 1.0
    assert second.lease() is None  # an episode may still be going on
    first.release(held)
    clock.now += 1.0
    assert some(second.lease()).serial == phone.address
    assert first.lease() is None
    second.close()


OTHER_USER = """
import encodings.ascii, os, sys
from pathlib import Path
from distrl import config
from distrl.device.leases import Hold, Leases
os.umask(0o077)
os.setgid(65534)
os.setuid(int(sys.argv[4]))
leases = Leases(Path(sys.argv[1]), config.AdbSettings(port=int(sys.argv[2])))
hold = leases.take(sys.argv[3])
print("held" if isinstance(hold, Hold) else hold, leases.holder(sys.argv[3]), leases.in_use(), flush=True)
leases.domain()
sys.stdin.read()
os._exit(1)
"""


@pytest.fixture
def tmp_path_everybody_may_enter() -> Iterator[Path]:
    """pytest's own folders are for their user alone."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may act as two other users")
def test_two_users_of_one_machine_share_a_folder(tmp_path_everybody_may_enter: Path) -> None:
    """What one holds is held for the other, too, whatever the umask; and free once it was killed."""
    folder = tmp_path_everybody_may_enter
    folder.chmod(0o777)
    adb = config.AdbSettings()

    @contextmanager
    def user(number: int) -> Iterator[subprocess.Popen[str]]:
        line = [sys.executable, "-c", OTHER_USER, str(folder), str(adb.port), SERIAL, str(number)]
        child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            yield child
        finally:
            child.kill()
            child.communicate()

    def said(child: subprocess.Popen[str]) -> str:
        assert child.stdout is not None
        return child.stdout.readline().strip()

    with user(1001) as first:
        assert said(first).startswith("held")
        with user(1002) as second:
            assert said(second) == f"process {first.pid} process {first.pid} True"
    with user(1002) as second:
        assert said(second) == f"held process {second.pid} False"
