"""One gradient step: equation 1 for the policy, cross-entropy for both critics (DistRL, sections 5.1 and 5.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from distrl import config as settings
from distrl.algorithms import losses
from distrl.algorithms.aride.credit import is_invalid, loss_and_ratio
from distrl.algorithms.aride.critics import Critics
from distrl.algorithms.aride.memory import Draw, Scores
from distrl.algorithms.descent import descend
from distrl.algorithms.episodes import step_at, succeeded
from distrl.algorithms.protocol import Context, Optimised
from distrl.compute import Gradients, ShardResult
from distrl.policy.feature_rows import Handles
from distrl.policy.protocol import TrajectoryStep
from distrl.replay.circular import CircularBuffer


@dataclass(frozen=True, slots=True)
class Trained:
    """What a gradient step acts on."""

    context: Context
    critics: Critics
    policy: Optimised
    critic: Optimised


@dataclass(frozen=True, slots=True)
class Batch:
    """B transitions, with what was recorded and computed of them; each tensor (B,) float32.

    screens: (B,) handles of their features. success: outcome of the trajectory. value_weight: makes draws uniform over
    transitions, for V(s). trajectory_weight: makes draws of last steps uniform over trajectories, for V_traj; 0 on
    every other step.
    """

    steps: Sequence[TrajectoryStep]
    screens: Handles
    behaviour_logprob: Tensor
    invalid: Tensor
    target: Tensor
    advantage: Tensor
    success: Tensor
    value_weight: Tensor
    trajectory_weight: Tensor


def batch_of(draw: Draw, screens: Handles, buffer: CircularBuffer, context: Context) -> Batch:
    """screens: (B,) `screens_of` its rows."""
    rows, slots = list(draw.rows), draw.rows.slots
    steps = [step_at(entry, index) for entry, index in rows]

    def placed(values: ArrayLike) -> Tensor:
        return torch.from_numpy(np.asarray(values, dtype=np.float32)).to(context.policy.device)

    return Batch(
        steps,
        screens,
        behaviour_logprob=placed(buffer.logprobs[slots]),
        invalid=placed([is_invalid(each.step) for each in steps]),
        target=placed(buffer.columns["target"][slots]),
        advantage=placed(buffer.columns["advantage"][slots]),
        success=placed([succeeded(entry) for entry, _ in rows]),
        value_weight=placed(draw.weights),
        trajectory_weight=placed(draw.weights * draw.mean_length * draw.rows.last),
    )


@dataclass(frozen=True, slots=True)
class Improved:
    """Metrics and scores of a minibatch, from the weights before its gradient step."""

    metrics: Mapping[str, float]
    scores: Scores


def improve(
    trained: Trained, batches: Iterable[Batch], config: settings.ArideSettings, u: int, *, train_policy: bool
) -> list[Improved]:
    """One gradient step on each minibatch, in their order."""
    return [
        _improve_once(trained, batch, config, f"minibatch {index}", u, train_policy)
        for index, batch in enumerate(batches)
    ]


def _improve_once(
    trained: Trained, batch: Batch, config: settings.ArideSettings, purpose: str, u: int, train_policy: bool
) -> Improved:
    """One minibatch: equation 1 for the policy, cross-entropy for both critics, all on the same encoder states."""
    critics = list(trained.critic.parameters.values())
    policy = list(trained.policy.parameters.values()) if train_policy else []
    shaped = losses.shape_advantages(batch.advantage, config.normalise_advantage, config.negative_advantage_weight)
    gradients, rows = trained.context.compute.gradients(
        [*critics, *policy],
        len(batch.steps),
        lambda piece: _part(trained, batch, shaped, piece, config, train_policy),
        purpose,
        u,
    )
    _descend(trained.critic, gradients[: len(critics)], config.critic_lr, config.grad_norm)
    if train_policy:
        _descend(trained.policy, gradients[len(critics) :], config.lr, config.grad_norm)
    return Improved(_metrics(rows, batch, shaped, config), _scores(rows))


def _part(
    trained: Trained, batch: Batch, shaped: Tensor, piece: slice, config: settings.ArideSettings, train_policy: bool
) -> ShardResult:
    """The losses of some rows of a minibatch. Critics read the encoder states and do not train them."""
    context, steps = trained.context, batch.steps[piece]
    with torch.set_grad_enabled(train_policy):
        scored = context.score(steps, batch.screens[piece])
        loss, ratio = loss_and_ratio(
            scored.logprob,
            scored.entropy,
            batch.behaviour_logprob[piece],
            shaped[piece],
            batch.invalid[piece],
            config,
        )
    actions = context.policy.embed_actions([each.step.action_ids for each in steps])
    values = trained.critics.values(scored.states, scored.mask)
    outcomes = trained.critics.trajectory_values(scored.states, scored.mask, actions)
    value_loss = losses.critic_loss(values, batch.target[piece], batch.value_weight[piece])
    trajectory_loss = losses.critic_loss(outcomes, batch.success[piece], batch.trajectory_weight[piece])
    rows = {
        "logprob": scored.logprob,
        "entropy": scored.entropy,
        "ratio": ratio,
        "values": values,
        "outcomes": outcomes,
    }
    critic_loss = value_loss + trajectory_loss
    return ShardResult(
        critic_loss + loss if train_policy else critic_loss, {name: each.detach() for name, each in rows.items()}
    )


def _scores(rows: Mapping[str, Tensor]) -> Scores:
    value, logprob, v_traj = (
        each.cpu().numpy().astype(np.float64)
        for each in (rows["values"].sigmoid(), rows["logprob"], rows["outcomes"].sigmoid())
    )
    return Scores(value, logprob, v_traj)


def _metrics(
    rows: Mapping[str, Tensor], batch: Batch, shaped: Tensor, config: settings.ArideSettings
) -> dict[str, float]:
    """Metrics of a whole minibatch, from its rows' outputs before the step."""
    logprob, entropy, ratio, values = (rows[name] for name in ("logprob", "entropy", "ratio", "values"))
    loss, _ = loss_and_ratio(logprob, entropy, batch.behaviour_logprob, shaped, batch.invalid, config)
    weight = ratio.clamp(max=config.ratio_clip)
    found = {
        "policy_loss": loss,
        "value_loss": losses.critic_loss(values, batch.target, batch.value_weight),
        "trajectory_value_loss": losses.critic_loss(rows["outcomes"], batch.success, batch.trajectory_weight),
        "entropy": -logprob.mean(),
        "token_entropy": entropy.mean(),
        "ratio": ratio.mean(),
        "clipped": (ratio > config.ratio_clip).float().mean(),
        "sample_share": _effective_share(weight),
        "critic_sample_share": _effective_share(batch.value_weight),
        "value_accuracy": ((values > 0).float() == batch.success).float().mean(),
    }
    return {name: float(value) for name, value in found.items()}


def _descend(optimised: Optimised, gradients: Gradients, rate: float, grad_norm: float) -> None:
    descend(optimised, gradients, rate=rate, decay=0.0, grad_norm=grad_norm)


def _effective_share(weight: Tensor) -> Tensor:
    """(Σw)² / (B Σw²): 1 if all weights are equal, 1/B if only one is not 0."""
    return weight.sum().square() / (weight.square().sum().clamp(min=1e-12) * len(weight))
