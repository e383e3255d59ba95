"""Behaviour cloning of all demonstrations: −E[log π] (the warm-up of DistRL, A.5.2).

It is the warm-up of every run but those whose algorithm pretrains itself, and also an algorithm of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from torch import nn

from distrl.algorithms.descent import adamw, descend
from distrl.algorithms.episodes import rows_of, steps_of
from distrl.algorithms.losses import clone_loss
from distrl.algorithms.protocol import NOTHING_DRAWN, Context, DrawnSteps, Metrics, Optimised, Phase, seen
from distrl.algorithms.uniform import Drawn, UniformMemory
from distrl.compute import ShardResult
from distrl.config import Config, DescentSettings, WarmupSettings
from distrl.policy.protocol import TrajectoryStep
from distrl.seeds import seed_of, torch_seed
from distrl.types import ObjectRef, Trajectory

RAMP: Final = 20
"""Minibatches over which the learning rate rises from 0: Adam's first steps are as long as its rate allows."""

LAST_RATE: Final = 0.1
"""The rate of the warm-up's last minibatch as a share of warmup.lr; it falls linearly until then."""

WEIGHT_DECAY: Final = 0.01

DEMONSTRATION_STEPS: Final = 64
"""The warm-up's buffer has room for this many steps of each demonstration. Those of the suites have 5.5 to 12.4 on
average (docs/tasks.md)."""

CLONING: Final = Phase("cloning", trains_policy=True)
DEMONSTRATIONS: Final = Drawn("demonstrations", "cloning")

Rate = Callable[[int], float]
"""Minibatches before this one, over all updates -> learning rate."""


class Imitation:
    """Clones minibatches of a memory's steps, with dropout. rate: of each minibatch. decay: weight decay."""

    def __init__(
        self, context: Context, memory: UniformMemory, descent: DescentSettings, rate: Rate, decay: float
    ) -> None:
        self._context, self.memory, self._descent, self._rate, self._decay = context, memory, descent, rate, decay
        self._optimised = adamw(context.policy.parameters())
        self._parameters = list(self._optimised.parameters.values())
        self.drawn = NOTHING_DRAWN

    def modules(self) -> Mapping[str, nn.Module]:
        return {}

    def optimisers(self) -> Mapping[str, Optimised]:
        return {"policy_optimiser": self._optimised}

    def screens(self, trajectory: Trajectory) -> Iterator[ObjectRef]:
        return seen(trajectory)

    def update(self, u: int) -> Metrics:
        entries, draws = self.memory.uses(u), self.memory.draws(u)
        self.drawn = NOTHING_DRAWN
        if draws is None:
            return {}
        steps = steps_of(entries)
        self.drawn = DrawnSteps(rows_of(entries, draws.ravel()))
        found = []
        with self._context.policy.dropout(), torch_seed(seed_of(self._context.config, "dropout", u)):
            for index, rows in enumerate(draws):
                found.append(self._step([steps[row] for row in rows], index, u))
        return {"clone_loss": float(np.mean(found))}

    def _step(self, batch: Sequence[TrajectoryStep], index: int, u: int) -> float:
        """One gradient step on minibatch number `index` of update `u`; returns the loss before the step."""
        gradients, scored = self._context.compute.gradients(
            self._parameters, len(batch), lambda piece: self._part(batch[piece]), f"dropout {index}", u
        )
        descend(
            self._optimised,
            gradients,
            rate=self._rate(u * self._descent.minibatches + index),
            decay=self._decay,
            grad_norm=self._descent.grad_norm,
        )
        return float(clone_loss(scored["logprob"]))

    def _part(self, steps: Sequence[TrajectoryStep]) -> ShardResult:
        logprob = self._context.score(steps).logprob
        return ShardResult(clone_loss(logprob), {"logprob": logprob.detach()})

    def values(self, steps: Sequence[TrajectoryStep]) -> None:
        """None: it estimates no values."""
        return


def warmup_memory(config: Config) -> UniformMemory:
    """Holds all demonstrations, even if the algorithm's own buffer is smaller: otherwise the first ones would never be
    cloned, and version 0 would depend on the algorithm."""
    capacity = max(config.algorithm.replay.capacity, DEMONSTRATION_STEPS * config.warmup.demonstrations)
    return UniformMemory(config, config.warmup, _is_expert, lambda u: CLONING, DEMONSTRATIONS, capacity)


def warmup(context: Context) -> Imitation:
    """The warm-up: the rate rises shortly, then falls linearly."""
    settings = context.config.warmup
    return Imitation(
        context, warmup_memory(context.config), settings, lambda done: learning_rate(done, settings), WEIGHT_DECAY
    )


def cloning_memory(config: Config) -> UniformMemory:
    return UniformMemory(config, config.algorithm, _is_expert, lambda u: CLONING, DEMONSTRATIONS)


def cloning(context: Context) -> Imitation:
    """Cloning as an algorithm of its own, at one rate."""
    settings = context.config.algorithm
    return Imitation(context, cloning_memory(context.config), settings, lambda done: settings.lr, WEIGHT_DECAY)


def learning_rate(minibatch: int, settings: WarmupSettings) -> float:
    """The rate of the warm-up's minibatch number `minibatch`: a short rise, then a linear fall."""
    done = minibatch / (settings.updates * settings.minibatches)
    return settings.lr * min(1.0, (minibatch + 1) / RAMP) * (1.0 - (1.0 - LAST_RATE) * done)


def _is_expert(trajectory: Trajectory) -> bool:
    return trajectory.is_expert
