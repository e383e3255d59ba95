"""Computes the credit of every transition of the buffer under the present policy and critics (DistRL, section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from distrl import config as settings
from distrl.algorithms import losses
from distrl.algorithms.aride.credit import credit
from distrl.algorithms.aride.critics import Critics
from distrl.algorithms.aride.truncation import step_after
from distrl.algorithms.descent import passes
from distrl.algorithms.protocol import Context, steps_of
from distrl.algorithms.returns import Array, penalties
from distrl.policy.protocol import Score
from distrl.replay.circular import CircularBuffer, Entry
from distrl.types import ActionKind, HeldBack, Outcome, Step


def annotate(
    context: Context, critics: Critics, buffer: CircularBuffer, entries: Sequence[Entry], config: settings.ArideSettings
) -> None:
    """Compute the buffer's columns for every step of `entries`."""
    steps = steps_of(entries)
    values, logprobs, v_traj = np.zeros(len(steps)), np.zeros(len(steps)), np.zeros(len(steps))
    with torch.no_grad():
        for rows in passes(steps):
            scored = context.score(steps[rows])
            logprobs[rows] = scored.logprob.numpy()
            values[rows] = state_values(critics, scored)
            actions = context.policy.embed_actions([step.action_ids for step in steps[rows]])
            v_traj[rows] = critics.trajectory_values(scored.states, scored.mask, actions).sigmoid().numpy()
    ratios = np.exp(np.clip(logprobs - [step.logprob for step in steps], *losses.LOG_RATIO_BOUNDS))
    after = _values_after(context, critics, entries, config)
    begin = 0
    for entry in entries:
        rows, slots = slice(begin, begin + len(entry)), buffer.slots(entry)
        begin += len(entry)
        worth = credit(
            values[rows],
            ratios[rows],
            penalties_of(entry.steps, config),
            succeeded(entry),
            config,
            after.get(entry.start, 0.0),
        )
        columns = buffer.columns
        columns["td"][slots], columns["target"][slots] = worth.td, worth.targets
        columns["advantage"][slots], columns["ratio"][slots] = worth.advantages, ratios[rows]
        columns["nll"][slots], columns["v_traj"][slots] = -logprobs[rows], v_traj[rows][-1]


def state_values(critics: Critics, scored: Score) -> Array:
    """(B,) V(s) in [0, 1] of scored steps, without gradient."""
    values: Array = critics.values(scored.states, scored.mask).sigmoid().numpy()
    return values


def succeeded(entry: Entry) -> bool:
    return entry.logged.trajectory.outcome is Outcome.SUCCESS


def is_invalid(step: Step) -> bool:
    """Whether P_invalid of equation 1 is 1: the text is no action, the phone cannot do it (like text that it cannot
    type), or a judge said that it cannot be done on that screen.

    Without a judge's answer an action counts as valid.
    """
    refused = step.held_back is HeldBack.REFUSED
    return step.action.kind is ActionKind.INVALID or refused or step.valid is False


def penalties_of(steps: Sequence[Step], config: settings.ArideSettings) -> Array:
    """(T,) the immediate penalties of a trajectory's steps."""
    return penalties(
        [step.action_text for step in steps],
        [step.screenshot.sha256 for step in steps],
        [is_invalid(step) for step in steps],
        config.repetition_penalty,
        config.invalid_reward,
    )


def _values_after(
    context: Context, critics: Critics, entries: Sequence[Entry], config: settings.ArideSettings
) -> dict[int, float]:
    """Start of an entry -> V(s_{H+1}), for entries that are bootstrapped from the screenshot after their last step."""
    if config.truncation == "terminal":
        return {}
    cut = [
        (entry.start, after)
        for entry in entries
        if (after := step_after(entry.logged.trajectory, context.policy.tokenizer.encode_prompt)) is not None
        and context.features.shows(after.screenshot)
    ]
    values: dict[int, float] = {}
    with torch.no_grad():
        for rows in passes([step for _, step in cut]):
            starts, steps = zip(*cut[rows], strict=True)
            found = state_values(critics, context.score(steps))
            values.update(zip(starts, found.tolist(), strict=True))
    return values
