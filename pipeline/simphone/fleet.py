"""The settings of a fleet of simulated phones: plain values, validated here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, get_args

from simphone.generations import NEWEST

PhoneProfile = Literal["plain", "moving", "steady", "heavy", "slow", "torn", "dozing", "freezing", "restarting"]
"""Kinds of phones, which profiles.py describes."""
PROFILE_NAMES: Final[tuple[PhoneProfile, ...]] = get_args(PhoneProfile)
LOWEST_PORT: Final = 5586
"""adb servers look for emulators on ports 5555 to 5585 by themselves, and would find a phone there twice."""
HIGHEST_PORT: Final = 65535
WIDEST_SIGMA: Final = 3.0


class SettingError(ValueError):
    """An invalid setting.

    setting: a field of FleetSettings. what: what is wrong. hint: how to fix it.
    """

    def __init__(self, setting: str, what: str, hint: str) -> None:
        super().__init__(setting, what, hint)
        self.setting = setting
        self.what = what
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.setting}: {self.what}; {self.hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """Raises SettingError for a value that is not allowed."""

    count: int = 8
    """How many phones."""
    base_port: int = 26000
    """Port of the first phone; each further one has the next."""
    seed: int = 0
    """Seed of all randomness: contents of the phones, pop-ups, latencies, faults. Phone i has seed + i."""
    popup_probability: float = 0.1
    """Chance of a pop-up after an action."""
    generation: int = 0
    """Of the apps' look (generations.py)."""
    generations: tuple[int, ...] = ()
    """Generations of the look, assigned in turn; all have `generation` if empty."""
    keyboard_service: bool = False
    """Whether the phones have ADBKeyBoard, which types any Unicode."""
    latency_median_ms: float = 60.0
    """Of an action. The latency is log-normal (latency.py)."""
    latency_sigma: float = 0.8
    """σ of the latency's logarithm; larger is heavier-tailed."""
    latency_max_ms: float = 5_000.0
    """No action takes longer."""
    profiles: tuple[PhoneProfile, ...] = ()
    """Kinds of phones, assigned in turn; all plain if empty."""

    def __post_init__(self) -> None:
        allowed = {
            "count": (self.count >= 1, "1 or more"),
            "base_port": (LOWEST_PORT <= self.base_port <= HIGHEST_PORT, f"{LOWEST_PORT} to {HIGHEST_PORT}"),
            "popup_probability": (0 <= self.popup_probability <= 1, "0 to 1"),
            "generation": (0 <= self.generation <= NEWEST, f"0 to {NEWEST}"),
            "generations": (all(0 <= each <= NEWEST for each in self.generations), f"each 0 to {NEWEST}"),
            "latency_median_ms": (0 <= self.latency_median_ms < math.inf, "0 or more"),
            "latency_sigma": (0 <= self.latency_sigma <= WIDEST_SIGMA, f"0 to {WIDEST_SIGMA:g}"),
            "latency_max_ms": (0 <= self.latency_max_ms < math.inf, "0 or more"),
            "profiles": (set(self.profiles) <= set(PROFILE_NAMES), ", ".join(PROFILE_NAMES)),
        }
        for setting, (holds, values) in allowed.items():
            if not holds:
                given = getattr(self, setting)
                shown = ", ".join(map(str, given)) if isinstance(given, tuple) else given
                raise SettingError(setting, f"{shown} is not allowed", f"allowed: {values}")
        if self.base_port + self.count - 1 > HIGHEST_PORT:
            raise SettingError(
                "base_port",
                f"{self.count} phones from port {self.base_port} on need ports above {HIGHEST_PORT}",
                f"choose at most {HIGHEST_PORT + 1 - self.count}, or fewer phones",
            )
