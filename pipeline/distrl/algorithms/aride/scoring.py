"""Scores recorded transitions with the present policy and critics (DistRL, sections 5.1 and 5.2)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from distrl import config as settings
from distrl.algorithms.aride.critics import Critics
from distrl.algorithms.aride.memory import Scores
from distrl.algorithms.aride.truncation import screen_after, step_after
from distrl.algorithms.descent import passes
from distrl.algorithms.episodes import step_at
from distrl.algorithms.protocol import Context
from distrl.algorithms.returns import Array
from distrl.errors import PolicyError
from distrl.policy.feature_rows import Handles
from distrl.policy.protocol import Score, TrajectoryStep
from distrl.replay.circular import Rows
from distrl.types import Trajectory

Places = NDArray[np.int64]
"""Indices of the rows of one pass."""


def score(
    context: Context, critics: Critics, rows: Rows, config: settings.ArideSettings, screens: Handles | None = None
) -> Scores:
    """The networks' scores of `rows`. screens: (n,) `screens_of` them."""
    steps = [step_at(entry, index) for entry, index in rows]
    value, logprob, v_traj = np.zeros(len(steps)), np.zeros(len(steps)), np.zeros(len(steps))

    def look(places: Places) -> tuple[Array, Array, Array]:
        some = [steps[place] for place in places]
        scored = context.score(some, None if screens is None else screens[places])
        actions = context.policy.embed_actions([each.step.action_ids for each in some])
        outcomes = critics.trajectory_values(scored.states, scored.mask, actions).sigmoid().cpu().numpy()
        return state_values(critics, scored), scored.logprob.cpu().numpy(), outcomes

    def keep(places: Places, found: tuple[Array, Array, Array]) -> None:
        value[places], logprob[places], v_traj[places] = found

    with torch.no_grad():
        context.compute.each(list(passes([each.step for each in steps], context.config.learner.microbatch)), look, keep)
    return Scores(value, logprob, v_traj, _values_after(context, critics, rows, config))


def state_values(critics: Critics, scored: Score) -> Array:
    """(B,) V(s) in [0, 1] of scored steps, without gradient."""
    values: Array = critics.values(scored.states, scored.mask).sigmoid().cpu().numpy()
    return values


def _values_after(context: Context, critics: Critics, rows: Rows, config: settings.ArideSettings) -> Array:
    """(n,) V(s_{H+1}) of last steps that are bootstrapped from the screenshot after them; 0 elsewhere."""
    values = np.zeros(len(rows))
    if config.truncation == "terminal":
        return values
    cut = {
        place: after
        for place, (entry, index) in enumerate(rows)
        if index == len(entry) - 1 and (after := _after(context, entry.logged.trajectory)) is not None
    }
    steps = list(cut.values())

    def look(places: Places) -> Array:
        return state_values(critics, context.score([steps[place] for place in places]))

    def keep(places: Places, found: Array) -> None:
        values[np.array(list(cut))[places]] = found

    with torch.no_grad():
        context.compute.each(list(passes([each.step for each in steps], context.config.learner.microbatch)), look, keep)
    return values


def _after(context: Context, trajectory: Trajectory) -> TrajectoryStep | None:
    """The step that would follow a cut-off episode; None where there is none that the policy could read."""
    screen = screen_after(trajectory)
    if screen is None or not context.features.shows(screen):
        return None
    try:
        after = step_after(trajectory, screen, context.features.size(screen), context.policy.tokenizer.encode_prompt)
    except PolicyError:  # a record may hold an instruction that no prompt takes
        return None
    return TrajectoryStep((*trajectory.steps, after), len(trajectory.steps))
