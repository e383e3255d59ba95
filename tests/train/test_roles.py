"""The demo's child processes: who gets which phones, who may read the settings, and that nobody is left behind."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psutil
import pytest
import yaml
from distrl.clock import Clock
from distrl.config import Config, load
from distrl.errors import StackError
from distrl.stack import ports, processes
from distrl.stack.local import LocalStack
from distrl.stack.locks import held
from distrl.stack.processes import find_all, stop_all
from distrl.train.folder import LOCK, alone, link_to_stack
from distrl.train.restarts import PAUSES_S, SOON_S
from distrl.train.roles import Roles, is_second, running, stop_left, write_settings
from distrl.train.servers import Servers
from waiting import until

SECRETS = ["store.access_key=ada", "store.secret_key=hunter2-store", "kafka.security_protocol=SASL_SSL",
           "kafka.sasl_username=ada", "kafka.sasl_password=hunter2-kafka",
           "kafka.client.ssl.key.password=hunter2-key"]  # fmt: skip
LIMIT_S = 60.0
PHONES = "phones"  # a role that runs until it is asked to stop, and needs no server


@pytest.fixture
def config(tmp_path: Path) -> Config:
    port = ports.draw("the tests", count=2)
    sets = ["phones.count=1", "phones.evaluation_count=0", f"phones.base_port={port}"]
    return load(sets=[*sets, f"stack.directory={tmp_path / 'stack'}"], environ={})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "logs"
    stop_all(find_all(tmp_path / "logs"), 5.0)


def serves(folder: Path, name: str) -> bool:
    log = folder / f"{name}.log"
    return log.exists() and "ready: 1 simulated phones" in log.read_text()


def test_each_role_is_watched_at_a_port_of_its_own_and_keeps_it(config: Config, folder: Path) -> None:
    watched = Config.model_validate(config.model_dump() | {"monitoring": {"port": 9400}})
    with running(watched, folder) as roles:
        found = [roles.monitoring_port(name) for name in ("learner", "worker-0", "learner", "feeder")]
    assert found == [9400, 9401, 9400, 9402]


def test_the_settings_of_the_children_hold_every_secret_and_mean_the_same(tmp_path: Path) -> None:
    config = load(sets=["run=seven", f"stack.directory={tmp_path}", *SECRETS], environ={})
    write_settings(config, tmp_path / "settings.yaml")
    again = load(tmp_path / "settings.yaml", environ={})
    assert again == config
    assert {path: secret.get_secret_value() for path, secret in again.secrets().items()} == {
        "store.secret_key": "hunter2-store",
        "kafka.sasl_password": "hunter2-kafka",
        "kafka.client.ssl.key.password": "hunter2-key",
    }


@pytest.mark.parametrize("before", [None, 0o644, 0o666, 0o400])
def test_only_their_owner_may_read_the_settings(tmp_path: Path, before: int | None) -> None:
    file = tmp_path / "settings.yaml"
    if before is not None:
        file.write_text("old")
        file.chmod(before)
    loose = os.umask(0)
    try:
        write_settings(load(sets=SECRETS, environ={}), file)
    finally:
        os.umask(loose)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "hunter2-store" in file.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["settings.yaml"]


def test_a_reader_of_the_old_file_never_sees_the_secrets(tmp_path: Path) -> None:
    """Who opened the file while it was readable to all keeps reading what was in it then."""
    file = tmp_path / "settings.yaml"
    file.write_text("old")
    (tmp_path / "settings.new").write_text("left by a killed demo")
    (tmp_path / "settings.new").chmod(0o644)
    with file.open() as stranger, (tmp_path / "settings.new").open() as other:
        write_settings(load(sets=SECRETS, environ={}), file)
        assert stranger.read() == "old"
        assert other.read() == "left by a killed demo"


OBSERVED = """
import sys
from pathlib import Path
folder = Path(sys.argv[1])
seen = set()
print("looking", flush=True)
while not (folder / "done").exists():
    for file in folder.glob("settings*"):
        try:
            seen.add(file.stat().st_mode & 0o077)
        except FileNotFoundError:
            pass
print(seen)
"""


def test_the_settings_are_never_readable_in_between(tmp_path: Path) -> None:
    config = load(sets=SECRETS, environ={})
    (tmp_path / "watched").mkdir()
    line = [sys.executable, "-c", OBSERVED, str(tmp_path / "watched")]
    loose = os.umask(0)
    try:
        with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as observer:
            assert observer.stdout is not None
            observer.stdout.readline()
            for _ in range(200):
                write_settings(config, tmp_path / "watched" / "settings.yaml")
            (tmp_path / "watched" / "done").touch()
            assert observer.stdout.readline().strip() == "{0}"
    finally:
        os.umask(loose)


def test_a_role_is_started_with_the_settings_and_what_is_set_for_it_alone(config: Config, folder: Path) -> None:
    with running(config, folder) as roles:
        roles.start("fleet", PHONES, sets=["phones.count=1"])
        until(lambda: serves(folder, "fleet"))
        roles.check()
        assert not roles.finished("fleet")
        assert yaml.safe_load((folder / "settings.yaml").read_text())["phones"]["base_port"] == config.phones.base_port
    assert find_all(folder) == []


def test_a_role_goes_by_the_settings_and_not_by_variables_over_which_others_have_won(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISTRL_PHONES__COUNT", "many")
    monkeypatch.setenv("OTHER_VARIABLE", "stays")
    with running(config, folder) as roles:
        roles.start("fleet", PHONES)
        until(lambda: serves(folder, "fleet"))
        (child,) = find_all(folder)
        assert psutil.Process(child.pid).environ()["OTHER_VARIABLE"] == "stays"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_role_that_is_being_started_when_a_signal_comes_is_stopped_too(
    config: Config, folder: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """Between its start and the note of its pid nobody would find it."""
    others, birth_of = set(psutil.Process().children()), processes.birth_of

    def interrupted(pid: int) -> float:
        monkeypatch.setattr(processes, "birth_of", birth_of)  # once
        signal.raise_signal(number)
        return birth_of(pid)

    monkeypatch.setattr(processes, "birth_of", interrupted)
    before = signal.signal(number, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), running(config, folder) as roles:
            roles.start("fleet", PHONES)
    finally:
        signal.signal(number, before)
    assert find_all(folder) == []
    left = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
    assert set(left) <= others


def test_a_role_that_died_is_reported_with_its_log_and_the_end_of_it(config: Config, folder: Path) -> None:
    with running(config, folder, tries=1) as roles:
        roles.start("fleet", PHONES, sets=["phones.count=many"])
        until(lambda: not find_all(folder))
        for look in (roles.check, lambda: roles.finished("fleet")):
            with pytest.raises(StackError) as told:
                look()
            assert told.value.where == "fleet"
            assert "stopped with exit code 1" in told.value.what
            assert "phones.count: " in told.value.what, "the end of its log"
            assert str(folder / "fleet.log") in told.value.hint


def test_a_role_that_was_killed_is_reported(config: Config, folder: Path) -> None:
    with running(config, folder, tries=1) as roles:
        roles.start("fleet", PHONES)
        (child,) = find_all(folder)
        child.kill()
        until(lambda: not find_all(folder))
        with pytest.raises(StackError, match="stopped with exit code -9"):
            roles.check()


def test_a_server_that_has_ended_is_reported_before_the_roles_that_miss_it(config: Config, folder: Path) -> None:
    class Gone(Servers):
        def check(self) -> None:
            raise StackError("kafka", "has ended", "start it")

    with running(config, folder, Gone(LocalStack(config))) as roles:
        roles.start("fleet", PHONES, sets=["phones.count=many"])
        until(lambda: not find_all(folder))
        for look in (roles.check, lambda: roles.finished("fleet")):
            with pytest.raises(StackError, match="kafka: has ended"):
                look()


def test_a_role_that_ends_by_itself_is_done(config: Config, folder: Path) -> None:
    with running(config, folder) as roles:
        roles.start("tidying", "down")
        until(lambda: roles.finished("tidying"))
        roles.check()
    assert "nothing was running" in (folder / "tidying.log").read_text()


def test_a_role_that_somebody_else_asked_to_end_is_started_again(config: Config, folder: Path) -> None:
    """As a guard of the machine's memory does, or an administrator: it ends well, and the run would stand still."""
    with running(config, folder) as roles:
        roles.start("fleet", PHONES, stays=True)
        until(lambda: serves(folder, "fleet"))
        (child,) = find_all(folder)
        child.terminate()
        until(lambda: not find_all(folder))
        until(lambda: roles.check() is None and bool(find_all(folder)))
        assert roles.restarted == {"fleet": 1}


class UnforeseenError(Exception):
    pass


@pytest.mark.parametrize("error", [UnforeseenError, KeyboardInterrupt, SystemExit, StackError])
def test_nobody_is_left_however_the_block_ends(config: Config, folder: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), running(config, folder) as roles:  # noqa: PT012
        roles.start("one", PHONES)
        roles.start("two", PHONES, sets=[f"phones.base_port={config.phones.base_port + 1}"])
        until(lambda: serves(folder, "one") and serves(folder, "two"))
        assert {child.name for child in find_all(folder)} == {"one", "two"}
        raise error("a", "b", "c")
    assert find_all(folder) == []


INTERRUPTED = """
import sys, time
from pathlib import Path
from distrl.cli.common import stopped_how
from distrl.config import load
from distrl.train import roles as room
room.STOP_TIMEOUT_S = 300.0  # a test that waited for it would fail
from distrl.train.roles import running
try:
    with running(load(sets=sys.argv[3:], environ={}), Path(sys.argv[2])) as roles:
        roles.start("deaf", "phones")
        sys.stdin.readline()
        try:
            if sys.argv[1] == "in its work":
                print("working", flush=True)
                time.sleep(300)
        finally:
            try:
                print("stopping", flush=True)
                roles.stop("deaf")
            except KeyboardInterrupt:
                print("interrupted", flush=True)
                raise
except KeyboardInterrupt as interrupt:
    stopped_how(interrupt)
    raise
"""


@pytest.mark.parametrize(
    ("where", "before_each"),
    [("in its work", ("working", "stopping")), ("in an orderly stop", ("stopping", "interrupted"))],
)
def test_the_second_ctrl_c_kills_and_leaves_nobody(
    config: Config, folder: Path, where: str, before_each: tuple[str, str]
) -> None:
    """where: is the first one, at which the roles are stopped in order; a deaf one would hold that up."""
    sets = [f"phones.base_port={config.phones.base_port}", "phones.count=1", "phones.evaluation_count=0"]
    line = [sys.executable, "-c", INTERRUPTED, where, str(folder), *sets]
    with subprocess.Popen(
        line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as demo:
        assert demo.stdin is not None
        assert demo.stdout is not None
        try:
            until(lambda: serves(folder, "deaf"))
            (deaf,) = (child for child in find_all(folder) if child.name == "deaf")
            os.kill(deaf.pid, signal.SIGSTOP)  # so that it hears no SIGTERM
            demo.stdin.write("go\n")
            demo.stdin.flush()
            for known in before_each:
                assert demo.stdout.readline() == f"{known}\n"
                demo.send_signal(signal.SIGINT)
            said = demo.communicate(timeout=LIMIT_S)[1]
        finally:
            demo.kill()
    assert "KeyboardInterrupt" in said
    assert "stopped at once: nothing that was learned is lost" in said
    assert find_all(folder) == []


@pytest.mark.parametrize(
    ("errors", "second"),
    [
        ([KeyboardInterrupt], False),
        ([TimeoutError, KeyboardInterrupt], False),
        ([KeyboardInterrupt, KeyboardInterrupt], True),
        ([KeyboardInterrupt, TimeoutError, KeyboardInterrupt], True),
    ],
)
def test_a_second_ctrl_c_is_known_whatever_was_handled_when_it_came(
    errors: list[type[BaseException]], second: bool
) -> None:
    def raised(*kinds: type[BaseException]) -> None:
        """The last of them, while those before it are handled."""
        if kinds:
            try:
                raised(*kinds[:-1])
            finally:
                raise kinds[-1]

    with pytest.raises(KeyboardInterrupt) as found:
        raised(*errors)
    assert is_second(found.value) is second


def test_what_a_killed_demo_left_behind_is_stopped_first(config: Config, folder: Path) -> None:
    abandoned = Roles(config, folder)
    abandoned.start("fleet", PHONES)
    until(lambda: serves(folder, "fleet"))
    (left,) = find_all(folder)
    with running(config, folder) as roles:
        assert not left.lives()
        roles.start("fleet", PHONES)
        assert {child.name for child in find_all(folder)} == {"fleet"}
    assert find_all(folder) == []


def test_what_a_killed_training_of_another_run_left_behind_is_stopped_too(config: Config, tmp_path: Path) -> None:
    """It would hold the phones, and go on with the servers of this one."""
    abandoned = Roles(config, tmp_path / "other" / "logs")
    abandoned.start("fleet", PHONES)
    (tmp_path / "latest").symlink_to("other")
    until(lambda: serves(tmp_path / "other" / "logs", "fleet"))
    (left,) = find_all(tmp_path / "other" / "logs")
    stop_left(tmp_path)
    assert not left.lives()
    stop_left(tmp_path)


@pytest.mark.parametrize("trains", [False, True])
def test_down_stops_the_roles_that_a_killed_training_has_left_and_none_of_another(
    config: Config, tmp_path: Path, trains: bool
) -> None:
    """trains: whether somebody trains in that folder now, on another stack."""
    out = tmp_path / "out"
    line = [sys.executable, "-m", "distrl.cli.main", "down", "-s", f"stack.directory={config.stack.directory}"]
    with alone(config, out, "distrl train"):
        link_to_stack(config, out)
    abandoned = Roles(config, out / "one" / "logs")
    abandoned.start("fleet", PHONES)
    try:
        until(lambda: serves(out / "one" / "logs", "fleet"))
        with held(out / LOCK, "distrl train") if trains else nullcontext():
            subprocess.run(line, check=True, timeout=LIMIT_S)
        assert [child.name for child in find_all(out / "one" / "logs")] == (["fleet"] if trains else [])
    finally:
        abandoned.stop()


def test_runs_may_be_in_the_folder_of_the_stack(config: Config, tmp_path: Path) -> None:
    """The training was refused by its own lock."""
    (tmp_path / "out").symlink_to(config.stack.directory)
    config.stack.directory.mkdir()
    refused = rf"distrl train \(process {os.getpid()}\) holds this lock"
    for out in (config.stack.directory, tmp_path / "out"):
        with (
            alone(config, out, "distrl train"),
            pytest.raises(StackError, match=refused),
            alone(config, out, "another"),
        ):
            pass


def test_a_role_runs_once(config: Config, folder: Path) -> None:
    with running(config, folder) as roles:
        roles.start("fleet", PHONES)
        with pytest.raises(StackError, match="runs already as process"):
            roles.start("fleet", PHONES)


def test_stopping_some_leaves_the_others_and_an_unknown_name_is_no_matter(config: Config, folder: Path) -> None:
    with running(config, folder) as roles:
        roles.start("one", PHONES)
        roles.start("two", PHONES, sets=[f"phones.base_port={config.phones.base_port + 1}"])
        roles.stop("one", "never-started")
        assert [child.name for child in find_all(folder)] == ["two"]
        roles.stop()
        roles.stop()
        assert find_all(folder) == []


class Ticks:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_role_that_was_killed_is_started_again_after_its_pause(
    config: Config, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = Ticks()
    roles = Roles(config, folder, clock=Clock(ticks=ticks))
    try:
        roles.start("fleet", PHONES)
        until(lambda: serves(folder, "fleet"))
        ticks.now = SOON_S
        (child,) = find_all(folder)
        child.kill()
        until(lambda: not find_all(folder))
        roles.check()
        assert roles.restarted == {"fleet": 1}
        assert "fleet ended with exit code -9 and is started again in 1 s" in caplog.text
        ticks.now += PAUSES_S[0] / 2
        roles.check()
        assert find_all(folder) == [], "not before its pause is over"
        assert not roles.finished("fleet")
        ticks.now += PAUSES_S[0]
        roles.check()
        (again,) = find_all(folder)
        assert again.pid != child.pid
    finally:
        roles.stop()
    assert find_all(folder) == []
