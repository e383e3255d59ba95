"""What a warm-up is made from is the same in every run of a seed, in the same order, whichever phone is quicker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.reader import LogReader, decoded
from distrl.config import Config
from distrl.demonstrations import scripted
from distrl.demonstrations.recorded import run_recorded
from distrl.demonstrations.scripted import demonstration_tasks, run_demonstrations, script_seed
from distrl.errors import ConfigError, DeviceError, PolicyError
from distrl.recordings.folder import Found, dataset_of, episodes, files_of
from distrl.store.objects import open_store
from distrl.telemetry.monitor import Monitor
from distrl.types import Action, ActionKind, Task, Trajectory
from recording_files import android_control, example, screens, write
from served import phones_served

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PHONES = 4
COUNT = 12


def demonstrations(config: Config) -> list[tuple[object, ...]]:
    """What the warm-up reads of each demonstration, in the order of the log."""
    found = []
    with LogReader(config, "demonstrations") as reader:
        for raw in (raw for batch in reader.to_end() for raw in batch):
            made = decoded(raw, Trajectory)
            steps = [(step.screenshot.sha256, step.prompt_ids, step.action_ids, step.logprob) for step in made.steps]
            found.append((made.task_id, made.outcome, steps))
    return found


class Script(scripted.ImperfectScript):
    """One that fails at the demonstration with the seed `fails_at`, for its phone or for its policy."""

    fails_at = -1
    unwritable = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._fails = seed == self.fails_at

    def act(self, task: Task, state: Mapping[str, Any]) -> tuple[Action, float]:
        if self._fails and self.unwritable:
            return Action(ActionKind.INVALID), 0.0
        if self._fails:
            raise DeviceError("a test", "the phone is gone", "plug it in")
        return super().act(task, state)


def test_runs_have_the_same_demonstrations_in_the_same_order_though_one_was_stopped_and_one_failed(
    broker: str,
    adb_server: settings.AdbSettings,
    free_row: Callable[[int], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = free_row(PHONES)
    tree = {
        "kafka": {"bootstrap": broker},
        "store": {"url": f"file://{tmp_path}/objects"},
        "adb": adb_server.model_dump(),
        # The slowest of a handful of gestures takes many times as long as the quickest, so phones overtake each other.
        "phones": {
            "count": PHONES,
            "evaluation_count": 0,
            "base_port": first,
            "latency_median_ms": 5.0,
            "latency_sigma": 2.0,
        },
        "devices": {"addresses": tuple(f"127.0.0.1:{first + at}" for at in range(PHONES))},
    }
    one, other, failed = (Config.model_validate({**tree, "run": f"shown-{uuid.uuid4().hex[:8]}"}) for _ in range(3))
    with phones_served(one.phones, tmp_path):
        for config, counts in ((one, (COUNT,)), (other, (5, COUNT))):
            topic_admin.ensure(config)
            for count in counts:
                monitor = Monitor()
                run_demonstrations(config, count, threading.Event(), monitor)
                assert monitor.readiness().ok
                assert monitor.last is not None
                assert len(monitor.last.devices) == PHONES
                assert 0 <= monitor.last.metrics["demonstrations"] <= count
        topic_admin.ensure(failed)
        with monkeypatch.context() as patched:
            patched.setattr(scripted, "ImperfectScript", Script)
            patched.setattr(scripted, "RETRIES", 1)
            patched.setattr(Script, "fails_at", script_seed(demonstration_tasks(failed, 2)[1]))
            with pytest.raises(DeviceError, match=r"demo-1 could not be played: .*the phone is gone"):
                run_demonstrations(failed, 5, threading.Event())
            patched.setattr(Script, "unwritable", True)
            with pytest.raises(
                PolicyError, match=r"demo-1 \(`.*`\) needs the action .*, and this policy cannot write it"
            ):
                run_demonstrations(failed, 5, threading.Event())
        assert [task_id for task_id, _, _ in demonstrations(failed)] == ["demo-0"], "none behind the one that failed"
        run_demonstrations(failed, COUNT, threading.Event())
    made = demonstrations(one)
    assert [task_id for task_id, _, _ in made] == [f"demo-{number}" for number in range(COUNT)]
    assert demonstrations(other) == made
    assert demonstrations(failed) == made


def test_no_script_plays_where_people_have_demonstrated_enough(
    broker: str, adb_server: settings.AdbSettings, free_row: Callable[[int], int], tmp_path: Path
) -> None:
    """A warm-up from people's episodes was mixed with as many scripted ones."""
    first = free_row(1)
    config = Config.model_validate(
        {
            "kafka": {"bootstrap": broker},
            "store": {"url": f"file://{tmp_path}/objects"},
            "adb": adb_server.model_dump(),
            "phones": {"count": 1, "evaluation_count": 0, "base_port": first},
            "devices": {"addresses": (f"127.0.0.1:{first}",)},
            "run": f"shown-{uuid.uuid4().hex[:8]}",
        }
    )
    topic_admin.ensure(config)
    click = {"action_type": "click", "x": 1, "y": 1}
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "a", [example(android_control(each, [click])) for each in (5, 3)])
    files = files_of(tmp_path / "data")
    run_recorded(config, episodes(files, dataset_of(files)), None, threading.Event())
    theirs = demonstrations(config)
    assert len(theirs) == 2
    run_demonstrations(config, 2, threading.Event())
    assert demonstrations(config) == theirs
    with phones_served(config.phones, tmp_path):
        run_demonstrations(config, 3, threading.Event())
    assert [task_id for task_id, _, _ in demonstrations(config)][2:] == ["demo-0"]


def test_recorded_episodes_are_published_once_however_often_they_are_read(broker: str, tmp_path: Path) -> None:
    """The second reader dies in the middle, between two records; the third finds what is left, the fourth nothing."""
    config = Config.model_validate(
        {
            "kafka": {"bootstrap": broker},
            "store": {"url": f"file://{tmp_path}/objects"},
            "run": f"shown-{uuid.uuid4().hex[:8]}",
        }
    )
    topic_admin.ensure(config)
    click = {"action_type": "click", "x": 1, "y": 1}
    (tmp_path / "data").mkdir()
    numbers = (5, 3, 9, 3, 7)
    bad = example(android_control(8, [click]) | {"goal": [b"\xff"]})
    write(tmp_path / "data" / "a", [bad, *(example(android_control(each, [click])) for each in numbers)])
    files = files_of(tmp_path / "data")

    def found() -> Iterator[Found]:
        return episodes(files, dataset_of(files))

    def dying() -> Iterator[Found]:
        yield from islice(found(), 3)
        raise KeyboardInterrupt

    stop, everything = threading.Event(), {str(number) for number in numbers}
    with pytest.raises(ConfigError, match="no episode can be a demonstration: 5 episodes: left out"):
        run_recorded(config, found(), None, stop, without=everything)
    first = run_recorded(config, found(), 1, stop)
    assert (first.written, first.skipped) == (1, {"episodes: cannot be read": 1})
    with pytest.raises(KeyboardInterrupt):
        run_recorded(config, dying(), None, stop)
    third = run_recorded(config, found(), None, stop, without={"7"})
    assert (third.written, third.known, third.left_out, third.in_topic) == (1, 3, 1, 3)
    third, fourth = (run_recorded(config, found(), None, stop) for _ in range(2))
    assert (third.written, third.known, third.in_topic) == (1, 4, 4)
    assert (fourth.written, fourth.known, fourth.in_topic) == (0, 5, 4)
    made = demonstrations(config)
    assert [each[0] for each in made] == [f"android-control-{number}" for number in (5, 3, 9, 7)]
    store = open_store(config.store)
    with LogReader(config, "demonstrations") as reader:
        record = decoded(next(raw for batch in reader.to_end() for raw in batch), Trajectory)
    assert [store.get(step.screenshot) for step in record.steps] == screens(2, 5)
    late = run_recorded(config, found(), None, stop, without=everything)
    assert (late.left_out, late.already) == (0, 5), "what is published is not taken back"
    stop.set()
    assert run_recorded(config, found(), None, stop).written == 0
