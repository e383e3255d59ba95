"""What is said of a fleet that stands still, or that a limit holds back."""

from __future__ import annotations

import math

import pytest
from distrl.config import Config
from distrl.feeder.admission import Admission, Progress
from distrl.telemetry.feed import RunProgress
from distrl.telemetry.fleet import findings_of
from distrl.telemetry.stalls import STALLED_S, phones_answering, stalled
from distrl.types import DeviceHealth, Heartbeat


def worker(name: str, partitions: tuple[int, ...] | None, *states: str) -> Heartbeat:
    devices = tuple(DeviceHealth(f"{name}-{n}", state) for n, state in enumerate(states))
    return Heartbeat(name, "worker", 0, 0, None, {}, devices, partitions)


def test_a_stall_is_reported_with_who_holds_the_tasks() -> None:
    beats = [worker("busy", (0, 1, 2), "leased", "idle"), worker("held", (3, 5), "held", "quarantined")]
    loads = {0: 1, 2: 2, 3: 7, 5: 1, 6: 4}
    assert stalled(STALLED_S - 1, loads, beats) is None
    assert stalled(1e9, {}, beats) is None
    words = stalled(61.2, loads, beats)
    assert words == (
        "no trajectory has come for 61 s, or interrupted ones alone, though 15 tasks are outstanding: "
        "held holds 8 in partitions 3, 5, 0 of its 2 phones answer; "
        "busy holds 3 in partitions 0-2, 2 of its 2 phones answer; "
        "nobody reports to hold 4 in partitions 6"
    )
    assert "no worker reports" in (stalled(61, {0: 1}, []) or "")


def test_each_limit_of_a_fleet_is_reported_with_the_setting_that_helps() -> None:
    beats = [worker(f"w-{n}", (n,), *["idle"] * 10) for n in range(4)] + [worker("spare", (), "idle")]
    feeder = Heartbeat("feeder", "feeder", 0, 0, None, {"outstanding_limit": 24.0})
    config = Config.model_validate({"feeder": {"outstanding": 24}})
    found = {each.what: each for each in findings_of(config, RunProgress({0: 24}, 3.0, [*beats, feeder]), 4)}
    assert [found[name].ok for name in ("progress", "feeder.outstanding", "kafka.task_partitions")] == [
        True,
        False,
        False,
    ]
    assert "24 tasks outstanding of at most 24 (is set), 41 phones answer" in found["feeder.outstanding"].detail
    assert found["feeder.outstanding"].hint == "raise feeder.outstanding to 82 or more, or leave it unset"
    assert "4 partitions for 5 workers; spare own none" in found["kafka.task_partitions"].detail
    assert "set kafka.task_partitions to 10 or more" in found["kafka.task_partitions"].hint
    enough = {each.what: each for each in findings_of(config, RunProgress({0: 24}, 3.0, [*beats, feeder]), 10)}
    assert enough["kafka.task_partitions"].hint.startswith("there are enough for every worker: look again in a minute")
    well = findings_of(Config(), RunProgress({}, 0.0, beats[:4]), 16)
    assert all(each.ok for each in well)


def test_a_name_that_a_terminal_would_act_on_is_reported_escaped() -> None:
    beats = [worker("w\x1b]0;mine\x07", (), "idle")]
    found = {each.what: each for each in findings_of(Config(), RunProgress({0: 1}, STALLED_S, beats), 4)}
    assert r"w\x1b]0;mine\x07 holds 0 and owns no partition" in found["progress"].detail
    assert r"; w\x1b]0;mine\x07 own none" in found["kafka.task_partitions"].detail
    assert all(each.detail.isprintable() for each in found.values())


@pytest.mark.parametrize("most", [math.nan, math.inf, -math.inf, -1.0, 1e300])
def test_a_limit_that_is_no_number_of_tasks_is_not_used(most: float) -> None:
    feeder = Heartbeat("feeder", "feeder", 0, 0, None, {"outstanding_limit": most})
    config = Config.model_validate({"feeder": {"outstanding": 24}})
    found = {each.what: each.detail for each in findings_of(config, RunProgress({}, 0.0, [feeder]), 4)}
    assert "0 tasks outstanding of at most 24 " in found["feeder.outstanding"]


@pytest.mark.parametrize(("phones", "ok"), [(80, True), (81, False)])
def test_a_lag_that_leaves_phones_without_a_task_is_reported_with_the_one_that_does_not(phones: int, ok: bool) -> None:
    beats = [worker("w", (0,), *["idle"] * phones)]
    learner = {"trajectories_per_update": 16, "publish_every": 1}
    config = Config.model_validate({"learner": learner, "feeder": {"max_lag": 4}})
    (found,) = [e for e in findings_of(config, RunProgress({}, 0.0, beats), 16) if e.what == "feeder.max_lag"]
    assert found.ok == ok
    assert f"at most 80 tasks are fed and not learned (5 versions of 16 trajectories), {phones}" in found.detail
    if not ok:
        assert "raise feeder.max_lag to 10 or more" in found.hint
        wide = Config.model_validate({"learner": learner, "feeder": {"max_lag": 10}})
        assert all(each.ok for each in findings_of(wide, RunProgress({}, 0.0, beats), 16))
        admission = Admission(16, 1, 4, 1_000)
        assert admission.allowed(Progress(0, 0, None, 0, 0, 0)) == 80, "which is what the feeder allows"


def test_a_spare_worker_without_a_phone_is_no_fault_and_its_phones_do_not_count() -> None:
    beats = [
        worker("w", (0,), "idle", "leased"),
        worker("none", (), "held", "quarantined"),
        worker("old", None, "idle"),
    ]
    assert phones_answering(beats) == 3
    assert all(each.ok for each in findings_of(Config(), RunProgress({}, 0.0, beats), 1))
