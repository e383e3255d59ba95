"""A small task that is partially observable, hard to explore and begins differently each time.

    ┌───┬───┬───┬───┐          The agent sees the 3 x 3 cells around it. Somewhere in the room lies a key of one of
    │ a │   │   │   │          four colours. It picks the key up, goes to the door at the end of the middle row, opens
    │   │   │   │   D─c─c─c─x  it and walks the corridor to the crossing x, where one of four ways is right: the one
    │   │   │ k │   │          that the key's colour stands for. It last saw the key when it picked it up.
    └───┴───┴───┴───┘

The reward is 1 at the end of the right way, and 0 otherwise. A wrong way ends the episode, and so does the alarm:
picking up what is not there, or opening a door that is none or for which there is no key.

It has the interface of Gymnasium's environments: `reset` gives an observation, `step` (observation, reward, terminated,
truncated, info).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

UP, DOWN, LEFT, RIGHT, PICK, OPEN = ACTIONS = range(6)
MOVES: Final = {UP: (-1, 0), DOWN: (1, 0), LEFT: (0, -1), RIGHT: (0, 1)}
ROWS: Final = 3
COLOURS: Final = len(MOVES)
"""Colour i stands for the move i at the crossing."""

Observation = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Room:
    """Sizes of the task. limit: most steps of an episode."""

    columns: int = 4
    corridor: int = 3
    limit: int = 24


class State(NamedTuple):
    """row, column: of the agent; in the corridor column counts on and row is the middle one."""

    row: int
    column: int
    key: tuple[int, int] | None
    """None once it was picked up."""
    colour: int
    opened: bool = False


def starts(room: Room) -> list[State]:
    """Every way in which an episode can begin: the agent in the first column, the key in any other."""
    keys = itertools.product(range(ROWS), range(1, room.columns))
    return [State(row, 0, key, colour) for key in keys for row in range(ROWS) for colour in range(COLOURS)]


def crossing(room: Room) -> int:
    """The column of the crossing."""
    return room.columns + room.corridor


def after(state: State, action: int, room: Room) -> State | float:
    """The next state, or the reward with which the episode ends."""
    if state.column == crossing(room):
        return float(action == state.colour)
    if action == PICK:
        return state._replace(key=None) if state.key == (state.row, state.column) else 0.0
    if action == OPEN:
        at_door = (state.row, state.column) == (ROWS // 2, room.columns - 1)
        return state._replace(opened=True) if at_door and state.key is None else 0.0
    down, across = MOVES[action]
    if state.column >= room.columns:  # the corridor leads one way
        return state._replace(column=state.column + max(across, 0))
    row, column = min(max(state.row + down, 0), ROWS - 1), max(state.column + across, 0)
    through = state.opened and row == ROWS // 2
    return state._replace(row=row, column=min(column, crossing(room) if through else room.columns - 1))


def observed(state: State, room: Room) -> Observation:
    """Where the agent is, whether it has the key, whether the door is open, and the key's place and colour if it is
    among the 3 x 3 cells around the agent."""
    places = np.zeros(ROWS + crossing(room) + 1, dtype=np.float32)
    places[state.row] = places[ROWS + state.column] = 1.0
    flags = np.array([state.key is None, state.opened], dtype=np.float32)
    near, colour = np.zeros(9, dtype=np.float32), np.zeros(COLOURS, dtype=np.float32)
    if state.key is not None:
        down, across = state.key[0] - state.row, state.key[1] - state.column
        if max(abs(down), abs(across)) <= 1:
            near[3 * (down + 1) + across + 1] = colour[state.colour] = 1.0
    return np.concatenate([places, flags, near, colour])


def scripted(state: State, room: Room) -> int:
    """A demonstrator's action: along the middle row until the key is in sight, and then what has to be done. It sees
    what the agent sees, and remembers the colour."""
    middle = ROWS // 2
    if state.column == crossing(room):
        return state.colour
    if state.key is not None:
        down, across = state.key[0] - state.row, state.key[1] - state.column
        if max(abs(down), abs(across)) <= 1:
            if across:
                return RIGHT if across > 0 else LEFT
            return PICK if not down else DOWN if down > 0 else UP
    if state.row != middle:
        return DOWN if state.row < middle else UP
    if state.column == room.columns - 1 and not state.opened:
        return OPEN
    return RIGHT


def chance_of_random(room: Room) -> float:
    """The exact probability that uniformly random actions succeed, over all starts."""
    occupied = {state: 1.0 / len(starts(room)) for state in starts(room)}
    won = 0.0
    for _ in range(room.limit):
        following: dict[State, float] = {}
        for state, probability in occupied.items():
            for action in ACTIONS:
                found = after(state, action, room)
                if isinstance(found, float):
                    won += probability / len(ACTIONS) * found
                else:
                    following[found] = following.get(found, 0.0) + probability / len(ACTIONS)
        occupied = following
    return won


class KeyDoor:
    """One episode at a time."""

    def __init__(self, room: Room) -> None:
        self.room = room
        self._starts = starts(room)
        self.state = self._starts[0]
        self._steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """options: {"start": State}; without it one is drawn by `seed`."""
        drawn = np.random.default_rng(seed).integers(len(self._starts))
        self.state = (options or {}).get("start", self._starts[drawn])
        self._steps = 0
        return observed(self.state, self.room), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        found = after(self.state, action, self.room)
        self._steps += 1
        if isinstance(found, float):
            return observed(self.state, self.room), found, True, False, {}
        self.state = found
        return observed(found, self.room), 0.0, False, self._steps >= self.room.limit, {}
