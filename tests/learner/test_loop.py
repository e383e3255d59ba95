"""What the learner reads, while it waits and for a checkpoint: its loop, with readers that stand for a broker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import factories
import pytest
from distrl.broker import versions
from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History
from distrl.broker.reader import RawRecord
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError
from distrl.learner import intake, loop, saving
from distrl.learner.newest_version import NewestVersionWatch
from distrl.learner.ranks import Leader
from distrl.learner.recover import Log, Recovered
from distrl.learner.state import LearnerState
from distrl.store.adapters import put_adapter
from distrl.store.checkpoints import checkpoints
from distrl.store.directory import DirectoryStore
from distrl.store.objects import ObjectStore
from distrl.telemetry.monitor import Monitor, Reporter
from distrl.telemetry.tracing import OFF
from distrl.types import LogPosition, Outcome
from distrl.wire.codec import encode

from learner.world import Screens, logged, trajectory, update_of

READ_AHEAD = 20
BATCH = 4
TURNS = 30


class Nothing:
    """Stands for what a loop that makes no update hardly calls."""

    def __getattr__(self, name: str) -> Nothing:
        return self

    def __call__(self, *arguments: Any, **named: Any) -> Nothing:
        return self

    def __bool__(self) -> bool:
        return False

    def __float__(self) -> float:
        return 0.0


class Reader:
    """An endless topic of trajectories, and one of `demonstrations` demonstrations. Sets `stop` after TURNS reads of
    the latter."""

    demonstrations = 0
    kind = "demo"
    stop = threading.Event()
    given: dict[str, int]

    def __init__(self, config: Config, name: str, *_: Any, **__: Any) -> None:
        self._name, self._topic = name, topic_name(config.run, name)
        self._turns = 0

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @property
    def caught_up(self) -> bool:
        return self._turns > 1

    def read(self, timeout_s: float, most: int) -> list[RawRecord]:
        self._turns += 1
        expert, begin = self._name == "demonstrations", self.given[self._name]
        if expert and self._turns == TURNS:
            self.stop.set()
        count = min(BATCH, self.demonstrations - begin) if expert else BATCH
        self.given[self._name] += count
        kind = self.kind if expert else "task"
        made = [
            trajectory(SCREENS, seed, steps=1, expert=expert, task_id=f"{kind}-{seed}")
            for seed in range(begin, begin + count)
        ]
        return [
            RawRecord(LogPosition(self._topic, 0, begin + i), each.task_id.encode(), encode(each), 0)
            for i, each in enumerate(made)
        ]


SCREENS = Screens()


def loop_of(
    settings: Config, store: ObjectStore, state: LearnerState, stop: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> loop.Loop:
    """A loop that sends nothing."""
    for sender in ("DeadLetters", "DrawsSender", "FiguresSender"):
        monkeypatch.setattr(loop, sender, Nothing())
    nothing: Any = Nothing()
    return loop.Loop(
        settings,
        store,
        nothing,
        nothing,
        Reporter(nothing, Monitor()),
        nothing,
        Recovered(state, IdSet()),
        History(),
        Log({}, ""),
        stop,
        None,
        OFF,
        NewestVersionWatch(settings),
    )


ROOM = 700
"""Token ids."""


def ids(count: int, *, expert: bool) -> int:
    """Token ids of the first `count` records of a topic."""
    made = [trajectory(SCREENS, seed, steps=1, expert=expert) for seed in range(count)]
    return sum(len(step.prompt_ids) + len(step.action_ids) for each in made for step in each.steps)


@pytest.mark.parametrize("limit", ["READ_AHEAD", "READ_AHEAD_IDS"])
@pytest.mark.parametrize(
    ("kind", "command"),
    [("demo", "distrl demonstrate --count 6"), ("aitw", "distrl demonstrate --episodes FOLDER --count 6")],
)
def test_while_update_0_waits_for_demonstrations_no_more_trajectories_are_read_than_memory_is_for(
    settings: Config,
    kind: str,
    command: str,
    limit: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A run whose demonstrations are made again, or are too few, has all of its trajectories in the log already."""
    monkeypatch.setattr(Reader, "kind", kind)
    monkeypatch.setattr(Reader, "demonstrations", settings.warmup.demonstrations - 1)
    monkeypatch.setattr(Reader, "stop", stop := threading.Event())
    monkeypatch.setattr(Reader, "given", given := {"demonstrations": 0, "trajectories": 0}, raising=False)
    monkeypatch.setattr(intake, "LogReader", Reader)
    monkeypatch.setattr(versions, "read_since", lambda config, topic, start: iter(()))
    monkeypatch.setattr(loop, limit, READ_AHEAD if limit == "READ_AHEAD" else ROOM)
    caplog.set_level(logging.INFO, logger="distrl.learner")
    nothing: Any = Nothing()
    learner = loop_of(settings, nothing, LearnerState(settings), stop, monkeypatch)
    with ExitStack() as readers:
        learner.follow(readers)
        learner.work()
    assert given["demonstrations"] == settings.warmup.demonstrations - 1, "these are read on, as they are waited for"
    if limit == "READ_AHEAD":
        assert READ_AHEAD <= sum(given.values()) < READ_AHEAD + BATCH
    else:
        shown = ids(given["demonstrations"], expert=True)
        assert shown + ids(given["trajectories"] - BATCH, expert=False) < ROOM
        assert shown + ids(given["trajectories"], expert=False) >= ROOM
    said = [record.getMessage() for record in caplog.records if "update 0 waits" in record.getMessage()]
    assert said == [
        "update 0 waits: 5 demonstrations are there, and warmup.demonstrations=6 are wanted; "
        f"`{command}` publishes what is missing"
    ]


def test_an_update_that_could_learn_from_nothing_says_why(
    settings: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where no task has a check and no judge is asked: versions came, and looked like learning."""
    monkeypatch.setattr(versions, "read_since", lambda config, topic, start: iter(()))
    nothing: Any = Nothing()
    learner = loop_of(settings, nothing, LearnerState(settings), threading.Event(), monkeypatch)
    window = logged([trajectory(SCREENS, seed, outcome=Outcome.UNKNOWN) for seed in range(2)])
    for skipped in (1.0, 2.0):
        metrics = {"trajectories": 2.0, "skipped": skipped}
        learner._leader = cast("Leader", SimpleNamespace(fold=lambda *_, metrics=metrics: metrics))
        with caplog.at_level(logging.WARNING, "distrl.learner"):
            learner._fold(window, update_of(0, window, (), settings))
        said = [record.getMessage() for record in caplog.records]
        assert len(said) == (skipped == 2.0)
    assert said[0].startswith("update 0 could learn from none of its 2 trajectories: outcome unknown (2);")


def test_a_broker_that_is_away_as_update_0_is_due_is_waited_for(
    settings: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Reader, "demonstrations", settings.warmup.demonstrations)
    monkeypatch.setattr(Reader, "given", {"demonstrations": 0, "trajectories": 0}, raising=False)
    monkeypatch.setattr(intake, "LogReader", Reader)
    monkeypatch.setattr(versions, "read_since", lambda config, topic, start: iter(()))
    answers: list[BrokerError | ConfigError] = [
        BrokerError("kafka.bootstrap", "no broker answers", "start it"),
        ConfigError("learner.seed", "was changed", "start again"),
    ]

    def refuse_changed(_: Config) -> None:
        raise answers.pop(0)

    monkeypatch.setattr(loop, "refuse_changed", refuse_changed)
    nothing: Any = Nothing()
    learner = loop_of(settings, nothing, LearnerState(settings), threading.Event(), monkeypatch)
    with ExitStack() as readers:
        learner.follow(readers)
        with pytest.raises(ConfigError, match="was changed"):
            learner.work()
    assert "waiting for the broker: kafka.bootstrap: no broker answers" in caplog.text


def test_the_first_checkpoint_reads_only_the_versions_that_came_since_the_start(
    settings: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = settings.model_copy(update={"learner": settings.learner.model_copy(update={"keep_adapters": 5})})
    topic = topic_name(kept.run, "versions")
    log = [RawRecord(LogPosition(topic, 0, at), b"", encode(factories.version(at)), 0) for at in range(3)]
    read = list[int]()

    def read_since(config: Config, name: str, start: Mapping[int, int]) -> Iterator[RawRecord]:
        found = log[start.get(0, 0) :]
        read.append(len(found))
        return iter(found)

    monkeypatch.setattr(versions, "read_since", read_since)
    state, stop = LearnerState(kept), threading.Event()
    learner = loop_of(kept, DirectoryStore(tmp_path), state, stop, monkeypatch)
    state.u = 1  # so that there is something to save
    stop.set()
    with ExitStack() as readers:
        monkeypatch.setattr(intake, "LogReader", Reader)
        learner.follow(readers)
        learner.work()
    assert checkpoints(DirectoryStore(tmp_path), kept.run) == [1]
    assert read == [3, 1], "the last of them again, to see that the log has it still"


def test_an_adapter_that_is_published_again_is_neither_being_deleted_nor_deleted_later(
    settings: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a void line: the weights of an old version become the newest one while a checkpoint is under way."""
    kept = settings.model_copy(update={"learner": settings.learner.model_copy(update={"keep_adapters": 1})})
    store, state = DirectoryStore(tmp_path), LearnerState(kept)
    state.u = kept.warmup.updates
    again, newest = (put_adapter(store, kept.run, weights) for weights in (state.policy.adapter(), b"newest"))
    log = [factories.version(0, adapter=again, update=0), factories.version(1, adapter=newest, update=1)]
    topic, pruning, announced = topic_name(kept.run, "versions"), threading.Event(), list[frozenset[str]]()
    records = [RawRecord(LogPosition(topic, 0, at), b"", encode(each), 0) for at, each in enumerate(log)]

    def prune(config: Config, store: ObjectStore, lineage: Any, named: Any, read: Any, stay: frozenset[str]) -> None:
        announced.append(stay)
        assert pruning.wait(60.0)
        if again.key not in stay:
            store.delete(again.key)

    monkeypatch.setattr(versions, "read_since", lambda *_: iter(records))
    monkeypatch.setattr(saving, "prune_adapters", prune)
    learner = loop_of(kept, store, state, threading.Event(), monkeypatch)
    monkeypatch.setattr(learner._intake, "read", lambda _: pruning.set())  # what it does while it waits
    with ExitStack() as readers:
        monkeypatch.setattr(intake, "LogReader", Reader)
        learner.follow(readers)
        learner._checkpoint()
        learner._publish()
        pruning.set()
        learner._settle()
        assert store.get(again) == state.policy.adapter()
        learner._checkpoint()
        learner._settle()
    assert announced == [{newest.key}, {again.key}], "the log may not show the version that was just published"
    assert store.get(again) == state.policy.adapter()
