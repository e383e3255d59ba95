"""A-RIDE on the replay buffer: annotate trajectories, draw transitions by priority, step critics and policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from distrl.algorithms import aride, losses
from distrl.algorithms.returns import Array, penalties
from distrl.config import Aride, Config
from distrl.learner.gradients import descend, score
from distrl.learner.seeds import generator
from distrl.learner.state import LearnerState
from distrl.learner.truncation import step_after
from distrl.replay import dper
from distrl.replay.circular import Entry
from distrl.types import ActionKind, HeldBack, Outcome, Step

ANNOTATED_TOGETHER = 128
"""Steps in one forward pass without gradient. A part of F: how many rows share a pass decides their last bits."""


@dataclass(frozen=True, slots=True)
class Batch:
    """B transitions, and what was recorded and computed of them; each tensor (B,) float32.

    success: the outcome of the trajectory. value_weight: makes the draws uniform over transitions, for V(s).
    trajectory_weight: makes those of last steps uniform over trajectories, for V_traj; 0 on every other step.
    """

    steps: Sequence[Step]
    behaviour_logprob: Tensor
    invalid: Tensor
    target: Tensor
    advantage: Tensor
    success: Tensor
    value_weight: Tensor
    trajectory_weight: Tensor


def annotate(state: LearnerState, entries: Sequence[Entry], config: Config) -> None:
    """Compute the buffer's columns for every step of `entries` under the present policy and critics."""
    steps = [step for entry in entries for step in entry.steps]
    values, logprobs, quality = np.zeros(len(steps)), np.zeros(len(steps)), np.zeros(len(steps))
    with torch.no_grad():
        for begin in range(0, len(steps), ANNOTATED_TOGETHER):
            rows = slice(begin, begin + ANNOTATED_TOGETHER)
            scored = score(state, steps[rows])
            logprobs[rows] = scored.logprob.numpy()
            values[rows] = state.critics.values(scored.states, scored.mask).sigmoid().numpy()
            actions = action_embeddings(state, steps[rows])
            quality[rows] = state.critics.trajectory_values(scored.states, scored.mask, actions).sigmoid().numpy()
    ratios = np.exp(np.clip(logprobs - [step.logprob for step in steps], *losses.LOG_RATIO_BOUNDS))
    after = _values_after(state, entries, config)
    begin = 0
    for entry in entries:
        rows, slots = slice(begin, begin + len(entry)), state.buffer.slots(entry)
        begin += len(entry)
        credit = aride.credit(
            values[rows], ratios[rows], penalties_of(entry.steps, config.aride), succeeded(entry), config.aride,
            after.get(entry.start, 0.0),
        )  # fmt: skip
        columns = state.buffer.columns
        columns["td"][slots], columns["target"][slots] = credit.td, credit.targets
        columns["advantage"][slots], columns["ratio"][slots] = credit.advantages, ratios[rows]
        columns["surprise"][slots], columns["quality"][slots] = -logprobs[rows], quality[rows][-1]


def improve(state: LearnerState, config: Config, *, train_policy: bool) -> dict[str, float]:
    """Gradient steps on minibatches of prioritised transitions; the mean of each metric over them."""
    found = [_improve_once(state, batch, config, train_policy) for batch in draw(state, config)]
    return {name: float(np.mean([each[name] for each in found])) for name in found[0]} if found else {}


def draw(state: LearnerState, config: Config) -> list[Batch]:
    """The minibatches of one update: transitions through trajectories, drawn by DPER."""
    entries, learner = state.buffer.entries, config.learner
    if not entries:
        return []
    first_slots = [entry.start % state.buffer.capacity for entry in entries]
    priority = dper.filtered(
        dper.priorities(state.buffer, config.replay), state.buffer.columns["quality"][first_slots],
        config.replay.value_filter,
    )  # fmt: skip
    probability = dper.probabilities(priority, config.replay.alpha)
    lengths = np.array([len(entry) for entry in entries], dtype=np.int64)
    size = learner.minibatches * learner.batch_size
    drawn = dper.sample(generator(config, "replay", state.u), probability, lengths, size)
    weights = dper.importance_weights(probability, lengths)
    return [
        _batch(state, [(entries[entry], int(step)) for entry, step in rows], weights[rows[:, 0]], float(lengths.mean()))
        for rows in np.split(drawn, learner.minibatches)
    ]


def succeeded(entry: Entry) -> bool:
    return entry.logged.trajectory.outcome is Outcome.SUCCESS


def is_invalid(step: Step) -> bool:
    """P_invalid of equation 1 is 1: what was written is no action, the phone refused it as one that it cannot do (text
    that it cannot type), or a judge said that it cannot be done there.

    Where no judge was asked, or none could tell, nothing is held against the agent.
    """
    refused = step.held_back is HeldBack.REFUSED
    return step.action.kind is ActionKind.INVALID or refused or step.valid is False


def penalties_of(steps: Sequence[Step], config: Aride) -> Array:
    """(T,) the immediate penalties of a trajectory's steps."""
    return penalties(
        [step.action_text for step in steps],
        [step.screenshot.sha256 for step in steps],
        [is_invalid(step) for step in steps],
        config.repetition_penalty,
        config.invalid_reward,
    )


def _values_after(state: LearnerState, entries: Sequence[Entry], config: Config) -> dict[int, float]:
    """V(s_{H+1}) by the start of each entry that is bootstrapped from what was seen after its last step."""
    if config.aride.truncation == "terminal":
        return {}
    cut = [
        (entry.start, after)
        for entry in entries
        if (after := step_after(entry.logged.trajectory, state.agent.codec)) is not None
        and state.features.shows(after.screenshot)
    ]
    values: dict[int, float] = {}
    with torch.no_grad():
        for begin in range(0, len(cut), ANNOTATED_TOGETHER):
            starts, steps = zip(*cut[begin : begin + ANNOTATED_TOGETHER], strict=True)
            scored = score(state, steps)
            found = state.critics.values(scored.states, scored.mask).sigmoid().tolist()
            values.update(zip(starts, found, strict=True))
    return values


def _batch(state: LearnerState, rows: Sequence[tuple[Entry, int]], weights: Array, mean_length: float) -> Batch:
    """weights: (B,) of the rows, uniform over transitions. mean_length: of all trajectories, in steps."""
    final = np.array([index == len(entry) - 1 for entry, index in rows])
    steps = [entry.steps[index] for entry, index in rows]
    slots = [(entry.start + index) % state.buffer.capacity for entry, index in rows]
    return Batch(
        steps,
        behaviour_logprob=torch.tensor([step.logprob for step in steps]),
        invalid=torch.tensor([float(is_invalid(step)) for step in steps]),
        target=torch.from_numpy(state.buffer.columns["target"][slots]).float(),
        advantage=torch.from_numpy(state.buffer.columns["advantage"][slots]).float(),
        success=torch.tensor([float(succeeded(entry)) for entry, _ in rows]),
        value_weight=torch.from_numpy(weights).float(),
        trajectory_weight=torch.from_numpy(weights * mean_length * final).float(),
    )


def _improve_once(state: LearnerState, batch: Batch, config: Config, train_policy: bool) -> dict[str, float]:
    """One minibatch: equation 1 for the policy, cross-entropy for both critics, all on the same encoder states."""
    learner = config.learner
    with torch.set_grad_enabled(train_policy):
        scored = score(state, batch.steps)
        policy_loss, ratio = aride.policy_loss(
            scored.logprob, scored.entropy, batch.behaviour_logprob, batch.advantage, batch.invalid, config.aride
        )
    values = state.critics.values(scored.states, scored.mask)
    outcomes = state.critics.trajectory_values(scored.states, scored.mask, action_embeddings(state, batch.steps))
    value_loss = losses.critic_loss(values, batch.target, batch.value_weight)
    trajectory_loss = losses.critic_loss(outcomes, batch.success, batch.trajectory_weight)
    descend(
        state.critic_optimiser, state.critic_parameters().values(), value_loss + trajectory_loss,
        rate=learner.critic_lr, decay=0.0, grad_norm=learner.grad_norm,
    )  # fmt: skip
    if train_policy:
        descend(
            state.policy_optimiser, state.policy_parameters().values(), policy_loss,
            rate=learner.lr, decay=0.0, grad_norm=learner.grad_norm,
        )  # fmt: skip
    weight = ratio.clamp(max=config.aride.ratio_clip)
    found = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "trajectory_value_loss": trajectory_loss,
        "entropy": -scored.logprob.mean(),
        "token_entropy": scored.entropy.mean(),
        "ratio": ratio.mean(),
        "clipped": (ratio > config.aride.ratio_clip).float().mean(),
        "sample_share": _effective_share(weight),
        "critic_sample_share": _effective_share(batch.value_weight),
        "value_accuracy": ((values > 0).float() == batch.success).float().mean(),
    }
    return {name: float(value.detach()) for name, value in found.items()}


def _effective_share(weight: Tensor) -> Tensor:
    """(Σw)² / (B Σw²): 1 where all weigh alike, 1/B where one weighs all."""
    return weight.sum().square() / (weight.square().sum().clamp(min=1e-12) * len(weight))


def action_embeddings(state: LearnerState, steps: Sequence[Step]) -> Tensor:
    """(B, d) the mean of each action's token embeddings, which are frozen."""
    embed = state.agent.model.t5.shared.weight.detach()
    return torch.stack([embed[list(step.action_ids)].mean(0) for step in steps])
