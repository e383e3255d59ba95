"""The feeder in virtual time: the real state, admission and choice of partitions, given what the topics would hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from distrl.config import Config
from distrl.experiment.virtual_time import VirtualTime
from distrl.feeder.run import new_state
from distrl.feeder.spread import Owner, spread
from distrl.types import LoggedTrajectory, LogPosition, Task, Update, Version


class VirtualFeeder:
    """Feeds at once whenever a record reaches it. It is no actor, as it never waits.

    partitions: what takes the tasks of each partition, which is the one worker that has it. phones: of each worker.
    """

    def __init__(
        self, time: VirtualTime, config: Config, partitions: Sequence[Callable[[Task], object]],
        phones: Sequence[int], record_s: float, topic: str,
    ) -> None:  # fmt: skip
        self._time, self._partitions, self._record_s, self._topic = time, partitions, record_s, topic
        self._state = new_state(config)
        self._state.admission = replace(self._state.admission, outstanding=config.feeder.outstanding_for(sum(phones)))
        self._owners = [Owner((partition,), own) for partition, own in enumerate(phones)]
        self._ends = [0] * len(partitions)
        """The next offset of each partition of `tasks`."""

    def see_trajectory(self, logged: LoggedTrajectory) -> None:
        self._state.facts.see_trajectory(logged.position.offset, logged.trajectory)
        self._feed()

    def see_update(self, update: Update) -> None:
        self._state.facts.see_update(update, self._topic)
        self._feed()

    def see_version(self, version: Version) -> None:
        if self._state.facts.update < version.update:  # of the warm-up, which an experiment begins after
            self._state.facts.update = version.update
        self._state.facts.see_version(version)
        self._feed()

    def _feed(self) -> None:
        facts = self._state.facts
        tasks = self._state.due(int(self._time.now * 1000))
        chosen = spread(facts.outstanding.loads, self._owners, len(tasks))
        for task, partition in zip(tasks, chosen, strict=True):
            facts.see_sent(task.task_id, partition)
            facts.see_task(task, LogPosition("tasks", partition, self._ends[partition]))
            self._ends[partition] += 1
            self._time.after(self._record_s, partial(self._partitions[partition], task))
