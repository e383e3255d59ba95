"""The whole system in virtual time, against cases that are worked by hand."""

from __future__ import annotations

import itertools
import json
import math
import random

import pytest
from distrl.experiment.cells import as_json
from distrl.experiment.compute import compute
from distrl.experiment.costs import PAPER, Draws, Latency
from distrl.experiment.measure import figures
from distrl.experiment.plan import Arm, Cell
from distrl.experiment.simulate import Simulated

from .world import DoneAtOnce, EndsBy, ResetsBy, costs, played

ROUND = "learner.trajectories_per_update=4"


def ends(run: Simulated) -> list[tuple[int, float]]:
    """(phone, when its episode ended), in the order of the log."""
    return [(each.phone, each.ended) for each in run.played]


def test_a_synchronous_round_waits_for_the_slowest_phone_and_for_the_update() -> None:
    """Phones of 1, 2, 3 and 10 s and an update of 5 s: a round takes 15 s, and each phone plays once in it."""
    draws = ResetsBy(costs(update=Latency(5.0)), 0, (1.0, 2.0, 3.0, 10.0))
    run = played(draws, 4, 40.0, ROUND, "feeder.max_lag=0")
    rounds = [[(phone, begin + took) for phone, took in enumerate(draws.seconds)] for begin in (0, 15, 30)]
    assert ends(run) == [each for one in rounds for each in one]
    assert [(each.u, each.at) for each in run.folded] == [(run.folded[0].u + n, 10 + 15 * n) for n in range(3)]
    assert {lag for each in run.folded for lag in each.lags} == {0}


def test_asynchronous_phones_wait_for_nobody_and_bring_what_their_latencies_allow() -> None:
    """The same phones in 40 s: ⌊40/1⌋ + ⌊40/2⌋ + ⌊40/3⌋ + ⌊40/10⌋ episodes, while the learner works."""
    draws = ResetsBy(costs(update=Latency(5.0)), 0, (1.0, 2.0, 3.0, 10.0))
    run = played(draws, 4, 40.0, ROUND, "feeder.max_lag=1000")
    assert len(run.played) == 40 + 20 + 13 + 4
    found = figures(run, draws.model, synchronous=False, trajectories_per_round=4)
    assert found["own_time_share"] == pytest.approx(1.0)
    assert found["share_of_bound"] == pytest.approx(1.0)
    assert found["bound_per_hour"] == pytest.approx(77 / 40 * 3600)
    # The learner can fold 4 trajectories in 5 s and the phones bring 7.7 or so: it falls behind, and lags say so.
    assert [each.at for each in run.folded] == pytest.approx([each.at for each in run.folded[:1]] + [
        run.folded[0].at + 5.0 * n for n in range(1, len(run.folded))
    ])  # fmt: skip
    assert found["max_lag"] >= 1


def test_the_synchronous_bound_is_the_barriers_own() -> None:
    """Round of 10 s, update of 5 s, records of 0.5 s and a reload of 2 s: 4 trajectories in 10 + 5 + 0.5 + 2 + 0.5."""
    draws = ResetsBy(costs(update=Latency(5.0), record_s=0.5, reload_s=2.0), 0, (1.0, 2.0, 3.0, 10.0))
    run = played(draws, 4, 400.0, ROUND, "feeder.max_lag=0")
    found = figures(run, draws.model, synchronous=True, trajectories_per_round=4)
    assert found["bound_per_hour"] == pytest.approx(4 / 18 * 3600)
    assert found["share_of_bound"] == pytest.approx(1.0)
    begins = [each.at for each in run.folded]
    assert [b - a for a, b in itertools.pairwise(begins)] == pytest.approx([18.0] * (len(begins) - 1))


def test_a_synchronous_rate_leaves_out_the_round_that_the_end_cuts() -> None:
    """Rounds of 10 s and an update of 5 s: of the third round, three of four have come when the run ends at 38 s."""
    draws = ResetsBy(costs(update=Latency(5.0)), 0, (1.0, 2.0, 3.0, 10.0))
    run = played(draws, 4, 38.0, ROUND, "feeder.max_lag=0")
    assert len(run.played) == 4 + 4 + 3
    found = figures(run, draws.model, synchronous=True, trajectories_per_round=4)
    assert found["per_hour"] == pytest.approx(4 / 15 * 3600)
    assert found["per_hour"] == pytest.approx(found["bound_per_hour"] * found["share_of_bound"])


def test_a_synchronous_run_that_ends_in_its_first_round_has_no_rate() -> None:
    draws = ResetsBy(costs(update=Latency(5.0)), 0, (1.0, 2.0, 3.0, 10.0))
    found = figures(
        played(draws, 4, 8.0, ROUND, "feeder.max_lag=0"), draws.model, synchronous=True, trajectories_per_round=4
    )
    assert found["trajectories"] == 3
    assert all(math.isnan(found[name]) for name in ("per_hour", "bound_per_hour", "share_of_bound"))


def test_a_bound_on_the_lag_makes_fast_phones_wait_and_is_never_passed() -> None:
    """One phone of 100 s among three of 1 s: with lag 1 no more than 2 updates may pass while it plays."""
    draws = EndsBy(costs(update=Latency(0.5)), 0, (1.0, 1.0, 1.0, 100.0))
    bounded = played(draws, 4, 1000.0, ROUND, "feeder.max_lag=1")
    free = played(draws, 4, 1000.0, ROUND, "feeder.max_lag=1000")
    assert max(lag for each in bounded.folded for lag in each.lags) <= 1
    assert max(lag for each in free.folded for lag in each.lags) > 10
    assert len(bounded.played) < len(free.played) / 10


def test_a_version_is_used_once_it_is_fetched_and_by_whole_batches() -> None:
    decider = DoneAtOnce()
    draws = ResetsBy(costs(update=Latency(4.0), decision_s=1.0, reload_s=7.0), 0, (5.0, 5.0, 5.0, 5.0))
    run = played(draws, 4, 60.0, ROUND, "feeder.max_lag=1000", decider=decider)
    assert {rows for _, rows in decider.batches} == {4}
    # Version 0 is loaded at 7 s, when resets begin; each batch takes 1 s after a reset of 5 s.
    assert [each.at for each in run.folded][:2] == [13.0, 19.0]
    # Version 1 comes at 13 + 4 and is loaded at 24 s: the batch of 24 to 25 s may have it, the one of 18 s not.
    first = next(each for each in run.played if each.trajectory.steps[0].version == 1)
    assert first.ended == 25.0


def test_equal_seeds_give_equal_bytes_and_others_do_not() -> None:
    arm = Arm("tiny", 4, PAPER, ("feeder.suite=home", "feeder.max_lag=4"))
    found = [as_json(compute(Cell(arm, seed, 1500.0))) for seed in (3, 3, 4)]
    assert found[0] == found[1] != found[2]
    assert json.loads(found[0])["figures"]["trajectories"] > 10


def test_a_slower_machine_changes_nothing() -> None:
    """A policy that really takes a random time brings the same trajectories at the same times."""
    draws = Draws(costs(reset=Latency(3.0, 0.8), look=Latency(1.0, 0.8), update=Latency(5.0)), 1)
    slow = DoneAtOnce(really_s=lambda: random.random() * 0.01)
    quick, delayed = (played(draws, 4, 100.0, ROUND, decider=each) for each in (DoneAtOnce(), slow))
    assert [(each.trajectory, each.ended) for each in quick.played] == [
        (each.trajectory, each.ended) for each in delayed.played
    ]
    assert quick.folded == delayed.folded


def test_the_luck_of_a_phone_depends_on_no_other_and_on_no_way_of_collecting() -> None:
    """The same phones, asynchronous and synchronous: their first episodes take equally long."""
    draws = Draws(costs(reset=Latency(3.0, 2.2), update=Latency(5.0)), 1)
    runs = [played(draws, phones, 200.0, ROUND, f"feeder.max_lag={lag}") for phones, lag in ((4, 0), (4, 9), (6, 9))]
    firsts = [{each.phone: each.own_s for each in reversed(run.played)} for run in runs]
    for phone in range(4):
        assert firsts[0][phone] == firsts[1][phone] == firsts[2][phone]


def test_an_error_of_an_episode_ends_the_run() -> None:
    def broken() -> float:
        raise ZeroDivisionError("planted")

    with pytest.raises(ZeroDivisionError, match="planted"):
        played(Draws(costs(), 0), 4, 10.0, decider=DoneAtOnce(really_s=broken))


def test_the_papers_fleet_brings_the_papers_trajectories() -> None:
    """800 in 6,000 s of 32 emulators (6.3), within 10 %: that number was put in, by the length of an episode."""
    arm = Arm("paper", 32, PAPER.with_tail(0.8), ("feeder.suite=general", "feeder.max_lag=32"))
    assert compute(Cell(arm, 0, 3000.0))["figures"]["per_hour"] == pytest.approx(480, rel=0.1)
