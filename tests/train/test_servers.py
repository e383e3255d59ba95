"""The servers of a training that end under it, on a stack of a real adb server, the one part that starts in no time.
All parts: integration/test_train.py."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from adb_alone import adb_alone
from distrl.clock import Clock
from distrl.config import Config, load
from distrl.device.server import AdbServer
from distrl.errors import StackError
from distrl.stack import ports
from distrl.stack.local import LocalStack, TakenDownError, connect
from distrl.stack.processes import Child, find_all, stop_all
from distrl.train.restarts import PAUSES_S, SOON_S
from distrl.train.servers import Servers
from waiting import until


class Ticks:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Up:
    """A stack that is up, and who looks after it."""

    given: Config
    config: Config
    """With the adb server's address."""
    stack: LocalStack
    servers: Servers
    ticks: Ticks

    def child(self) -> Child:
        (child,) = find_all(self.given.stack.directory)
        return child

    def kill(self) -> int:
        """Returns the pid of the server that was killed."""
        child = self.child()
        child.kill()
        until(lambda: not child.lives())
        return child.pid

    def serves(self) -> bool:
        return ports.listens(self.config.adb.port)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    def make(tries: int = 4, owner: str = "") -> Up:
        fixed = adb_alone(tmp_path)
        given, ticks = load(sets=fixed, environ={}), Ticks()
        stack = LocalStack(given, owner=owner)
        config = stack.up(reuse=True)
        return Up(given, config, stack, Servers(stack, tries, Clock(ticks=ticks)), ticks)

    yield make
    stop_all(find_all(tmp_path / "stack"), 5.0)


def test_a_server_that_was_killed_serves_again_at_its_port_after_a_pause(
    up: Callable[..., Up], caplog: pytest.LogCaptureFixture
) -> None:
    found = up(owner="distrl train")
    found.servers.check()
    found.ticks.now = SOON_S
    killed = found.kill()
    found.servers.check()
    assert f"adb at 127.0.0.1:{found.config.adb.port} has ended" in caplog.text
    found.ticks.now += PAUSES_S[0] / 2
    found.servers.check()
    assert not found.serves(), "not before its pause is over"
    found.ticks.now += PAUSES_S[0]
    found.servers.check()
    assert found.serves()
    assert found.child().pid != killed
    assert found.servers.restarted == {"adb": 1}
    assert connect(found.given).adb == found.config.adb, "who comes later finds it there"
    found.servers.check()
    assert found.servers.restarted == {"adb": 1}
    assert found.stack.down_own() == ["adb"], "it belongs to whom it belonged to"


def test_a_server_that_the_user_has_started_stays_the_users(up: Callable[..., Up]) -> None:
    up()
    found = up(owner="distrl train")
    found.kill()
    found.servers.check()
    found.ticks.now = SOON_S
    found.servers.check()
    assert found.serves()
    assert found.stack.down_own() == []


def test_one_that_ends_again_and_again_is_given_up_with_the_end_of_its_log(up: Callable[..., Up]) -> None:
    found = up(tries=2)
    found.kill()
    found.servers.check()
    found.ticks.now = SOON_S - 1
    found.servers.check()
    assert found.serves()
    found.kill()
    with pytest.raises(StackError, match=r"adb: at .* has ended; the end of .*adb\.log") as refused:
        found.servers.check()
    assert "continues" in refused.value.hint


def test_a_server_that_another_command_has_stopped_stays_so(up: Callable[..., Up]) -> None:
    found = up()
    LocalStack(found.given).down()
    found.servers.check()
    found.ticks.now = SOON_S
    with pytest.raises(TakenDownError, match=r"adb: at .* was stopped by another command") as refused:
        found.servers.check()
    assert "continues" in refused.value.hint
    assert not found.serves()


def test_an_adb_server_that_a_worker_has_started_in_its_place_is_the_stacks(up: Callable[..., Up]) -> None:
    """Who misses an adb server starts one, at once; it must not be left when the training ends."""
    found = up(owner="distrl train")
    found.kill()
    with AdbServer(found.config.adb) as of_a_worker:
        found.servers.check()
        found.ticks.now = SOON_S
        found.servers.check()
        assert found.child().pid == of_a_worker.pid
        assert found.stack.ended() == []
        assert found.stack.down_own() == ["adb"]
        assert not found.serves()


def test_one_whose_port_another_program_has_meanwhile_is_tried_again(
    up: Callable[..., Up], caplog: pytest.LogCaptureFixture
) -> None:
    found = up()
    found.ticks.now = SOON_S
    found.kill()
    found.servers.check()
    found.ticks.now += PAUSES_S[0]
    with closing(socket.create_server((ports.HOST, found.config.adb.port))):
        found.servers.check()
        assert f"adb does not start again: adb.port: port {found.config.adb.port} of 127.0.0.1 is in use" in caplog.text
    found.ticks.now += PAUSES_S[0] / 2
    found.servers.check()
    assert not found.serves()
    found.ticks.now += PAUSES_S[0]
    found.servers.check()
    assert found.serves()
