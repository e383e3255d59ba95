"""F: one update of the learner, as a pure function of the state, the new records and the update's number.

    window ──▶ admit ──▶ buffer ──▶ annotate (V, ρ, Retrace, advantages) ──▶ priorities ──▶ draws ──▶ gradient steps

Phases by update: u < warmup_updates clones the demonstrations; the next critic_warmup_updates train the critics
alone; all later ones are A-RIDE. No clock, no global random numbers, no I/O but `images`, which is asked for
everything before anything changes: where it raises, the state is as it was.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from enum import Enum

from distrl.config import Config, Learner
from distrl.learner.clone import clone
from distrl.learner.features import Images
from distrl.learner.improve import annotate, improve
from distrl.learner.seeds import reproducible
from distrl.learner.state import LearnerState, screens
from distrl.policy.vocabulary import PAD, Codec
from distrl.replay.circular import Entry
from distrl.store.objects import is_reference
from distrl.types import LoggedTrajectory, Outcome, Step, Trajectory, Update

Metrics = Mapping[str, float]


class Phase(Enum):
    CLONE = "behaviour cloning of demonstrations"
    CRITICS = "the critics alone: a policy that follows a fresh critic unlearns what it was cloned to do"
    ARIDE = "A-RIDE"


def phase_of(u: int, learner: Learner) -> Phase:
    if u < learner.warmup_updates:
        return Phase.CLONE
    return Phase.CRITICS if u < learner.warmup_updates + learner.critic_warmup_updates else Phase.ARIDE


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
        if is_usable(logged.trajectory, state.agent.codec) and len(logged.trajectory.steps) <= state.buffer.capacity
    ]
    state.features.load(screens([*state.held(), *usable], config.aride.truncation), images)
    phase = phase_of(update.u, config.learner)
    with reproducible(config.learner.torch_threads):
        if update.u == config.learner.warmup_updates:
            state.end_warmup()
        new = [logged for logged in usable if state.features.readable(logged.trajectory)]
        entries = _admit(state, new, phase, config)
        metrics = _learn(state, entries, phase, config)
    state.u, state.watermarks = update.u + 1, update.watermarks
    return {
        **metrics,
        "update": float(state.u),
        "trajectories": float(len(window)),
        "skipped": float(len(window) - len(new)),
        "buffer": float(len(state.buffer)),
    }


def is_usable(trajectory: Trajectory, codec: Codec) -> bool:
    """Whether it may be learned from: an interrupted or unjudged trajectory is no failure, and an empty one no data.

    A record is whatever somebody sent: steps that this policy could not have read or written, whose probability is no
    number or whose screenshot has a name that no store holds, would end the learner or spoil its weights.

    V_traj labels nothing here: outcomes come recorded, and where the judge could not tell, neither is guessed.
    """
    told = trajectory.outcome in (Outcome.SUCCESS, Outcome.FAILURE)
    return told and bool(trajectory.steps) and all(_is_sane(step, codec) for step in trajectory.steps)


def _is_sane(step: Step, codec: Codec) -> bool:
    fits = 0 < len(step.prompt_ids) <= codec.prompt_length and 0 < len(step.action_ids) <= codec.action_length
    known = all(PAD < token < len(codec.tokens) for token in (*step.prompt_ids, *step.action_ids))
    return fits and known and math.isfinite(step.logprob) and is_reference(step.screenshot)


def _admit(state: LearnerState, new: Sequence[LoggedTrajectory], phase: Phase, config: Config) -> list[Entry]:
    """Put new trajectories where they are learned from; the replay buffer's new entries."""
    entries = []
    for logged in new:
        if logged.trajectory.is_expert and phase is Phase.CLONE:
            state.demonstrations.add(logged)
        if not logged.trajectory.is_expert or config.replay.demonstrations:
            entries.append(state.buffer.add(logged))
    return entries


def _learn(state: LearnerState, new: Sequence[Entry], phase: Phase, config: Config) -> Metrics:
    if phase is Phase.CLONE:
        return clone(state, config)
    since = state.u - config.learner.warmup_updates
    every = phase is Phase.CRITICS or since % config.replay.refresh_every == 0  # fresh critics change fast
    annotate(state, state.buffer.entries if every else new, config)
    return improve(state, config, train_policy=phase is Phase.ARIDE)


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
