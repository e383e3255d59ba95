"""The warm-up: behaviour cloning of the demonstrations, all of them, as they were done."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distrl.algorithms.losses import clone_loss
from distrl.config import Config, Learner
from distrl.learner.gradients import descend, score
from distrl.learner.seeds import generator, seed_of, torch_seed
from distrl.learner.state import LearnerState

RAMP = 20
"""Minibatches over which the learning rate rises from 0: Adam's first steps are as long as its rate allows."""

LAST_RATE = 0.1
"""The rate of the last minibatch as a share of warmup_lr; in between it falls in a straight line."""

WEIGHT_DECAY = 0.01


def clone(state: LearnerState, config: Config) -> dict[str, float]:
    """One update of the warm-up: minibatches of the demonstrations' steps, each equally likely, with dropout."""
    learner = config.learner
    steps = [step for entry in state.demonstrations.entries for step in entry.steps]
    if not steps:
        return {}
    parameters = list(state.policy_parameters().values())
    found = []
    state.agent.model.train()
    try:
        with torch_seed(seed_of(config, "dropout", state.u)):
            for index, rows in enumerate(draws(state.u, len(steps), config)):
                loss = clone_loss(score(state, [steps[row] for row in rows]).logprob)
                descend(
                    state.policy_optimiser,
                    parameters,
                    loss,
                    rate=learning_rate(state.u * learner.warmup_minibatches + index, learner),
                    decay=WEIGHT_DECAY,
                    grad_norm=learner.grad_norm,
                )
                found.append(float(loss.detach()))
    finally:
        state.agent.model.eval()
    return {"clone_loss": float(np.mean(found))}


def draws(u: int, steps: int, config: Config) -> NDArray[np.int64]:
    """(warmup_minibatches, batch_size) which of the demonstrations' `steps` > 0 steps update `u` learns from."""
    size = (config.learner.warmup_minibatches, config.learner.batch_size)
    return generator(config, "cloning", u).integers(steps, size=size)


def learning_rate(minibatch: int, learner: Learner) -> float:
    """The rate of one of all the warm-up's minibatches: a short rise, then a straight fall."""
    done = minibatch / (learner.warmup_updates * learner.warmup_minibatches)
    return learner.warmup_lr * min(1.0, (minibatch + 1) / RAMP) * (1.0 - (1.0 - LAST_RATE) * done)
