"""The learner in virtual time: which records an update folds, when it is made and what it publishes are decided by the
learner's own functions. What an update computes is behind `Learning`: nothing here, gradients in `weights.py`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.experiment.costs import Draws
from distrl.experiment.virtual_time import Actor, VirtualTime
from distrl.learner.pending import PendingLog
from distrl.learner.publish import publishes
from distrl.runs.settings import learning_fingerprint
from distrl.types import LoggedTrajectory, ObjectRef, Trajectory, Update, Version, Watermark

NO_WEIGHTS: Final = "0" * 64
"""sha256 in the versions of updates that compute nothing."""


class Learning(Protocol):
    """What updates compute."""

    @property
    def u(self) -> int:
        """Number of the next update."""
        ...

    @property
    def watermarks(self) -> tuple[Watermark, ...]:
        """How far the log is folded."""
        ...

    @property
    def unfolded(self) -> Sequence[LoggedTrajectory]:
        """Demonstrations that the first update folds; there are some where no warm-up came before it."""
        ...

    def fold(self, window: Sequence[LoggedTrajectory], update: Update) -> object: ...
    def version(self, number: int, published_at: int) -> Version:
        """The weights as a version."""
        ...


class NoLearning:
    """Counts updates and computes none: for questions of pace alone."""

    def __init__(self, config: Config) -> None:
        self.u = config.warmup.updates
        self.watermarks: tuple[Watermark, ...] = ()
        self.unfolded: Sequence[LoggedTrajectory] = ()
        self._fingerprint = learning_fingerprint(config)

    def fold(self, window: Sequence[LoggedTrajectory], update: Update) -> None:
        self.u, self.watermarks = update.u + 1, update.watermarks

    def version(self, number: int, published_at: int) -> Version:
        adapter = ObjectRef("adapters/none", NO_WEIGHTS, 0)
        parent = number - 1 if number else None
        return Version(number, parent, self.u - 1, NO_WEIGHTS, adapter, self._fingerprint, published_at)


@dataclass(frozen=True, slots=True)
class Folded:
    """One update."""

    u: int
    at: float
    """When it was journalled, in virtual seconds."""
    took_s: float
    lags: tuple[int, ...]
    """Of the trajectories that it folds: newest version minus the oldest of their steps."""


class VirtualLearner:
    """`learn` is an actor. journalled, published: called when the line, or the version, reaches the other roles."""

    def __init__(
        self, time: VirtualTime, config: Config, draws: Draws, learning: Learning,
        journalled: Callable[[Update], object], published: Callable[[Version], object],
    ) -> None:  # fmt: skip
        self._time, self._config, self._draws, self._learning = time, config, draws, learning
        self._journalled, self._published = journalled, published
        self._fingerprint = learning_fingerprint(config)
        self.topic = topic_name(config.run, "trajectories")
        self._pending = PendingLog(topic_name(config.run, "demonstrations"), self.topic, learning.watermarks)
        for logged in learning.unfolded:
            self._pending.push(logged)
        self._actor: Actor | None = None
        self._version = -1
        self.updates: list[Folded] = []

    def see(self, logged: LoggedTrajectory) -> None:
        """A trajectory has come."""
        self._pending.push(logged)
        if self._actor is not None:
            self._time.wake(self._actor)

    def learn(self) -> None:
        """Update whenever the records of an update are there, and publish the versions that are due."""
        self._actor = self._time.current
        if publishes(self._learning.u, self._config):
            self._publish()
        while True:
            watermarks = self._pending.due(self._learning.u, self._config)
            if watermarks is None:
                self._time.pause()
                continue
            update = Update(
                self._learning.u,
                watermarks,
                self._fingerprint,
                int(self._time.now * 1000),
                version=self._version,
            )
            self._send(partial(self._journalled, update))
            self._fold(update)
            if publishes(self._learning.u, self._config):
                self._publish()

    def _fold(self, update: Update) -> None:
        window = self._pending.window(update.watermarks)
        took_s = self._draws.update(update.u)
        lags = tuple(
            self._version - oldest_version(each.trajectory) for each in window if each.position.topic == self.topic
        )
        self.updates.append(Folded(update.u, self._time.now, took_s, lags))
        self._time.sleep(took_s)
        self._learning.fold(window, update)
        self._pending.folded(update.watermarks)

    def _publish(self) -> None:
        self._version += 1
        version = self._learning.version(self._version, int(self._time.now * 1000))
        self._send(partial(self._published, version))

    def _send(self, arrive: Callable[[], object]) -> None:
        self._time.after(self._draws.model.record_s, arrive)


def oldest_version(trajectory: Trajectory) -> int:
    return min((step.version for step in trajectory.steps), default=trajectory.task.fed_version)
