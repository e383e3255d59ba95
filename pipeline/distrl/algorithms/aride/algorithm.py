"""One update of A-RIDE: score what is outdated, draw by priority, step the critics and the policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim import AdamW

from distrl import config as settings
from distrl.algorithms.aride.critics import Critics
from distrl.algorithms.aride.memory import ArideMemory
from distrl.algorithms.aride.scoring import score, state_values
from distrl.algorithms.aride.train_step import Trained, batch_of, improve
from distrl.algorithms.aride.truncation import screen_after
from distrl.algorithms.descent import mean_metrics, passes
from distrl.algorithms.protocol import Context, Metrics, Optimised, seen
from distrl.seeds import seed_of, torch_seed
from distrl.types import ObjectRef, Step, Trajectory


class Aride:
    """A-RIDE over a policy. context.config.algorithm must be its settings."""

    def __init__(self, context: Context) -> None:
        assert isinstance(context.config.algorithm, settings.ArideSettings)
        self._context, self._settings = context, context.config.algorithm
        self.memory = ArideMemory(context.config)
        with torch_seed(seed_of(context.config, "critics")):
            self.critics = Critics(context.policy.width).to(context.policy.device)
        policy, critic = context.policy.parameters(), dict(sorted(self.critics.named_parameters()))
        self._trained = Trained(
            context,
            self.critics,
            Optimised(AdamW(policy.values()), policy),
            Optimised(AdamW(self.critics.parameters(), self._settings.critic_lr, weight_decay=0.0), critic),
        )

    def modules(self) -> Mapping[str, nn.Module]:
        return {"critic": self.critics}

    def optimisers(self) -> Mapping[str, Optimised]:
        return {"policy_optimiser": self._trained.policy, "critic_optimiser": self._trained.critic}

    def screens(self, trajectory: Trajectory) -> Iterator[ObjectRef]:
        """Each step's screenshot, and the one after the last step where V is bootstrapped from it."""
        yield from seen(trajectory)
        if self._settings.truncation == "bootstrap" and (after := screen_after(trajectory)) is not None:
            yield after

    def update(self, u: int) -> Metrics:
        memory = self.memory
        outdated = memory.outdated(u)
        memory.take(u, outdated, score(self._context, self.critics, outdated, self._settings))
        memory.assign_credit()
        ages, draws = memory.ages(u), memory.draw(u)
        batches = [batch_of(draw, memory.buffer, self._context.policy.device) for draw in draws]
        found = improve(self._trained, batches, self._settings, u, train_policy=memory.phase(u).trains_policy)
        for draw, each in zip(draws, found, strict=True):
            memory.take(u, draw.rows, each.scores)
        return {**mean_metrics([each.metrics for each in found]), **ages}

    def values(self, steps: Sequence[Step]) -> NDArray[np.float64]:
        values = np.zeros(len(steps))
        with torch.no_grad():
            for rows in passes(steps, self._context.config.learner.microbatch):
                values[rows] = state_values(self.critics, self._context.score([steps[row] for row in rows]))
        return values
