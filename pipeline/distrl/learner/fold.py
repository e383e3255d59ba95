"""The fold F: one update of the learner, as a pure function of the state, the new records and the update's number.

    window ──▶ usable and readable ──▶ memories of warm-up and algorithm ──▶ one update of the one or the other

The algorithm decides what an update does with the trajectories (algorithms/protocol.py). The fold uses no clock and no
global random numbers. `images` is its only I/O, called before anything changes: if it raises, the state is unchanged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from distrl.accelerator import explained
from distrl.algorithms.descent import PASS_ROWS
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
    """Advance `state` by `update`. Returns the update's metrics.

    window: the records between the state's watermarks and the update's, in log order, each task once.
    Raises ValueError for any other window, and what `images` raises (StoreError); `state` is unchanged then. Raises
    ComputeError where the processor fails, as when its memory is exhausted, and AlgorithmError where an algorithm of
    another package does; `state` is unusable then.
    """
    _refuse_wrong_window(state, window, update)
    usable = usable_of(state, window)
    with explained(_pass_rows(config)):
        state.features.load(state.screens([*state.held(), *usable]), images, state.context.compute)
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


def usable_of(state: LearnerState, window: Iterable[LoggedTrajectory]) -> list[LoggedTrajectory]:
    """The trajectories whose screenshots the fold reads; it learns from those whose screenshots are all images."""
    return [
        logged
        for logged in window
        if is_usable(logged.trajectory, state.policy.tokenizer) and state.refuses(logged.trajectory) is None
    ]


def why_skipped(state: LearnerState, window: Iterable[LoggedTrajectory]) -> Mapping[str, int]:
    """How many trajectories of `window` cannot be learned from, by reason; for people."""
    return Counter(filter(None, (_why_skipped(state, logged.trajectory) for logged in window)))


def _why_skipped(state: LearnerState, trajectory: Trajectory) -> str | None:
    if why := _why_unusable(trajectory, state.policy.tokenizer) or state.refuses(trajectory):
        return why
    return None if state.features.readable(trajectory) else "screenshots that are no images"


def is_usable(trajectory: Trajectory, tokenizer: Tokenizer) -> bool:
    """Whether `trajectory` may be learned from: judged a success or a failure, and each step well-formed.

    Records are untrusted. Token ids that the tokenizer does not know, a log-probability that is not finite or a
    malformed object name would end the learner or spoil its weights.

    Outcomes are those recorded: where the judge could not decide, none is guessed from V_traj.
    """
    return _why_unusable(trajectory, tokenizer) is None


def _why_unusable(trajectory: Trajectory, tokenizer: Tokenizer) -> str | None:
    if trajectory.outcome not in (Outcome.SUCCESS, Outcome.FAILURE):
        return f"outcome {trajectory.outcome.value}"
    if not trajectory.steps:
        return "no steps"
    if not all(_is_sane(step, index, tokenizer) for index, step in enumerate(trajectory.steps)):
        return "steps that the tokenizer of policy.base_model does not accept"
    return None


def _pass_rows(config: Config) -> int:
    """learner.microbatch must be below this number of rows for every pass of the model to become smaller."""
    batches = (config.algorithm.batch_size, config.warmup.batch_size)
    return config.learner.microbatch or min(PASS_ROWS, *(-(-size // config.learner.shards) for size in batches))


def _is_sane(step: Step, index: int, tokenizer: Tokenizer) -> bool:
    return tokenizer.accepts(step, index) and math.isfinite(step.logprob) and is_reference(step.screenshot)


def _refuse_wrong_window(state: LearnerState, window: Sequence[LoggedTrajectory], update: Update) -> None:
    """Raises ValueError for other records than the journal names: folding them would silently fork the run."""
    if update.u != state.u:
        raise ValueError(f"update {update.u} does not follow {state.u} folded updates")
    begin = {(mark.topic, mark.partition): mark.offset for mark in state.watermarks}
    end = {(mark.topic, mark.partition): mark.offset for mark in update.watermarks}
    places = [logged.position for logged in window]
    for place in places:
        at = (place.topic, place.partition)
        if not begin.get(at, 0) <= place.offset < end.get(at, 0):
            raise ValueError(f"{place} is not between the watermarks before update {update.u} and its own")
    order = [(place.topic, place.partition, place.offset) for place in places]
    if order != sorted(set(order)) or len(
        {(logged.position.topic, logged.trajectory.task_id) for logged in window}
    ) < len(window):
        raise ValueError(f"the window of update {update.u} is out of order, or holds a task twice")
