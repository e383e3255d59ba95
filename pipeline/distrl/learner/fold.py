"""F: one update of the learner, as a pure function of the state, the new records and the update's number.

    window ──▶ usable and readable ──▶ memories of warm-up and algorithm ──▶ one update of the one or the other

What an update does with the trajectories is the algorithm's (algorithms/protocol.py). No clock, no global random
numbers, no I/O but `images`, which is asked for everything before anything changes: where it raises, the state is as it
was.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from distrl.algorithms.protocol import Metrics
from distrl.compute import reproducible
from distrl.config import Config
from distrl.learner.state import LearnerState
from distrl.policy.features import Images
from distrl.policy.protocol import Tokenizer
from distrl.store.objects import is_reference
from distrl.types import LoggedTrajectory, Outcome, Step, Trajectory, Update


def fold(
    state: LearnerState, window: Sequence[LoggedTrajectory], update: Update, images: Images, config: Config
) -> Metrics:
    """Advance `state` by `update`. window: the records between the state's watermarks and the update's, in log order,
    each task once. Raises what `images` raises (StoreError), with `state` unchanged.
    """
    _refuse_wrong_window(state, window, update)
    usable = [
        logged
        for logged in window
        if is_usable(logged.trajectory, state.policy.tokenizer) and state.refuses(logged.trajectory) is None
    ]
    state.features.load(state.screens([*state.held(), *usable]), images)
    new = [logged for logged in usable if state.features.readable(logged.trajectory)]
    with reproducible(config.learner.torch_threads):
        metrics = state.learn(new)
    state.u, state.watermarks = update.u + 1, update.watermarks
    return {
        **metrics,
        "update": float(state.u),
        "trajectories": float(len(window)),
        "skipped": float(len(window) - len(new)),
        "buffer": float(sum(map(len, state.algorithm.memory.buffers.values()))),
    }


def is_usable(trajectory: Trajectory, tokenizer: Tokenizer) -> bool:
    """Whether it may be learned from: an interrupted or unjudged trajectory is no failure, and an empty one no data.

    A record is whatever somebody sent: steps that this policy could not have read or written, whose probability is no
    number or whose screenshot has a name that no store holds, would end the learner or spoil its weights.

    V_traj labels nothing here: outcomes come recorded, and where the judge could not tell, neither is guessed.
    """
    told = trajectory.outcome in (Outcome.SUCCESS, Outcome.FAILURE)
    return told and bool(trajectory.steps) and all(_is_sane(step, tokenizer) for step in trajectory.steps)


def _is_sane(step: Step, tokenizer: Tokenizer) -> bool:
    return tokenizer.accepts(step) and math.isfinite(step.logprob) and is_reference(step.screenshot)


def _refuse_wrong_window(state: LearnerState, window: Sequence[LoggedTrajectory], update: Update) -> None:
    """A fold over other records than the journal names would be a fork of the run that nobody notices."""
    if update.u != state.u:
        raise ValueError(f"update {update.u} does not follow {state.u} folded ones")
    begin = {(mark.topic, mark.partition): mark.offset for mark in state.watermarks}
    end = {(mark.topic, mark.partition): mark.offset for mark in update.watermarks}
    places = [logged.position for logged in window]
    for place in places:
        at = (place.topic, place.partition)
        if not begin.get(at, 0) <= place.offset < end.get(at, 0):
            raise ValueError(f"{place} is not between the watermarks of update {update.u} and those before it")
    order = [(place.topic, place.partition, place.offset) for place in places]
    if order != sorted(set(order)) or len(
        {(logged.position.topic, logged.trajectory.task_id) for logged in window}
    ) < len(window):
        raise ValueError(f"the window of update {update.u} is out of order, or holds a task twice")
