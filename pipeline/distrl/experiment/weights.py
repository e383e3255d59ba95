"""Real updates in virtual time: the learner's own fold and publisher, with a store in a directory of the cell's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.demonstrations.scripted import NAME, Scripted, demonstration_tasks, script_seed
from distrl.experiment.playing import played
from distrl.learner.fold import fold, usable_of
from distrl.learner.pending import PendingLog
from distrl.learner.publish import Publisher
from distrl.learner.state import LearnerState
from distrl.policy.protocol import Tokenizer
from distrl.rollout.episode import Episode
from distrl.rollout.wiring import TRUTH
from distrl.runs.settings import learning_fingerprint
from distrl.store.folders import SCREENSHOTS
from distrl.store.objects import ObjectStore, reference
from distrl.tasks.oracle import ImperfectScript
from distrl.types import LoggedTrajectory, LogPosition, ObjectRef, Trajectory, Update, Version, Watermark


class Screenshots:
    """Screenshots of one cell by their sha256, in memory: some 3 kB each, and phones show few different ones."""

    def __init__(self) -> None:
        self._bytes: dict[str, bytes] = {}

    def keep(self, png: bytes) -> ObjectRef:
        ref = reference(SCREENSHOTS.name, png, "png", None)
        self._bytes[ref.sha256] = png
        return ref

    def __call__(self, ref: ObjectRef) -> bytes:
        return self._bytes[ref.sha256]


class WeightsLearning:
    """`distrl.experiment.learning.Learning` by gradients. It begins after the warm-up on demonstrations.

    store: for the adapters of versions. warmed: the weights after the same warm-up, which is then not computed again.
    """

    def __init__(
        self, config: Config, store: ObjectStore, screenshots: Screenshots, warmed: bytes | None = None
    ) -> None:
        self._config, self._screenshots = config, screenshots
        self._now = 0
        self.unfolded: Sequence[LoggedTrajectory] = ()
        self.state = LearnerState(config)
        self._warm_up(self.fold if warmed is None else self._admit)
        if warmed is not None:
            self.state.policy.load(warmed)
        self._versions: list[Version] = []
        self._publisher = Publisher(config, store, self._versions.append, (), lambda: self._now)

    @property
    def u(self) -> int:
        return self.state.u

    @property
    def watermarks(self) -> tuple[Watermark, ...]:
        return self.state.watermarks

    @property
    def versions(self) -> Sequence[Version]:
        """Those that were published, in order."""
        return self._versions

    def fold(self, window: Sequence[LoggedTrajectory], update: Update) -> Mapping[str, float]:
        found = fold(self.state, window, update, self._screenshots, self._config)
        self.state.forget_screens()
        return found

    def version(self, number: int, published_at: int) -> Version:
        self._now = published_at
        self._publisher.due(self.state)
        assert self._versions[-1].version == number, "every version is published once"
        return self._versions[-1]

    def _warm_up(self, fold: Callable[[Sequence[LoggedTrajectory], Update], object]) -> None:
        """Play the demonstrations of the seed and `fold` the updates of the warm-up, before virtual time begins."""
        config, state = self._config, self.state
        topic = topic_name(config.run, "demonstrations")
        pending = PendingLog(topic, topic_name(config.run, "trajectories"))
        for offset, trajectory in enumerate(demonstrations(config, state.policy.tokenizer, self._screenshots)):
            pending.push(LoggedTrajectory(LogPosition(topic, 0, offset), trajectory))
        while state.u < config.warmup.updates:
            watermarks = pending.due(state.u, config)
            assert watermarks is not None, "every demonstration is there"
            update = Update(state.u, watermarks, learning_fingerprint(config), 0)
            fold(pending.window(watermarks), update)
            pending.folded(watermarks)
        self.unfolded = pending.pending

    def _admit(self, window: Sequence[LoggedTrajectory], update: Update) -> None:
        """What an update of the warm-up leaves beside weights: the memories hold its trajectories."""
        for logged in usable_of(self.state, window):
            for memory in self.state.memories():
                memory.admit(logged)
        self.state.u, self.state.watermarks = update.u + 1, update.watermarks


def demonstrations(config: Config, tokenizer: Tokenizer, screenshots: Screenshots) -> list[Trajectory]:
    """The warm-up demonstrations that `distrl demonstrate` publishes."""
    tasks = demonstration_tasks(config, config.warmup.demonstrations)
    return played(
        config,
        tasks,
        lambda clock: Episode(NAME, screenshots.keep, TRUTH, clock, is_expert=True),
        lambda task: Scripted(ImperfectScript(script_seed(task)), tokenizer),
        config.phones.generation_of,
    )
