"""One update of A-RIDE: score what is outdated, draw by priority, step the critics and the policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from distrl import config as settings
from distrl.algorithms.actor_critic import ActorCritic
from distrl.algorithms.aride.critics import Critics
from distrl.algorithms.aride.memory import ArideMemory
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
        screens = screens_of(outdated, memory.buffer, self._context.features.store)
        memory.take(u, outdated, score(self._context, self.critics, outdated, self._settings, screens))
        memory.assign_credit()
        ages, draws = memory.ages(u), memory.draw(u)
        self.drawn = memory.drawn(draws)
        batches = [batch_of(draw, memory.buffer, self._context) for draw in draws]
        found = improve(self._trained, batches, self._settings, u, train_policy=memory.phase(u).trains_policy)
        for draw, each in zip(draws, found, strict=True):
            memory.take(u, draw.rows, each.scores)
        return {**mean_metrics([each.metrics for each in found]), **ages}

    def values(self, steps: Sequence[TrajectoryStep]) -> NDArray[np.float64]:
        values = np.zeros(len(steps))
        with torch.no_grad():
            for rows in passes([each.step for each in steps], self._context.config.learner.microbatch):
                values[rows] = state_values(self.critics, self._context.score([steps[row] for row in rows]))
        return values
