"""DigiRL (arXiv 2406.11896): imitate the steps that two estimates of value hold for better than expected.

kept      trajectories with the largest  1[success] − V_inst(s_0)     neither hopeless nor already mastered tasks
imitated  their steps with  r_t + G_t + V(s_{t+1}) − V(s_t) > threshold     G_t = Σ_{k=t..H} γ^{k-t} r_k
L         = −E[1[imitated] log π]

Both values are probabilities of success, fitted by cross-entropy to the outcome: V(s) on every step, as the smaller of
two networks; V_inst on first steps, where all that differs is the instruction. As in the authors' code
(github.com/DigiRL-agent/digirl, commit c74ec34: trainer.py, offpolicy_train_loop.py), whose 0.05 is the threshold, with
two differences: after the last step V is 0, not V of the screen after it; and V_inst reads the policy's encoder states
of the first screen and has no encoder of its own.

It does not correct for the age of a trajectory. Whether it runs synchronously, and on how many machines, is decided by
`feeder.max_lag` and the number of workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from distrl.algorithms.actor_critic import ActorCritic
from distrl.algorithms.descent import descend, mean_metrics
from distrl.algorithms.episodes import outcomes, rewards_and_ends, rows_of, step_at, steps_of
from distrl.algorithms.head import Head, state_values
from distrl.algorithms.protocol import (
    NOTHING_DRAWN,
    Context,
    DrawnSteps,
    Metrics,
    Optimised,
    Phase,
    critics_first,
    is_replayed,
)
from distrl.algorithms.returns import Array, Mask, monte_carlo, next_values
from distrl.algorithms.uniform import REPLAY, UniformMemory
from distrl.compute import Gradients, ShardResult
from distrl.config import Config
from distrl.config.algorithms import DigiRlSettings
from distrl.policy.protocol import TrajectoryStep
from distrl.replay.circular import Entry
from distrl.seeds import generator

DIGIRL: Final = Phase("digirl", trains_policy=True)


class DigiRlMemory(UniformMemory):
    """All judged trajectories, with the demonstrations if algorithm.replay.demonstrations."""

    def __init__(self, config: Config) -> None:
        settings = _settings(config)
        super().__init__(
            config,
            settings,
            lambda each: is_replayed(each, settings.replay),
            critics_first(config, settings.critic_warmup_updates, DIGIRL),
            REPLAY,
        )

    def draws(self, u: int) -> None:
        """None: which steps are imitated depends on the critics."""
        return

    def critics_draws(self, u: int) -> NDArray[np.int64] | None:
        """(minibatches, batch_size) indices of steps that the critics are fitted on; None where there are none."""
        return super().draws(u)


class Critics(nn.Module):
    """Every head returns logits (B,). step: two estimates of V(s). instruction: V_inst, read on first steps only."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.step = nn.ModuleList([Head(width), Head(width)])
        self.instruction = Head(width)


def kept(outcomes: Array, values: Array, share: float) -> NDArray[np.int64]:
    """Indices, ascending, of the trajectories whose outcome most exceeds what V_inst expected: at least `share` of all.

    outcomes: (n,) 1 for a success, 0 for a failure. values: (n,) V_inst. Ties with the last one that is needed are kept
    too, as with a quantile.
    """
    excess = outcomes - values
    needed = max(1, math.ceil(share * len(excess)))
    return np.flatnonzero(excess >= np.sort(excess)[-needed])


def gains(values: Array, rewards: Array, last: Mask, gamma: float) -> Array:
    """(N,) by how much each step of whole trajectories is better than V expected. values: V(s_t). All inputs (N,)."""
    return rewards + monte_carlo(rewards, gamma, last) + next_values(values, last=last) - values


@dataclass(frozen=True, slots=True)
class CriticsBatch:
    """2B steps: B drawn from all steps, then the first steps of B trajectories. outcome: (2B,) of each step's
    trajectory. is_first: (2B,) True for the second half, which V_inst reads."""

    steps: Sequence[TrajectoryStep]
    outcome: Tensor
    is_first: Tensor


class DigiRl(ActorCritic[Critics]):
    """DigiRL over a policy. context.config.algorithm must be its settings."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, Critics)
        self._settings = _settings(context.config)
        self.memory = DigiRlMemory(context.config)

    def update(self, u: int) -> Metrics:
        entries, draws = self.memory.uses(u), self.memory.critics_draws(u)
        self.drawn = NOTHING_DRAWN
        if draws is None:
            return {}
        self.drawn = DrawnSteps(rows_of(entries, draws.ravel()))
        batches = enumerate(self._critics_batches(entries, draws, u))
        found = mean_metrics([self._fit(batch, f"minibatch {index}", u) for index, batch in batches])
        return {**found, **self._imitate(entries, u)} if self.memory.phase(u).trains_policy else found

    def values(self, steps: Sequence[TrajectoryStep]) -> Array:
        """The smaller of both estimates."""
        heads = [head for head in self.critics.step if isinstance(head, Head)]
        return np.asarray(state_values(self._context, heads, steps)[0].min(axis=0))

    def _critics_batches(self, entries: Sequence[Entry], draws: NDArray[np.int64], u: int) -> Iterator[CriticsBatch]:
        """Minibatches of as many steps as trajectories, both drawn uniformly."""
        steps, outcome, device = steps_of(entries), outcomes(entries), self._context.policy.device
        of_step = np.repeat(outcome, [len(entry) for entry in entries])
        trajectories = generator(self._context.config, "instructions", u).integers(len(entries), size=draws.shape)
        for rows, owners in zip(draws, trajectories, strict=True):
            yield CriticsBatch(
                [*(steps[row] for row in rows), *(step_at(entries[owner], 0) for owner in owners)],
                torch.from_numpy(np.concatenate([of_step[rows], outcome[owners]])).float().to(device),
                torch.arange(2 * len(rows), device=device) >= len(rows),
            )

    def _fit(self, batch: CriticsBatch, purpose: str, u: int) -> dict[str, float]:
        """One gradient step of the critics; returns the losses before it."""
        gradients, rows = self._context.compute.gradients(
            list(self._critic.parameters.values()),
            len(batch.steps),
            lambda piece: self._critics_part(batch, piece),
            purpose,
            u,
        )
        self._descend(self._critic, gradients, self._settings.critic_lr)
        return {
            "value_loss": float(rows["step"][~batch.is_first].mean()),
            "instruction_value_loss": float(rows["instruction"][batch.is_first].mean()),
        }

    def _critics_part(self, batch: CriticsBatch, piece: slice) -> ShardResult:
        """Cross-entropy of each estimate on its own rows: one half of a minibatch for V, the other for V_inst."""
        with torch.no_grad():
            scored = self._context.score(batch.steps[piece])
        outcome, is_first = batch.outcome[piece], batch.is_first[piece]
        one, two, instruction = (
            binary_cross_entropy_with_logits(head(scored.states, scored.mask), outcome, reduction="none")
            for head in (*self.critics.step, self.critics.instruction)
        )
        step = (one + two) / 2
        loss = 2 * torch.where(is_first, instruction, one + two).mean()
        return ShardResult(loss, {"step": step.detach(), "instruction": instruction.detach()})

    def _imitate(self, entries: Sequence[Entry], u: int) -> dict[str, float]:
        """Gradient steps of the policy on steps drawn from the kept trajectories; only imitated ones have weight."""
        chosen, config = self._settings, self._context.config
        (expected,), _ = state_values(
            self._context, [self.critics.instruction], [step_at(entry, 0) for entry in entries]
        )
        best = [entries[row] for row in kept(outcomes(entries), expected, chosen.kept_share)]
        steps, device = steps_of(best), self._context.policy.device
        values = self.values(steps)
        gained = gains(values, *rewards_and_ends(best), chosen.gamma)
        good = gained > chosen.threshold
        draws = generator(config, "imitated", u).integers(len(steps), size=(chosen.minibatches, chosen.batch_size))
        self._add_drawn(rows_of(best, draws.ravel()), values[draws.ravel()], gained[draws.ravel()])
        losses = [
            self._imitation_step(
                [steps[row] for row in rows], torch.from_numpy(good[rows]).float().to(device), index, u
            )
            for index, rows in enumerate(draws)
        ]
        return {"clone_loss": float(np.mean(losses)), "imitated": float(good.mean())}

    def _add_drawn(self, rows: Sequence[tuple[Entry, int]], values: Array, gained: Array) -> None:
        """Append the policy's draws to those of the critics, whose values are unknown (NaN)."""
        unknown, before = np.full(len(self.drawn.rows), np.nan), self.drawn.rows
        self.drawn = DrawnSteps(
            [*before, *rows],
            value=np.concatenate([unknown, values]),
            advantage=np.concatenate([unknown, gained]),
        )

    def _imitation_step(self, batch: Sequence[TrajectoryStep], weight: Tensor, index: int, u: int) -> float:
        """One gradient step of the policy; returns the loss before it. weight: (B,) 1 for imitated steps, else 0."""
        gradients, found = self._context.compute.gradients(
            list(self._policy.parameters.values()),
            len(batch),
            lambda piece: self._imitation_part(batch[piece], weight[piece]),
            f"imitation {index}",
            u,
        )
        self._descend(self._policy, gradients, self._settings.lr)
        return float(found["loss"].mean())

    def _imitation_part(self, steps: Sequence[TrajectoryStep], weight: Tensor) -> ShardResult:
        loss = -weight * self._context.score(steps).logprob
        return ShardResult(loss.mean(), {"loss": loss.detach()})

    def _descend(self, optimised: Optimised, gradients: Gradients, rate: float) -> None:
        descend(optimised, gradients, rate=rate, decay=0.0, grad_norm=self._settings.grad_norm)


def _settings(config: Config) -> DigiRlSettings:
    assert isinstance(config.algorithm, DigiRlSettings)
    return config.algorithm
