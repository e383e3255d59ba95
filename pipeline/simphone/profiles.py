"""Kinds of phones: their latencies and the probabilities of faults. A fleet is a list of their names.

All randomness comes from the fleet's seed and the phone's number, and advances only with that phone's actions: the
same actions meet the same latencies and faults, independent of the other phones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from simphone.faults import Fault
from simphone.fleet import FleetSettings, PhoneProfile
from simphone.latency import Latency


@dataclass(frozen=True, slots=True)
class Mishap:
    """chance: of beginning at an action, in [0, 1]. lasts: seconds that each of the faults lasts."""

    chance: float
    lasts: Mapping[Fault, float]


@dataclass(frozen=True, slots=True)
class Profile:
    """sigma and max_ms: of the latency (latency.py), those of the fleet where they are None. moves: whether its
    screen has animations.
    """

    sigma: float | None = None
    max_ms: float | None = None
    mishaps: tuple[Mishap, ...] = field(default=())
    moves: bool = False


PROFILES: Final[Mapping[PhoneProfile, Profile]] = {
    "plain": Profile(),
    "moving": Profile(moves=True),
    "steady": Profile(sigma=0.0),
    "heavy": Profile(sigma=2.2, max_ms=60_000),
    "slow": Profile(mishaps=(Mishap(0.05, {Fault.SLOW: 10}),)),
    "torn": Profile(mishaps=(Mishap(0.05, {Fault.TRUNCATED: 1}),)),
    "dozing": Profile(mishaps=(Mishap(0.02, {Fault.ASLEEP: 30}),)),
    "freezing": Profile(mishaps=(Mishap(0.01, {Fault.SILENT: 20}),)),
    "restarting": Profile(mishaps=(Mishap(0.01, {Fault.GONE: 3, Fault.BOOTING: 8}),)),
}
"""plain: as the fleet's settings. moving: running stopwatch, playing media and the cursor of a text field are animated.
steady: every action takes the median. heavy: a tail so heavy that episodes of one length differ a hundredfold. The
others have occasional faults: slow answers, truncated screenshots, a screen that turns off, a system that hangs, a
restart.
"""


class Luck:
    """The random latencies and faults of phone `number` of a fleet."""

    def __init__(self, settings: FleetSettings, number: int) -> None:
        named: PhoneProfile = settings.profiles[number % len(settings.profiles)] if settings.profiles else "plain"
        profile = PROFILES[named]
        own = replace(
            settings,
            latency_sigma=settings.latency_sigma if profile.sigma is None else profile.sigma,
            latency_max_ms=settings.latency_max_ms if profile.max_ms is None else profile.max_ms,
        )
        self.latency = Latency(own, number)
        self.moves = profile.moves
        self._mishaps = profile.mishaps
        self._random = random.Random(f"mishaps {settings.seed} {number}")

    def faults(self) -> Mapping[Fault, float]:
        """The faults that begin at the next action, and for how many seconds; mostly none."""
        begun: dict[Fault, float] = {}
        for mishap in self._mishaps:
            if self._random.random() < mishap.chance:
                begun |= mishap.lasts
        return begun
