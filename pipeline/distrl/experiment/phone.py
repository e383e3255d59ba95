"""A simulated phone whose latencies pass in virtual time: the device of an episode, without adb.

Unlike a phone behind adb it never fails, every screen rests, and it can type any text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from simphone.machine import PhoneMachine

from distrl.experiment.costs import Draws
from distrl.experiment.virtual_time import VirtualTime
from distrl.rollout.episode import Screen
from distrl.tasks.gestures import event_of
from distrl.types import Action, HeldBack, Task

NOT_DRAWN: Final = b"a screen that nobody reads is not drawn"


class VirtualPhone:
    """`distrl.rollout.episode.Phone`, used by one actor.

    drawn: whether its screens are drawn, which takes most of the real time; a script does not read them. generation: of
    the apps' look.
    """

    def __init__(
        self, number: int, time: VirtualTime, draws: Draws, popup_probability: float, drawn: bool, generation: int = 0
    ) -> None:  # fmt: skip
        self.number = number
        self.own_s = 0.0
        """Virtual seconds that the phone itself, and lone decisions for it, have taken or are taking."""
        self._own_until = 0.0
        self._time, self._draws, self._drawn = time, draws, drawn
        self._machine = PhoneMachine(number, popup_probability, generation)
        self._episode, self._step = -1, 0

    @property
    def serial(self) -> str:
        return f"virtual-{self.number}"

    def reset(self, task: Task) -> None:
        self._episode, self._step = self._episode + 1, 0
        self._take(self._draws.reset(self.number, self._episode))
        self._machine.reset(task.phone_seed, json.loads(task.setup))

    def settle(self) -> Screen:
        self._take(self._draws.look(self.number, self._episode, self._step))
        self._step += 1
        return Screen(self._machine.png() if self._drawn else NOT_DRAWN)

    def perform(self, action: Action) -> HeldBack:
        self._take(self._draws.act(self.number, self._episode, self._step))
        event = event_of(action)
        if event is not None:
            self._machine.apply(event)
        return HeldBack.NO

    def left_apps(self) -> Sequence[str]:
        return ()

    def truth(self) -> Mapping[str, Any]:
        return self._machine.state()

    def hierarchy(self, timeout_s: float) -> bytes | None:
        return None

    def count(self, seconds: float) -> None:
        """From now on so many seconds are the phone's own."""
        self.own_s += seconds
        self._own_until = self._time.now + seconds

    def own_s_at(self, now: float) -> float:
        """`own_s` without what lies after now."""
        return self.own_s - max(0.0, self._own_until - now)

    def _take(self, seconds: float) -> None:
        self.count(seconds)
        self._time.sleep(seconds)
