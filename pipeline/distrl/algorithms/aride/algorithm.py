"""One update of A-RIDE: score outdated transitions, draw by priority, make gradient steps of critics and policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from distrl import config as settings
from distrl.algorithms.actor_critic import ActorCritic
from distrl.algorithms.aride.critics import Critics
from distrl.algorithms.aride.memory import ArideMemory, Scores
from distrl.algorithms.aride.scoring import score, state_values
from distrl.algorithms.aride.train_step import Trained, batch_of, improve
from distrl.algorithms.aride.truncation import screen_after
from distrl.algorithms.descent import mean_metrics, passes
from distrl.algorithms.protocol import Context, Metrics, seen
from distrl.algorithms.screens import screens_of
from distrl.policy.protocol import TrajectoryStep
from distrl.types import ObjectRef, Trajectory


class Aride(ActorCritic[Critics]):
    """A-RIDE over a policy. context.config.algorithm must be its settings."""

    def __init__(self, context: Context) -> None:
        assert isinstance(context.config.algorithm, settings.ArideSettings)
        super().__init__(context, Critics)
        self._settings = context.config.algorithm
        self.memory = ArideMemory(context.config)
        self._trained = Trained(context, self.critics, self._policy, self._critic)

    def screens(self, trajectory: Trajectory) -> Iterator[ObjectRef]:
        """Each step's screenshot, and the one after the last step where V is bootstrapped from it."""
        yield from seen(trajectory)
        if self._settings.truncation == "bootstrap" and (after := screen_after(trajectory)) is not None:
            yield after

    def update(self, u: int) -> Metrics:
        memory = self.memory
        outdated = memory.outdated(u)
        buffer, store = memory.buffer, self._context.features.store
        screens = screens_of(outdated, buffer, store)
        memory.take(u, outdated, score(self._context, self.critics, outdated, self._settings, screens))
        memory.assign_credit()
        ages, draw = memory.ages(u), memory.draw(u)
        self.drawn = memory.drawn(draw)
        screens, size = screens_of(draw.rows, buffer, store), self._settings.batch_size
        minibatches = (slice(begin, begin + size) for begin in range(0, len(draw.rows), size))
        batches = [batch_of(draw[part], screens[part], buffer, self._context) for part in minibatches]
        found = improve(self._trained, batches, self._settings, u, train_policy=memory.phase(u).trains_policy)
        memory.take(u, draw.rows, Scores.joined([each.scores for each in found]))
        return {**mean_metrics([each.metrics for each in found]), **ages}

    def values(self, steps: Sequence[TrajectoryStep]) -> NDArray[np.float64]:
        values = np.zeros(len(steps))
        with torch.no_grad():
            for rows in passes([each.step for each in steps], self._context.config.learner.microbatch):
                values[rows] = state_values(self.critics, self._context.score([steps[row] for row in rows]))
        return values
