"""One task played by a script on a simulated phone in this process: no adb, no clock, under a millisecond a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simphone.machine import fresh, reduce
from simphone.state import State

from distrl.tasks.gestures import event_of
from distrl.tasks.oracle import next_action
from distrl.tasks.outcome import done
from distrl.types import Action, Task

Script = Callable[[Task, State], Action]


@dataclass(frozen=True, slots=True)
class Rollout:
    """steps: actions taken, including the last COMPLETE. final: the phone after them."""

    done: bool
    steps: int
    final: State


def prepared(task: Task, popup_probability: float = 0.0, generation: int = 0) -> State:
    """A phone in the task's initial state."""
    return fresh(task.phone_seed, json.loads(task.setup), popup_probability, generation)


def play(task: Task, popup_probability: float = 0.0, generation: int = 0, script: Script = next_action) -> Rollout:
    """Let the script play until COMPLETE or until no step is left."""
    state, steps = prepared(task, popup_probability, generation), 0
    while steps < task.max_steps:
        action = script(task, state)
        steps += 1
        event = event_of(action)
        if event is None:
            break
        state = reduce(state, event)
    return Rollout(bool(done(task, state)), steps, state)


@dataclass(frozen=True, slots=True)
class RolloutScore:
    """For several tasks: how many were done, and their total steps."""

    tasks: int
    done: int
    steps: int


def score(tasks: Iterable[Task], popup_probability: float, generation: int) -> RolloutScore:
    """Let the oracle play each task once on phones of a UI generation."""
    trials = [play(task, popup_probability, generation) for task in tasks]
    steps = [trial.steps for trial in trials if trial.done]
    return RolloutScore(len(trials), len(steps), sum(steps))
