"""The two buffers of R2D3, of the agent's own episodes and of demonstrations, and draws of sequences from both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from distrl.algorithms.protocol import Phase, too_long
from distrl.algorithms.returns import Array
from distrl.config import Config
from distrl.config.algorithms import R2d3Settings
from distrl.policy.recurrent_q.tokenizer import parts
from distrl.replay.circular import CircularBuffer, Entry
from distrl.replay.sequences import PRIORITY_FLOOR, Draws, Ints, Shape, Window, draw, windows
from distrl.types import LoggedTrajectory, Step, Trajectory

R2D3: Final = Phase("r2d3", trains_policy=True)
PRETRAINING: Final = Phase("pretraining", trains_policy=True)
"""On demonstrations alone."""


class Drawn(NamedTuple):
    """A sequence in a buffer. slot: where its priority is."""

    buffer: CircularBuffer
    entry: Entry
    window: Window
    slot: int


@dataclass(frozen=True, slots=True)
class Sequences:
    """The n sequences of a buffer whose priorities are known. slots: (n,) where each one's priority is. owners: (n,)
    the number of its entry. numbers: (n,) its number within the entry."""

    slots: Ints
    owners: Ints
    numbers: Ints


class R2d3Memory:
    """Both buffers. The priority of an episode's sequence number i is stored in the column of its step number i. There
    is such a step, as no two sequences begin at the same one. 0: the priority is not known yet, or there is no such
    sequence."""

    def __init__(self, config: Config, state_width: int = 0) -> None:
        """state_width: numbers in a stored state; 0: store none."""
        self._config, self._settings = config, settings_of(config)
        vectors = {"state": state_width} if state_width else {}
        capacity = self._settings.replay.capacity
        self.own = CircularBuffer(capacity, ("priority",), vectors)
        self.demonstrated = CircularBuffer(capacity, ("priority",), vectors)
        self.shape = shape_of(self._settings)

    @property
    def buffers(self) -> Mapping[str, CircularBuffer]:
        return {"agent": self.own, "demonstrations": self.demonstrated}

    def phase(self, u: int) -> Phase:
        return PRETRAINING if u < self._config.warmup.updates else R2D3

    def refuses(self, trajectory: Trajectory) -> str | None:
        if not _is_one_episode(trajectory.steps):
            return "no episode of a recurrent Q: its prompts do not say what its steps did"
        return too_long(trajectory, self._settings.replay.capacity)

    def admit(self, logged: LoggedTrajectory) -> None:
        (self.demonstrated if logged.trajectory.is_expert else self.own).add(logged)

    def uses(self, u: int) -> Sequence[Entry]:
        ratio = self._demo_ratio(u)
        return [*(self.own.entries if ratio < 1.0 else ()), *(self.demonstrated.entries if ratio > 0.0 else ())]

    def draws(self, u: int) -> None:
        """None: what is drawn depends on the networks."""
        return

    def unscored(self) -> list[tuple[CircularBuffer, Entry]]:
        """The episodes whose sequences have no priority yet."""
        return [
            (buffer, entry)
            for buffer in self.buffers.values()
            for entry in buffer.entries
            if buffer.columns["priority"][buffer.slots(entry)[0]] == 0.0
        ]

    def score(self, buffer: CircularBuffer, entry: Entry) -> None:
        """Give an episode's sequences the largest priority in the buffer, so that each is drawn soon (Schaul 2015,
        algorithm 1)."""
        column = buffer.columns["priority"]
        most = float(column[buffer.live()].max()) or 1.0
        column[buffer.slots(entry)[: len(windows(len(entry), self.shape))]] = most

    def drawn(self, rng: np.random.Generator, u: int, size: int) -> tuple[list[Drawn], Draws]:
        """`size` sequences for update `u`, some of whose trajectories `uses` must have."""
        ratio, found = self._demo_ratio(u), [_sequences(each) for each in (self.own, self.demonstrated)]
        nothing = np.zeros(0)
        own, demonstrated = (
            buffer.columns["priority"][each.slots]
            for buffer, each in zip((self.own, self.demonstrated), found, strict=True)
        )
        draws = draw(
            rng,
            own if ratio < 1.0 else nothing,
            demonstrated if ratio > 0.0 else nothing,
            demo_ratio=ratio,
            size=size,
            alpha=self._settings.alpha,
            beta=self._settings.beta,
        )
        return [
            self._at(self.demonstrated if expert else self.own, found[int(expert)], int(place))
            for expert, place in zip(draws.is_expert, draws.place, strict=True)
        ], draws

    def update_priorities(self, drawn: Sequence[Drawn], priorities: Array) -> None:
        """priorities: (n,) the new ones; a sequence that was drawn twice has the same one twice."""
        for each, priority in zip(drawn, priorities, strict=True):
            each.buffer.columns["priority"][each.slot] = float(priority) + PRIORITY_FLOOR

    def _at(self, buffer: CircularBuffer, found: Sequences, place: int) -> Drawn:
        entry = buffer.entries[found.owners[place]]
        window = windows(len(entry), self.shape)[found.numbers[place]]
        return Drawn(buffer, entry, window, int(found.slots[place]))

    def _demo_ratio(self, u: int) -> float:
        return 1.0 if self.phase(u) is PRETRAINING else self._settings.demo_ratio


def _is_one_episode(steps: Sequence[Step]) -> bool:
    """Whether all prompts have the same goal, and each has exactly the actions of the steps before it.

    The possible actions of a step are read from the episode's last prompt. If an action taken were not possible there,
    no update could change its Q, and its large error would attract nearly all draws.
    """
    reads = [parts(step.prompt_ids) for step in steps]
    done = tuple(step.action_ids for step in steps)
    return all(
        read is not None and read.goal == (reads[-1] or read).goal and read.actions == done[:index]
        for index, read in enumerate(reads)
    )


def _sequences(buffer: CircularBuffer) -> Sequences:
    layout = buffer.layout
    places = np.flatnonzero(buffer.columns["priority"][layout.slots])
    owners = layout.owner[places]
    return Sequences(layout.slots[places], owners, places - layout.begins[owners])


def shape_of(settings: R2d3Settings) -> Shape:
    return Shape(settings.burn_in, settings.length, settings.n, settings.stride)


def settings_of(config: Config) -> R2d3Settings:
    assert isinstance(config.algorithm, R2d3Settings)
    return config.algorithm
