"""The bound on the lag, held in a small world where phones are arbitrarily slow and views arbitrarily stale."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field, replace

import factories
import pytest
from distrl.feeder.admission import Admission, Progress
from distrl.feeder.facts import TaskFacts
from distrl.feeder.state import FeederState
from distrl.types import ObjectRef, Outcome, Skipped, Task, Trajectory, Update, Version, Watermark
from hypothesis import given, settings
from hypothesis import strategies as st

TOPIC = "distrl.test.trajectories"
REF = ObjectRef("k", "s", 1)


def task_at(index: int) -> Task:
    return factories.task(f"t-{index}", family=f"family-{index % 3}", max_steps=4, phone_seed=index)


def played(task: Task, outcome: Outcome, *versions: int) -> Trajectory:
    return factories.trajectory(task, (factories.step(version=version) for version in versions), outcome=outcome)


def ledger_of(admission: Admission, curriculum: bool = False, max_retries: int = 3) -> FeederState:
    return FeederState(("family-0", "family-1", "family-2"), task_at, admission, TaskFacts(max_retries), curriculum)


def version(number: int, update: int) -> Version:
    return factories.version(number, update=update)


@dataclass
class World:
    """Logs, a feeder that reads them late, slow phones, and a learner that folds exactly K that count."""

    admission: Admission
    chance: random.Random
    interrupts: float
    warmup: int = 5
    tasks: list[Task] = field(default_factory=list)
    running: list[Task] = field(default_factory=list)
    trajectories: list[Trajectory] = field(default_factory=list)
    versions: list[Version] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    lags: list[int] = field(default_factory=list)
    folded: int = 0
    publishing: Version | None = None

    def __post_init__(self) -> None:
        self.start_feeder(self.admission)
        self.versions.append(version(0, self.warmup - 1))
        self.updates += [Update(u, (), "f", 0) for u in range(self.warmup)]

    def start_feeder(self, admission: Admission) -> None:
        """A feeder that knows what was fed and has read nothing else yet."""
        self.state = ledger_of(admission, max_retries=1_000)
        self.read = dict.fromkeys(("trajectories", "versions", "updates"), 0)
        for task in self.tasks:
            self.state.facts.see_task(task)

    def feed(self) -> None:
        """Read some of what is there, topic by topic, then feed what the state says."""
        for name in self.chance.sample(sorted(self.read), 3):
            log = getattr(self, name)
            upto = self.chance.choice((len(log), self.chance.randint(self.read[name], len(log))))
            for offset in range(self.read[name], upto):
                match name:
                    case "trajectories":
                        self.state.facts.see_trajectory(offset, log[offset])
                    case "versions":
                        self.state.facts.see_version(log[offset])
                    case _:
                        self.state.facts.see_update(log[offset], TOPIC)
            self.read[name] = upto
        due = self.state.due(0)
        self.tasks += due
        self.running += due

    def finish(self) -> None:
        """One of the running tasks, any one, ends; its steps were chosen by versions that its worker may have had."""
        if not self.running:
            return
        task = self.running.pop(self.chance.randrange(len(self.running)))
        newest = self.versions[-1].version
        loaded = sorted(self.chance.randint(task.fed_version, newest) for _ in range(2))
        outcome = Outcome.INTERRUPTED if self.chance.random() < self.interrupts else Outcome.SUCCESS
        self.trajectories.append(played(task, outcome, *loaded))

    def learn(self) -> None:
        """Journal an update if there are K that count, or publish the version of the last one."""
        if self.publishing is not None:
            self.versions.append(self.publishing)
            self.publishing = None
            return
        counting = [n for n in range(self.folded, len(self.trajectories)) if self._counts(n)]
        if len(counting) < self.admission.trajectories_per_update:
            return
        newest = self.versions[-1].version
        window = counting[: self.admission.trajectories_per_update]
        self.lags += [newest - min(s.version for s in self.trajectories[n].steps) for n in window]
        self.folded = window[-1] + 1
        u = len(self.updates)
        self.updates.append(Update(u, (Watermark(TOPIC, 0, self.folded),), "f", 0))
        if (u + 1 - self.warmup) % self.admission.publish_every == 0:
            self.publishing = version(newest + 1, u)

    def _counts(self, offset: int) -> bool:
        return self.trajectories[offset].outcome is not Outcome.INTERRUPTED


admissions = st.builds(
    Admission,
    trajectories_per_update=st.integers(1, 6),
    publish_every=st.integers(1, 3),
    max_lag=st.integers(0, 4),
    outstanding=st.integers(1, 30),
)


@settings(max_examples=60, deadline=None)
@given(admissions, st.integers(0, 2**32), st.sampled_from((0.0, 0.3)))
def test_no_trajectory_is_older_than_max_lag_when_learned_and_learning_never_stops(
    admission: Admission, seed: int, interrupts: float
) -> None:
    world = World(admission, random.Random(seed), interrupts)
    turns = (world.feed, world.finish, world.finish, world.learn)
    for _ in range(600):
        world.chance.choice(turns)()
    assert max(world.lags, default=0) <= admission.max_lag
    learned = len(world.updates)
    for _ in range(400):  # everyone gets a turn and reads to the end in time: another update must come of it
        for turn in turns:
            turn()
    assert len(world.updates) > learned


@settings(max_examples=40, deadline=None)
@given(admissions, st.integers(0, 4), st.integers(0, 2**32))
def test_a_bound_that_is_lowered_in_the_middle_of_a_run_soon_holds_and_learning_goes_on(
    admission: Admission, lower: int, seed: int
) -> None:
    world = World(admission, random.Random(seed), 0.0)
    turns = (world.feed, world.finish, world.finish, world.learn)
    for _ in range(200):
        world.chance.choice(turns)()
    bound = min(lower, admission.max_lag)
    world.start_feeder(replace(admission, max_lag=bound))
    before = len(world.tasks)
    while len(world.tasks) < before + 20:
        updates = len(world.updates)
        for _ in range(200):
            for turn in turns:
                turn()
        assert len(world.updates) > updates
    assert max(world.lags[-admission.trajectories_per_update :]) <= bound


@settings(max_examples=30, deadline=None)
@given(admissions, st.integers(0, 2**32))
def test_the_bound_is_no_stricter_than_it_has_to_be(admission: Admission, seed: int) -> None:
    """With room for all, the feeder uses it: what is fed and not learned reaches what max_lag allows."""
    roomy = Admission(admission.trajectories_per_update, admission.publish_every, admission.max_lag, 10_000)
    world = World(roomy, random.Random(seed), 0.0)
    for _ in range(30):
        world.feed()
    assert len(world.running) == roomy.trajectories_per_update * roomy.publish_every * (roomy.max_lag + 1)


@pytest.mark.parametrize("publish_every", [1, 2])
def test_without_lag_every_version_gets_exactly_its_own_tasks(publish_every: int) -> None:
    """max_lag = 0 is a barrier: nothing is fed from the last task of a version until the next version is there."""
    state = ledger_of(Admission(4, publish_every, 0, 100))
    state.facts.see_version(version(0, 4))
    for u in range(5):
        state.facts.see_update(Update(u, (), "f", 0), TOPIC)
    tasks = state.due(0)
    assert len(tasks) == 4 * publish_every
    for offset, task in enumerate(tasks):
        state.facts.see_trajectory(offset, played(task, Outcome.FAILURE, 0))
        assert state.due(0) == []
    for number in range(publish_every):
        state.facts.see_update(Update(5 + number, (Watermark(TOPIC, 0, 4 * (number + 1)),), "f", 0), TOPIC)
        assert state.due(0) == []
    state.facts.see_version(version(1, 4 + publish_every))
    again = state.due(0)
    assert len(again) == 4 * publish_every
    assert {task.fed_version for task in again} == {1}


@pytest.mark.parametrize(("at_its_place", "due"), [(b"gone", 1), (b"another", 0)])
@pytest.mark.parametrize("publish_every", [1, 3])
def test_for_a_record_that_is_left_out_one_more_task_is_fed(publish_every: int, at_its_place: bytes, due: int) -> None:
    """`distrl skip`: the learner waits for one that counts. After a loss another record may be at that place."""
    state = ledger_of(Admission(4, publish_every, 0, 100))
    sha256 = hashlib.sha256(b"gone").hexdigest()
    state.facts.see_update(Update(0, (), "f", 0), TOPIC)
    state.facts.see_update(Update(1, (), "f", 0, skipped=(skipped(2, sha256),), void="gone"), TOPIC)
    state.facts.see_version(version(0, 0))
    tasks = state.due(0)
    assert len(tasks) == 4 * publish_every
    for offset, task in enumerate(tasks):
        value = at_its_place if offset == 2 else b"%d" % offset
        state.facts.see_trajectory(offset, played(task, Outcome.SUCCESS, 0), value)
    assert len(state.due(0)) == due


def skipped(offset: int, sha256: str) -> Skipped:
    return Skipped(TOPIC, 0, offset, sha256, "its screenshots are gone")


def test_outstanding_tasks_are_capped_whatever_the_lag_allows() -> None:
    admission = Admission(16, 1, 4, 24)
    assert admission.allowed(Progress(0, 0, None, 0, 0, 0)) == 24
    assert admission.allowed(Progress(20, 0, 0, 0, 0, 0)) == 4
    assert admission.allowed(Progress(24, 0, 0, 0, 0, 0)) == 0
    assert admission.allowed(Progress(30, 200, 0, 9, 9, 9)) == 0
