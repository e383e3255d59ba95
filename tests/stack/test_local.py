"""The stack as a whole, with the one part that starts in no time: a real adb server. All parts: tests/integration."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from adb_alone import adb_alone
from distrl.config import Config, load
from distrl.errors import StackError
from distrl.stack import adb, ports
from distrl.stack.local import USUAL_PORTS, LocalStack, PartStatus, connect
from distrl.stack.part import Part, Site
from distrl.stack.processes import find_all, start, stop_all
from distrl.stack.stack_record import Record
from elsewhere import drawn, elsewhere
from waiting import until

Make = Callable[..., Config]


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Make]:
    """A stack of an adb server alone, everything else being configured elsewhere."""

    def make(*sets: str) -> Config:
        fixed = adb_alone(tmp_path)
        return elsewhere(load(sets=[*fixed, *sets], environ={}), found)

    found = drawn()
    yield make
    stop_all(find_all(tmp_path / "stack"), 5.0)


def row(config: Config, name: str) -> PartStatus:
    return next(row for row in LocalStack(config).status() if row.name == name)


def test_up_status_connect_down(config: Make) -> None:
    made = LocalStack(config()).up()
    assert ports.listens(made.adb.port)
    assert (made.kafka.bootstrap, made.store) == ("127.0.0.1:1", config().store)
    up = row(config(), "adb")
    assert (up.running, up.where) == (True, f"127.0.0.1:{made.adb.port}")
    assert up.pid is not None
    assert connect(config()).adb.port == made.adb.port
    assert LocalStack(config()).down() == ["adb"]
    assert row(config(), "adb") == PartStatus("adb", False, "", None)
    assert not ports.listens(made.adb.port)
    assert connect(config()) == config()
    assert LocalStack(config()).down() == []


def test_what_an_up_has_started_can_be_stopped_again_and_what_it_found_stays(config: Make) -> None:
    stack = LocalStack(config())
    stack.up()
    other = LocalStack(config())
    other.up(reuse=True)
    other.stop_started()
    assert row(config(), "adb").running
    stack.stop_started()
    assert not row(config(), "adb").running


def test_phones_that_only_an_adb_server_knows_are_neither_running_nor_stopped(config: Make) -> None:
    assert row(config('devices.serials=["R58M123ABC"]'), "phones") == PartStatus(
        "phones", None, "R58M123ABC", None, True
    )
    assert row(config("devices.addresses=[127.0.0.1:1]"), "phones").running is False


def test_a_cluster_runs_as_long_as_one_of_its_brokers_listens(config: Make) -> None:
    with socket.create_server((ports.HOST, 0)) as second, socket.socket() as held:
        held.bind((ports.HOST, 0))  # nothing listens there, and nobody else can take the port
        away, there = (f"{ports.HOST}:{each.getsockname()[1]}" for each in (held, second))
        assert row(config(f"kafka.bootstrap={away},{there}"), "kafka").running
        assert row(config(f"kafka.bootstrap={there}"), "kafka").running
        assert not row(config(f"kafka.bootstrap={away},{away}"), "kafka").running


@pytest.mark.parametrize("scheme", ["s3", "s3s"])
def test_a_store_without_a_port_is_looked_for_at_the_usual_one(
    config: Make, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ("store.access_key=a", "store.secret_key=b")
    with socket.create_server((ports.HOST, 0)) as there:
        monkeypatch.setitem(USUAL_PORTS, scheme, there.getsockname()[1])
        assert row(config(f"store.url={scheme}://{ports.HOST}/bucket", *keys), "s3").running
    assert not row(config(f"store.url={scheme}://{ports.HOST}/bucket", *keys), "s3").running


def test_down_without_a_stack_makes_no_folder(config: Make) -> None:
    assert LocalStack(config()).down() == []
    assert not config().stack.directory.exists()


def test_a_full_disk_keeps_no_part_of_a_stopped_stack(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts were stopped, and then `distrl down` failed at the first of them that it took off the record."""
    LocalStack(config()).up()
    record = Record(config().stack.directory)
    record.put(Part("s3", "file:///objects"))

    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    assert LocalStack(config()).down() == ["adb"]
    assert record.parts() == {}


def test_a_second_up_is_refused_and_says_what_to_do(config: Make) -> None:
    made = LocalStack(config()).up()
    with pytest.raises(StackError, match="up already") as told:
        LocalStack(config()).up()
    assert "distrl down" in told.value.hint
    assert LocalStack(config()).up(reuse=True).adb.port == made.adb.port


HOLDER = """
import sys
from pathlib import Path
from distrl.stack.locks import held
with held(Path(sys.argv[1]) / "stack.lock", "distrl up"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_an_up_while_another_is_at_work_is_refused(config: Make) -> None:
    line = [sys.executable, "-c", HOLDER, str(config().stack.directory)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        for doing in (LocalStack(config()).up, LocalStack(config()).down):
            with pytest.raises(StackError, match=rf"distrl up \(process {other.pid}\) holds this lock"):
                doing()
        other.communicate()
    LocalStack(config()).up()


def test_a_part_that_has_died_is_started_again(config: Make) -> None:
    LocalStack(config()).up()
    first = row(config(), "adb").pid
    stop_all(find_all(config().stack.directory), 5.0)
    assert not row(config(), "adb").running
    LocalStack(config()).up()
    assert row(config(), "adb").pid not in (None, first)


def test_a_part_that_runs_with_other_settings_is_started_again(config: Make, tmp_path: Path) -> None:
    LocalStack(config()).up()
    first = row(config(), "adb").pid
    link = tmp_path / "adb"
    link.symlink_to(adb.binary(config().adb))
    LocalStack(config(f"adb.binary={link}")).up()
    assert row(config(), "adb").pid not in (None, first)
    assert [child.name for child in find_all(config().stack.directory)] == ["adb"]


def test_a_command_refuses_what_a_user_has_started_with_other_settings(config: Make, tmp_path: Path) -> None:
    LocalStack(config()).up()
    first = row(config(), "adb").pid
    link = tmp_path / "adb"
    link.symlink_to(adb.binary(config().adb))
    with pytest.raises(StackError, match=r"with other settings than wanted: binary '' and not '.*/adb'") as told:
        LocalStack(config(f"adb.binary={link}"), owner="a demo").up(reuse=True)
    assert "distrl down" in told.value.hint
    assert row(config(), "adb").pid == first


def test_a_named_port_is_ours_at_the_second_look_too(config: Make) -> None:
    port = ports.draw("test")
    assert LocalStack(config(f"adb.port={port}")).up().adb.port == port
    pid = row(config(f"adb.port={port}"), "adb").pid
    assert pid is not None
    with pytest.raises(StackError, match="up already"):
        LocalStack(config(f"adb.port={port}")).up()
    assert LocalStack(config(f"adb.port={port}")).down() == ["adb"]


def test_a_configured_server_is_used_and_outlives_our_down(config: Make, tmp_path: Path) -> None:
    theirs = config(f"stack.directory={tmp_path / 'stack'}")
    port = LocalStack(theirs).up().adb.port
    ours = config(f"stack.directory={tmp_path / 'ours'}", f"adb.port={port}")
    assert LocalStack(ours).up().adb.port == port
    assert row(ours, "adb") == PartStatus("adb", True, f"127.0.0.1:{port}", None, True)
    assert LocalStack(ours).down() == []
    assert ports.listens(port)


def test_a_default_port_in_use_is_no_error(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind((ports.HOST, ports.draw("test")))
        other.listen()
        busy = other.getsockname()[1]
        made = LocalStack(elsewhere(config(), {"adb.port": busy})).up()
    assert made.adb.port not in (busy, 0)


def test_a_phones_port_in_use_that_was_named_stops_everything(config: Make) -> None:
    with socket.socket() as other:
        other.bind((ports.HOST, ports.draw("test", count=4)))
        other.listen()
        base = other.getsockname()[1]
        settings = config("phones.count=4", f"phones.base_port={base}")
        with pytest.raises(StackError, match=f"port {base} of 127.0.0.1 is in use"):
            LocalStack(settings).up()
    assert find_all(settings.stack.directory) == []


def test_stacks_that_start_at_the_same_moment_share_no_server(
    config: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them choose the same ports, before any server of theirs listens."""
    count = 3
    settings = [config(f"stack.directory={tmp_path / str(number)}", "phones.count=2") for number in range(count)]
    met, choose, said = threading.Barrier(count), ports.choose, list[str]()

    def together(*arguments: Any, **named: Any) -> int:
        found = choose(*arguments, **named)
        if threading.current_thread().name.startswith("stack"):  # not again, from a thread of `up`
            met.wait(60.0)
        return found

    monkeypatch.setattr(ports, "choose", together)
    try:
        with ThreadPoolExecutor(count, thread_name_prefix="stack") as pool:
            made = list(pool.map(lambda each: LocalStack(each, report=said.append).up(), settings))
        assert len({each.adb.port for each in made}) == count
        assert len({address for each in made for address in each.devices.addresses}) == 2 * count
        for each in made:
            own = {child.name: child for child in find_all(each.stack.directory)}
            assert own["adb"].listens(each.adb.port)
            assert all(own["phones"].listens(int(address.rpartition(":")[2])) for address in each.devices.addresses)
        again = [text for text in said if "starting it again at another port" in text]
        assert {text.partition(":")[0] for text in again} == {"adb", "phones"}
    finally:
        for each in settings:
            LocalStack(each).down()


def test_where_one_part_fails_the_others_are_stopped_again(config: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from distrl.stack import phones

    adb_is_up = threading.Event()
    started = adb.start_adb

    def start_adb(*arguments: object) -> object:
        part = started(*arguments)  # type: ignore[arg-type]
        adb_is_up.set()
        return part

    def no_phones(*_: object) -> None:
        adb_is_up.wait(20.0)
        raise StackError("phones", "ended while starting", "read its log")

    monkeypatch.setattr(adb, "start_adb", start_adb)
    monkeypatch.setattr(phones, "start_phones", no_phones)
    settings = config("phones.count=2")
    with pytest.raises(StackError, match="ended while starting"):
        LocalStack(settings).up()
    assert find_all(settings.stack.directory) == []
    assert not any(part.running for part in LocalStack(settings).status() if part.name in ("adb", "phones"))


def test_a_second_interrupt_while_stopping_leaves_nothing_that_starts_late(
    config: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distrl.stack import phones

    interrupted_twice, phones_ended, adb_started = threading.Event(), threading.Event(), threading.Event()
    adb_begun = threading.Event()
    started = adb.start_adb

    def start_late(site: Site, *others: object) -> object:
        """As a part that was past its last look at `cancelled`."""
        adb_begun.set()
        assert phones_ended.wait(60.0)
        until(lambda: waits_in("_settle"))
        interrupt_until(interrupted_twice)
        try:
            return started(replace(site, cancelled=threading.Event()), *others)  # type: ignore[arg-type]
        finally:
            adb_started.set()

    def interrupt(site: Site, *_: object) -> None:
        assert adb_begun.wait(60.0), "an interrupt before that would start no adb at all"
        interrupt_until(site.cancelled)
        phones_ended.set()
        raise StackError("phones", "ended while starting", "read its log")

    monkeypatch.setattr(adb, "start_adb", start_late)
    monkeypatch.setattr(phones, "start_phones", interrupt)
    settings = config("phones.count=2")
    with pytest.raises(KeyboardInterrupt):
        LocalStack(settings, report=lambda said: interrupted_twice.set() if "stopping" in said else None).up()
    assert adb_started.wait(60.0)
    assert find_all(settings.stack.directory) == []
    assert not ports.listens(settings.adb.port)


DEAF = """
import os, signal, time
def hear(*_):
    os.kill(os.getppid(), signal.SIGINT)
signal.signal(signal.SIGTERM, hear)
print("ready", flush=True)
while True:
    time.sleep(60)
"""
"""A server that does not end, and has Ctrl-C pressed when it is asked to."""


def test_ctrl_c_while_a_command_stops_its_servers_kills_them(config: Make) -> None:
    stack = LocalStack(config(), owner="distrl train")
    directory = config().stack.directory
    child = start("phones", [sys.executable, "-c", DEAF], directory)
    try:
        until(lambda: "ready" in child.log.read_text())
        Record(directory).put(Part("phones", "127.0.0.1:1", {}, child, "distrl train"))
        with pytest.raises(KeyboardInterrupt):
            stack.down_own()
        assert find_all(directory) == []
        assert Record(directory).parts() == {}
    finally:
        child.kill()


def waits_in(function: str) -> bool:
    """Whether the main thread waits in a call that `function` has made."""
    frame = sys._current_frames()[threading.main_thread().ident or 0].f_back
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


def interrupt_until(noticed: threading.Event) -> None:
    """As a person does: Python loses an interrupt in a destructor, and one that comes in the instant before the main
    thread blocks is seen with the next."""
    for _ in range(60):
        os.kill(os.getpid(), signal.SIGINT)
        if noticed.wait(1.0):
            return
    raise AssertionError("nobody has noticed")
