"""R2D3 on the key-and-door task, in one process: actors and learner take turns, so that a seed decides every number."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import torch
from distrl.algorithms.r2d3.losses import LossSettings
from distrl.algorithms.r2d3.sequences import Episode, batch_of, inputs_of
from distrl.algorithms.r2d3.train_step import sequence_loss
from distrl.policy.recurrent_q.network import RecurrentQ
from distrl.replay.sequences import PRIORITY_FLOOR, Shape, Window, draw, windows
from key_door import ACTIONS, Room, State, after, observed, scripted, starts
from numpy.typing import NDArray
from torch.nn.utils import clip_grad_norm_

Choose = Callable[[int, NDArray[np.float64], State], int]
"""An actor's number, Q (A,) of what it sees, and the state -> an action."""

ROOM: Final = Room()
LOSS: Final = LossSettings()
SHAPE: Final = Shape(burn_in=4, length=12, ahead=LOSS.n, stride=6)


@dataclass(frozen=True, slots=True)
class Settings:
    """demonstrations: 0 is R2D2. recurrent: False is DQfD, with sequences of one step."""

    room: Room = ROOM
    recurrent: bool = True
    demonstrations: int = 40
    """Of the script, from starts that are drawn."""
    demo_ratio: float = 0.25
    pretraining: int = 200
    """Updates on demonstrations alone, before any episode."""
    rounds: int = 150
    """Of `actors` episodes and `updates` updates."""
    actors: int = 16
    updates: int = 16
    batch: int = 32
    capacity: int = 1_000
    """Episodes of the agent that are replayed."""
    shape: Shape = SHAPE
    loss: LossSettings = LOSS
    width: int = 64
    lr: float = 1e-3
    grad_norm: float = 10.0
    older: int = 100
    """Updates until Q⁻ is Q again."""
    epsilon: float = 0.4
    epsilon_power: float = 7.0
    """Actor i of N explores with ε^(1 + power · i / (N − 1)), as R2D2's."""
    alpha: float = 0.9
    beta: float = 0.6


@dataclass
class Buffer:
    """Sequences with priorities, by episode; the oldest episodes leave."""

    capacity: int
    shape: Shape
    episodes: list[Episode] = field(default_factory=list)
    priorities: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, episode: Episode) -> None:
        """A new sequence is worth what the most worthy one is, so that it is soon seen (Schaul 2015, algorithm 1)."""
        most = max((float(each.max()) for each in self.priorities), default=1.0)
        self.episodes.append(episode)
        self.priorities.append(np.full(len(windows(len(episode), self.shape)), most))
        del self.episodes[: -self.capacity], self.priorities[: -self.capacity]

    def all(self) -> NDArray[np.float64]:
        return np.concatenate([np.zeros(0), *self.priorities])

    def at(self, places: NDArray[np.int64]) -> list[tuple[int, int]]:
        """(episode, window) of each place in `all`."""
        counts = np.array([len(each) for each in self.priorities], dtype=np.int64)
        ends = np.cumsum(counts)
        episodes = np.searchsorted(ends, places, side="right")
        return [(int(e), int(place - ends[e] + counts[e])) for e, place in zip(episodes, places, strict=True)]

    def window(self, episode: int, number: int) -> Window:
        return windows(len(self.episodes[episode]), self.shape)[number]


class Agent:
    """Actors, both buffers and the learner. Draws of torch are those of its global generator, which it seeds."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.settings = settings
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        room = settings.room
        inputs = len(observed(starts(room)[0], room)) + len(ACTIONS)
        self.online = RecurrentQ(inputs, len(ACTIONS), settings.width, recurrent=settings.recurrent)
        self.older = copy.deepcopy(self.online)
        self.optimiser = torch.optim.Adam(self.online.parameters(), lr=settings.lr)
        self.updates = 0
        self.own, self.demonstrated = (Buffer(settings.capacity, settings.shape) for _ in range(2))
        for episode in self._demonstrations():
            self.demonstrated.add(episode)

    def run(self, report: Callable[[int, float], None] = lambda *_: None) -> float:
        """The share of all starts from which the greedy policy succeeds at the end. report: takes each round's number
        and the share of the actors' episodes that succeeded."""
        settings = self.settings
        if self.demonstrated.episodes:
            for _ in range(settings.pretraining):
                self.update(demo_ratio=1.0)
        for number in range(settings.rounds):
            played = self.play([starts(settings.room)[i] for i in self._drawn(settings.actors)], self._explore)
            for episode in played:
                self.own.add(episode)
            for _ in range(settings.updates):
                self.update(settings.demo_ratio)
            report(number, float(np.mean([each.rewards.sum() for each in played])))
        return self.evaluate()

    def evaluate(self) -> float:
        """Greedy, from every start: the task has no other chance in it, so this is exact."""
        played = self.play(starts(self.settings.room), lambda _, q, state: int(q.argmax()))
        return float(np.mean([each.rewards.sum() for each in played]))

    def play(self, begin: Sequence[State], choose: Choose) -> list[Episode]:
        """An episode from each of `begin`, side by side."""
        room = self.settings.room
        states: list[State] = list(begin)
        memory = self.online.start(len(states))
        seen, acted, earned, before = ([[] for _ in states] for _ in range(4))
        going = list(range(len(states)))
        for _ in range(room.limit):
            for i in going:
                seen[i].append(observed(states[i], room))
                before[i].append(memory[i].numpy().copy())
            rows = np.stack([inputs_of(np.stack(seen[i][-2:]), acted[i][-1:], len(ACTIONS))[-1] for i in going])
            with torch.no_grad():
                q, found = self.online(torch.from_numpy(rows)[:, None], memory[going], torch.ones(len(going), 1).bool())
            memory[going] = found
            for i, values in zip(list(going), q[:, 0].double().numpy(), strict=True):
                action = choose(i, values, states[i])
                result = after(states[i], action, room)
                acted[i].append(action)
                earned[i].append(result if isinstance(result, float) else 0.0)
                if isinstance(result, float):
                    going.remove(i)
                else:
                    states[i] = result
            if not going:
                break
        return [
            Episode(inputs_of(np.stack(s), a, len(ACTIONS)), np.array(a), np.array(r), np.stack(h))
            for s, a, r, h in zip(seen, acted, earned, before, strict=True)
        ]

    def update(self, demo_ratio: float) -> None:
        """One gradient step on a minibatch of both buffers."""
        settings = self.settings
        if self.updates % settings.older == 0:
            self.older.load_state_dict(self.online.state_dict())
        self.updates += 1
        drawn = draw(
            self.rng,
            self.own.all(),
            self.demonstrated.all(),
            demo_ratio=demo_ratio,
            size=settings.batch,
            alpha=settings.alpha,
            beta=settings.beta,
        )
        where = [
            (buffer, episode, number)
            for expert, buffer in enumerate((self.own, self.demonstrated))
            for episode, number in buffer.at(drawn.place[drawn.is_expert == expert])
        ]
        batch = batch_of(
            [buffer.episodes[episode] for buffer, episode, _ in where],
            [buffer.window(episode, number) for buffer, episode, number in where],
            np.sort(drawn.is_expert),
            drawn.weights[np.argsort(drawn.is_expert, kind="stable")],
            settings.shape,
        )
        found = sequence_loss(self.online, self.older, batch, settings.loss)
        self.optimiser.zero_grad()
        found.loss.backward()
        clip_grad_norm_(self.online.parameters(), settings.grad_norm)
        self.optimiser.step()
        for (buffer, episode, number), priority in zip(where, found.priorities, strict=True):
            buffer.priorities[episode][number] = priority + PRIORITY_FLOOR

    def _demonstrations(self) -> list[Episode]:
        """By the script. Their stored states are those of the untrained network: the burn-in has to do the rest."""
        room = self.settings.room
        drawn = [starts(room)[i] for i in self._drawn(self.settings.demonstrations)]
        return self.play(drawn, lambda actor, q, state: scripted(state, room)) if drawn else []

    def _drawn(self, count: int) -> NDArray[np.int64]:
        return self.rng.integers(len(starts(self.settings.room)), size=count)

    def _explore(self, actor: int, q: NDArray[np.float64], state: State) -> int:
        """ε-greedy with the actor's own ε."""
        settings = self.settings
        power = 1.0 + settings.epsilon_power * actor / max(settings.actors - 1, 1)
        if self.rng.random() < settings.epsilon**power:
            return int(self.rng.integers(len(ACTIONS)))
        return int(q.argmax())
