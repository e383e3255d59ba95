"""Plays tasks outside of what an experiment measures: demonstrations, and greedy episodes that measure a version. They
take none of the experiment's virtual time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from distrl.clock import Clock
from distrl.config import Config
from distrl.experiment.costs import FREE, Draws
from distrl.experiment.phone import VirtualPhone
from distrl.experiment.virtual_time import VirtualTime
from distrl.rollout.episode import Decider, Episode
from distrl.types import Task, Trajectory


def played(
    config: Config, tasks: Sequence[Task], episode: Callable[[Clock], Episode], decider: Callable[[Task], Decider],
    generation: Callable[[int], int],
) -> list[Trajectory]:  # fmt: skip
    """Each task on a phone of its own state, one after the other; the attempt is named as the task.

    episode: made with the clock of these episodes, at which all happens at 0. generation: of the look of the phone that
    plays the task at a place of `tasks`.
    """
    time, found = VirtualTime(), list[Trajectory]()

    @cache
    def phone(look: int) -> VirtualPhone:
        return VirtualPhone(0, time, Draws(FREE, 0), config.phones.popup_probability, drawn=True, generation=look)

    playing = episode(Clock(now=lambda: time.now, ticks=lambda: time.now))

    def play() -> None:
        for place, task in enumerate(tasks):
            found.append(playing.run(task, task.task_id, phone(generation(place)), decider(task)))

    time.start("player", play)
    time.run()
    return found
