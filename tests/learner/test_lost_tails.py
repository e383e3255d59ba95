"""Logs that lose their tails at random, each on its own, under a learner that is killed at random: the journal's rule,
the numbers of versions and the choice of a checkpoint, in thousands of lives.

The log, the broker and the weights are plain lists and digests here, and the order of the steps is that of Loop.redo
and Loop.work; tests/faults loses the tails of a real broker's files, some lives a minute.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

from distrl.broker.journal import History, in_force
from distrl.learner.choose_checkpoint import Saved, beyond, chain, marks, not_in_log, not_of_journal
from distrl.learner.publish import Publisher, publishes
from distrl.learner.state import LearnerState
from distrl.store.objects import MissingObjectError, ObjectStore, reference
from distrl.types import ObjectRef, Update, Version, Watermark
from hypothesis import given, settings
from hypothesis import strategies as st

PLACE = ("t", 0)
WARMUP, CHECKPOINT_EVERY, WINDOW = 2, 3, 2
STARTS = 12
"""A learner that begins again more often without a kill or a loss does so for ever."""


class Killed(Exception):  # noqa: N818 - no error
    """The learner's process, somewhere."""


class Objects:
    """A store in memory, without what no publisher asks for."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def put(self, kind: str, data: bytes, suffix: str, day: str | None = None) -> ObjectRef:
        found = reference(kind, data, suffix, day)
        self._objects.setdefault(found.key, data)
        return found

    def get(self, ref: ObjectRef) -> bytes:
        if ref.key not in self._objects:
            raise MissingObjectError(ref.key, "is gone", "")
        return self._objects[ref.key]

    def put_named(self, key: str, data: bytes) -> None:
        self._objects[key] = data

    def get_named(self, key: str) -> bytes | None:
        return self._objects.get(key)

    def list(self, prefix: str) -> Iterator[str]:
        return iter(sorted(key for key in self._objects if key.startswith(prefix)))

    def delete(self, key: str) -> None:
        self._objects.pop(key, None)


class Checkpoint(NamedTuple):
    saved: Saved
    weights: str
    watermarks: tuple[Watermark, ...]
    folded: list[int]
    """The records before it."""


@dataclass
class World:
    """A run's logs, checkpoints and store; `live` is one life of its learner."""

    rule: random.Random
    publish_every: int
    kills: float = 0.0
    """Share of the steps at which the learner is killed."""
    records: list[int] = field(default_factory=list)
    journal: list[Update] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    hidden: int = 0
    """Of the last versions: in the log, and shown with the next one's transaction."""
    store: Objects = field(default_factory=Objects)
    checkpoints: dict[int, Checkpoint] = field(default_factory=dict)
    meanings: dict[int, tuple[int, str]] = field(default_factory=dict)
    made: int = 0

    @property
    def config(self) -> Any:
        learner = SimpleNamespace(publish_every=self.publish_every, keep_adapters=None)
        return SimpleNamespace(run="r", warmup=SimpleNamespace(updates=WARMUP), learner=learner)

    @property
    def visible(self) -> list[Version]:
        return self.versions[: len(self.versions) - self.hidden]

    def feed(self, until: int) -> None:
        while len(self.records) < until:
            self.made += 1
            self.records.append(self.made)

    def may_be_killed(self) -> None:
        if self.rule.random() < self.kills:
            raise Killed

    def append(self, line: Update) -> None:
        self.may_be_killed()
        self.journal.append(line)
        self.may_be_killed()

    def publish(self, version: Version) -> None:
        self.may_be_killed()
        self.hidden = 0
        self.versions.append(version)
        for each in self.versions:
            meant = each.update, each.adapter.sha256
            assert self.meanings.setdefault(each.version, meant) == meant, "no number has a second meaning"
        self.may_be_killed()

    def lose_power(self) -> None:
        shown = len(self.visible)
        for log in (self.records, self.journal, self.versions):
            if self.rule.random() < 0.7:
                del log[self.rule.randrange(len(log) + 1) :]
        self.hidden = max(0, len(self.versions) - shown)
        if 0 < len(self.versions) < shown and self.rule.random() < 0.5:
            self.hidden = 1  # its record is left, and the marker of its transaction is not
        if self.rule.random() < 0.5:
            for u in sorted(self.checkpoints, reverse=True)[: self.rule.randrange(len(self.checkpoints) + 1)]:
                del self.checkpoints[u]

    def why_not(self, checkpoint: Checkpoint, history: History) -> str | None:
        """As recover.py; the content of all records is compared, where it compares those of buffers and windows."""
        why = not_of_journal(checkpoint.saved, history.updates)
        why = why or not_in_log(checkpoint.saved, {PLACE: (0, len(self.records))})
        other = self.records[: len(checkpoint.folded)] != checkpoint.folded
        return why or ("the log holds other records" if other else None)

    def live(self, updates: int) -> bool:
        """Recover, redo and work for so many updates; True where the learner has to begin again."""
        history, versions = History.of(self.journal), self.visible
        why_not = {u: self.why_not(each, history) for u, each in self.checkpoints.items()}
        usable = max((u for u, why in why_not.items() if why is None), default=None)
        refused = {u for u in self.checkpoints if usable is None or u > usable}
        begun = None if usable is None else self.checkpoints[usable]
        learner = Learner(self, history, begun)
        publisher = learner.publisher
        publisher.look_up_reserved()
        lost = beyond(history, versions, publisher.reserved)
        publisher.due(learner.state)
        for line in history.updates[learner.u :]:
            if sha256(self.window(learner.at, offset(line.watermarks))) != line.window_sha256:
                learner.make_void("the log lacks records", refused)
                return True
            learner.apply(line)
        if lost:
            learner.make_void("the journal lacks updates", refused)
            return True
        publisher.settle(learner.state)
        self.delete(refused)
        for _ in range(updates):
            end = learner.at + (WINDOW if learner.u != 1 else 0)
            self.feed(end)
            mark, window = (Watermark(*PLACE, end),), sha256(self.window(learner.at, end))
            line = Update(learner.u, mark, "f", 1, (), window, "ids", publisher.highest)
            self.append(line)
            publisher.journalled(line)
            learner.apply(line)
        return False

    def delete(self, refused: set[int]) -> None:
        for u in refused:
            self.checkpoints.pop(u, None)

    def window(self, begin: int, end: int) -> list[int]:
        return self.records[begin:end]

    def check(self) -> None:
        """A fold of what is left gives the weights of every version that counts, and the newest one counts."""
        history, weights, at = History.of(self.journal), "fresh", 0
        after = dict[int, str]()
        for line in history.updates:
            end = offset(line.watermarks)
            assert sha256(self.window(at, end)) == line.window_sha256
            weights, at = folded(weights, line.u, self.window(at, end)), end
            after[line.u] = sha256_of_weights(weights)
        counting = in_force(self.visible, history)
        shown = [each for each in counting if each.update in after]  # one that has just shown is void at the next start
        assert [each.adapter.sha256 for each in shown] == [after[each.update] for each in shown]
        assert counting[-1] == self.visible[-1]
        recent = range(max(WARMUP - 1, len(history.updates) - 4), len(history.updates))
        due = {u for u in recent if publishes(u + 1, self.config)}
        assert due <= {each.update for each in counting}


class Learner:
    """The state of one life, and its publisher."""

    def __init__(self, world: World, history: History, begun: Checkpoint | None) -> None:
        self.world = world
        self.u = 0 if begun is None else begun.saved.u
        self.weights = "fresh" if begun is None else begun.weights
        self.watermarks = () if begun is None else begun.watermarks
        self._chain = chain(history.updates[: self.u])
        self._saved = self.u
        store = cast(ObjectStore, world.store)
        self.publisher = Publisher(world.config, store, world.publish, world.visible, lambda: 1, history)

    @property
    def at(self) -> int:
        return offset(self.watermarks)

    @property
    def state(self) -> LearnerState:
        policy = SimpleNamespace(adapter=self.weights.encode, base_sha256="b" * 64)
        return cast(LearnerState, SimpleNamespace(u=self.u, policy=policy, fingerprint="f"))

    def apply(self, line: Update) -> None:
        window = self.world.window(self.at, offset(line.watermarks))
        self.weights = folded(self.weights, line.u, window)
        self.u, self.watermarks, self._chain = line.u + 1, line.watermarks, chain([line], self._chain)
        self.publisher.due(self.state)
        if self.u % CHECKPOINT_EVERY == 0:
            self.checkpoint()

    def checkpoint(self) -> None:
        self.world.may_be_killed()
        saved = Saved(self.u, marks(self.watermarks), (), self._chain)
        kept = self.world.checkpoints
        kept[self.u] = Checkpoint(saved, self.weights, self.watermarks, self.world.window(0, self.at))
        for old in sorted(kept)[:-2]:
            del kept[old]

    def make_void(self, why: str, refused: set[int]) -> None:
        self.publisher.look_up_reserved()
        self.world.append(
            Update(self.u, self.watermarks, "f", 1, log_id="ids", version=self.publisher.highest, void=why)
        )
        self.world.delete(refused)
        if self.u != self._saved:
            self.checkpoint()


def offset(watermarks: Sequence[Watermark]) -> int:
    return watermarks[0].offset if watermarks else 0


def sha256(window: Sequence[int]) -> str:
    return hashlib.sha256(repr(window).encode()).hexdigest() if window else ""


def folded(weights: str, u: int, window: Sequence[int]) -> str:
    return hashlib.sha256(f"{weights} {u} {window}".encode()).hexdigest()


def sha256_of_weights(weights: str) -> str:
    return hashlib.sha256(weights.encode()).hexdigest()


def live(world: World, updates: int) -> None:
    for _ in range(STARTS):
        if not world.live(updates):
            return
    raise AssertionError(f"the learner has begun again {STARTS} times")


@settings(max_examples=4_000, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_tails_are_lost_and_wherever_the_learner_is_killed_versions_that_count_are_those_of_a_fresh_fold(
    seed: int,
) -> None:
    rule = random.Random(seed)
    world = World(rule, publish_every=rule.choice([1, 1, 2]))
    for _ in range(rule.randrange(1, 7)):
        world.kills = rule.choice([0, 0.03, 0.1])
        with suppress(Killed):
            live(world, rule.randrange(6))
        if rule.random() < 0.6:
            world.lose_power()
    world.kills = 0.0
    for updates in (4, 2):
        live(world, updates)
        world.check()
