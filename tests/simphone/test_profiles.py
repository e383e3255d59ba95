"""Fleets of phones of several kinds."""

from __future__ import annotations

import asyncio
import time
from itertools import islice

import pytest
from simphone.faults import Fault, Faults
from simphone.fleet import PROFILE_NAMES, FleetSettings, PhoneProfile, SettingError
from simphone.handset import Handset
from simphone.machine import PhoneMachine, Tap
from simphone.profiles import PROFILES, Luck


def life(settings: FleetSettings, number: int, actions: int = 400) -> list[tuple[float, dict[Fault, float]]]:
    luck = Luck(settings, number)
    return [(luck.latency.draw(), dict(luck.faults())) for _ in range(actions)]


def test_every_kind_that_can_be_configured_is_described() -> None:
    assert set(PROFILES) == set(PROFILE_NAMES)


def test_a_seed_gives_the_same_fleet_again_and_another_seed_another() -> None:
    def fleet(seed: int) -> list[list[tuple[float, dict[Fault, float]]]]:
        settings = FleetSettings(seed=seed, profiles=PROFILE_NAMES)
        return [life(settings, number) for number in range(2 * len(PROFILE_NAMES))]

    assert fleet(3) == fleet(3)
    assert fleet(3) != fleet(4)


def test_kinds_are_assigned_in_turn() -> None:
    settings = FleetSettings(profiles=("steady", "torn"))
    assert {seconds for seconds, _ in life(settings, 0)} == {0.06}
    assert {fault for _, faults in life(settings, 1) for fault in faults} == {Fault.TRUNCATED}
    assert life(settings, 2)[0][0] == 0.06


def test_a_phone_without_a_kind_is_as_the_settings_say_and_meets_nothing() -> None:
    assert life(FleetSettings(), 5) == life(FleetSettings(profiles=("plain",)), 5)
    assert not any(faults for _, faults in life(FleetSettings(), 5))


def test_episodes_of_one_length_differ_a_hundredfold_on_heavy_phones() -> None:
    seconds = iter(seconds for number in range(40) for seconds, _ in life(FleetSettings(profiles=("heavy",)), number))
    episodes = [sum(islice(seconds, 5)) for _ in range(3000)]
    assert max(episodes) / min(episodes) > 100


@pytest.mark.parametrize("kind", [kind for kind in PROFILE_NAMES if PROFILES[kind].mishaps])
def test_mishaps_come_about_as_often_as_they_should(kind: PhoneProfile) -> None:
    chance = sum(mishap.chance for mishap in PROFILES[kind].mishaps)
    met = sum(bool(faults) for number in range(25) for _, faults in life(FleetSettings(profiles=(kind,)), number))
    assert 0.7 * chance < met / 10_000 < 1.3 * chance


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SettingError, match="profiles: haunted is not allowed; allowed: plain, "):
        FleetSettings(profiles=("haunted",))  # type: ignore[arg-type]


def test_a_mishap_begins_with_the_action_that_meets_it() -> None:
    async def play() -> None:
        faults = Faults(time.monotonic)
        phone = Handset(PhoneMachine(0, 0.0), faults, lambda: 0.0, {}, mishaps=lambda: {Fault.SLOW: 60.0})
        assert not faults.active(Fault.SLOW)
        await phone.act(Tap(1, 1))
        assert faults.active(Fault.SLOW)

    asyncio.run(play())
