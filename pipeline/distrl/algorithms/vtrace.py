"""V-trace actor-critic (IMPALA, arXiv 1802.01561, section 4), which DistRL compares itself with (A.4.1).

v_t = V(s_t) + Σ_{k=t..H} γ^{k-t} (Π_{i=t..k-1} c_i) min(ρ̄, ρ_k) td_k     what V(s_t) is fitted to
A_t = r_t + γ v_{t+1} − V(s_t)
L   = −E[min(ρ̄, ρ) A log π] − β E[H(π)]

Transitions are drawn uniformly from the buffer, and their targets are computed with the weights at the update's start.
V and the advantages are handled as in A-RIDE: V is a probability, fitted by cross-entropy to v clipped to [0, 1], and
advantages are shaped alike. Unlike in A-RIDE, the buffer is short and without priorities, repeated or invalid actions
are not penalised, and steps are smaller. (IMPALA fits V by squared error, and learns from a trajectory once; for the
latter, set algorithm.replay.capacity to the length of a window.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.algorithms import losses
from distrl.algorithms.actor_critic import ActorCritic
from distrl.algorithms.descent import descend, mean_metrics
from distrl.algorithms.episodes import rewards_and_ends, rows_of, steps_of
from distrl.algorithms.head import Head, state_values
from distrl.algorithms.protocol import NOTHING_DRAWN, Context, DrawnSteps, Metrics, Phase, critics_first, is_replayed
from distrl.algorithms.returns import Array, Mask, next_values, td_errors, vtrace_targets
from distrl.algorithms.uniform import REPLAY, UniformMemory
from distrl.compute import ShardResult
from distrl.config import Config
from distrl.config.algorithms import VtraceSettings
from distrl.policy.protocol import TrajectoryStep

VTRACE: Final = Phase("v-trace", trains_policy=True)


def vtrace_memory(config: Config) -> UniformMemory:
    """All judged trajectories, with the demonstrations if algorithm.replay.demonstrations."""
    settings = _settings(config)
    phase = critics_first(config, settings.critic_warmup_updates, VTRACE)
    return UniformMemory(config, settings, lambda each: is_replayed(each, settings.replay), phase, REPLAY)


def credit(values: Array, ratios: Array, rewards: Array, last: Mask, config: VtraceSettings) -> tuple[Array, Array]:
    """(targets of V in [0, 1], advantages) of whole trajectories, from V(s_t), ρ_t and rewards; all (N,)."""
    td = td_errors(rewards, values, config.gamma, last=last)
    found = vtrace_targets(values, td, ratios, config.gamma, config.trace_lambda, config.rho_max, config.c_max, last)
    return np.clip(found, 0.0, 1.0), rewards + config.gamma * next_values(found, last=last) - values


@dataclass(frozen=True, slots=True)
class Batch:
    """B transitions; each tensor (B,) float32. advantage: already shaped."""

    steps: Sequence[TrajectoryStep]
    behaviour_logprob: Tensor
    target: Tensor
    advantage: Tensor


class Vtrace(ActorCritic[Head]):
    """V-trace over a policy. context.config.algorithm must be its settings."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, Head)
        self._settings = _settings(context.config)
        self.memory = vtrace_memory(context.config)

    def update(self, u: int) -> Metrics:
        entries, draws = self.memory.uses(u), self.memory.draws(u)
        if draws is None:
            self.drawn = NOTHING_DRAWN
            return {}
        steps, every = steps_of(entries), draws.ravel()
        values, ratios = self._scores(steps)
        targets, advantages = credit(values, ratios, *rewards_and_ends(entries), self._settings)
        self.drawn = DrawnSteps(
            rows_of(entries, every), value=values[every], advantage=advantages[every], ratio=ratios[every]
        )
        train_policy = self.memory.phase(u).trains_policy
        return mean_metrics(
            [
                self._step(self._batch(steps, targets, advantages, rows), f"minibatch {index}", u, train_policy)
                for index, rows in enumerate(draws)
            ]
        )

    def values(self, steps: Sequence[TrajectoryStep]) -> Array:
        return np.asarray(state_values(self._context, [self.critics], steps)[0][0])

    def _scores(self, steps: Sequence[TrajectoryStep]) -> tuple[Array, Array]:
        """(V(s_t), ρ_t) of all steps under the present weights."""
        (values,), logprobs = state_values(self._context, [self.critics], steps)
        behaviour = np.array([each.step.logprob for each in steps])
        return values, np.exp(np.clip(logprobs - behaviour, *losses.LOG_RATIO_BOUNDS))

    def _batch(
        self, steps: Sequence[TrajectoryStep], targets: Array, advantages: Array, rows: NDArray[np.int64]
    ) -> Batch:
        drawn, chosen = [steps[row] for row in rows], self._settings
        device = self._context.policy.device
        advantage = torch.from_numpy(advantages[rows]).float().to(device)
        return Batch(
            drawn,
            behaviour_logprob=torch.tensor([each.step.logprob for each in drawn], device=device),
            target=torch.from_numpy(targets[rows]).float().to(device),
            advantage=losses.shape_advantages(advantage, chosen.normalise_advantage, chosen.negative_advantage_weight),
        )

    def _step(self, batch: Batch, purpose: str, u: int, train_policy: bool) -> dict[str, float]:
        """One gradient step of the critic, and of the policy if `train_policy`; returns the metrics before it."""
        chosen, critic = self._settings, list(self._critic.parameters.values())
        policy = list(self._policy.parameters.values()) if train_policy else []
        gradients, rows = self._context.compute.gradients(
            [*critic, *policy], len(batch.steps), lambda piece: self._part(batch, piece, train_policy), purpose, u
        )
        count = len(critic)
        descend(self._critic, gradients[:count], rate=chosen.critic_lr, decay=0.0, grad_norm=chosen.grad_norm)
        if train_policy:
            descend(self._policy, gradients[count:], rate=chosen.lr, decay=0.0, grad_norm=chosen.grad_norm)
        logprob, entropy, values = rows["logprob"], rows["entropy"], rows["values"]
        ratio = losses.importance_ratio(logprob, batch.behaviour_logprob)
        found = {
            "policy_loss": self._policy_loss(logprob, entropy, batch, slice(None)),
            "value_loss": losses.critic_loss(values, batch.target, torch.ones_like(values)),
            "entropy": -logprob.mean(),
            "token_entropy": entropy.mean(),
            "ratio": ratio.mean(),
            "clipped": (ratio > chosen.rho_max).float().mean(),
        }
        return {name: float(value) for name, value in found.items()}

    def _part(self, batch: Batch, piece: slice, train_policy: bool) -> ShardResult:
        """The losses of some rows. The critic reads the encoder states and does not train them."""
        with torch.set_grad_enabled(train_policy):
            scored = self._context.score(batch.steps[piece])
        values = self.critics(scored.states.detach(), scored.mask)
        loss = losses.critic_loss(values, batch.target[piece], torch.ones_like(values))
        if train_policy:
            loss = loss + self._policy_loss(scored.logprob, scored.entropy, batch, piece)
        found = {"logprob": scored.logprob, "entropy": scored.entropy, "values": values}
        return ShardResult(loss, {name: each.detach() for name, each in found.items()})

    def _policy_loss(self, logprob: Tensor, entropy: Tensor, batch: Batch, piece: slice) -> Tensor:
        return losses.policy_loss(
            logprob,
            entropy,
            losses.importance_ratio(logprob, batch.behaviour_logprob[piece]),
            batch.advantage[piece],
            torch.zeros_like(logprob),
            beta=self._settings.entropy,
            lam=0.0,
            ratio_clip=self._settings.rho_max,
        )


def _settings(config: Config) -> VtraceSettings:
    assert isinstance(config.algorithm, VtraceSettings)
    return config.algorithm
