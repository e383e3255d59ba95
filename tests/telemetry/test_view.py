from dataclasses import replace

import factories
import pytest
from distrl.broker.packed_state import pack, unpack
from distrl.cli.stack import without_success
from distrl.errors import WireError
from distrl.evaluate.curves import SuccessRate, evaluated, score
from distrl.evaluate.policies import by_policy
from distrl.telemetry import view as telemetry_view
from distrl.telemetry.screen import render
from distrl.telemetry.view import FORGOTTEN_MS, HEARTBEAT_STALE_MS, VERSIONS_KEPT, RunView, Score
from distrl.types import PROMPTED, Evaluation, Heartbeat, Outcome, Record, Split, Trajectory, Version
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console


def trajectory(task_id: str, outcome: Outcome, version: int = 0, finished_at: int = 1_000) -> Trajectory:
    step = factories.step(version=version, at=500)
    return factories.trajectory(task_id, (step,), outcome=outcome, finished_at=finished_at)


def version(number: int) -> Version:
    return factories.version(number, published_at=900)


def test_counts_a_task_once_and_measures_lag_against_the_newest_version() -> None:
    view = RunView()
    view.feed(version(5))
    view.feed(version(3))
    for outcome in (Outcome.SUCCESS, Outcome.FAILURE):
        view.feed(trajectory("t1", outcome, version=3))
    view.feed(trajectory("t2", Outcome.INTERRUPTED, version=5))
    status = view.status(2_000)
    assert status.trajectories == 2
    assert status.success == 1.0, "the first record of a task wins, an interruption is no failure"
    assert status.newest is not None
    assert (status.newest.version, status.lag_max, status.lag_mean) == (5, 2, 1.0)


@pytest.mark.parametrize("backwards", [False, True])
def test_lag_is_against_the_newest_version_when_the_trajectory_ended_however_topics_are_read(backwards: bool) -> None:
    """One trajectory under each of five versions, a moment after it was published: none was ever behind, but one."""
    versions = [replace(version(n), published_at=100 * n) for n in range(5)]
    acted = [trajectory(f"t{n}", Outcome.SUCCESS, version=n, finished_at=100 * n + 9) for n in range(5)]
    acted.append(trajectory("slow", Outcome.SUCCESS, version=1, finished_at=350))
    view = RunView()
    for record in (*acted, *versions) if backwards else (*versions, *acted):
        view.feed(record)
    status = view.status(2_000)
    assert (status.lag_max, status.lag_mean) == (2, 2 / 6)


def test_the_first_evaluation_of_a_task_counts_whatever_its_outcome_here_and_in_reports() -> None:
    view = RunView()
    unknown = [("b", Outcome.INTERRUPTED), ("c", Outcome.UNKNOWN)]
    played = [("a", Outcome.SUCCESS), ("a", Outcome.FAILURE), *unknown, ("b", Outcome.FAILURE), ("c", Outcome.FAILURE)]
    log = [Evaluation(2, "c" * 64, f"2-{task_id}", trajectory(task_id, outcome)) for task_id, outcome in played]
    for each in log:
        view.feed(each)
    (scores,) = by_policy(log).values()
    assert list(scores.values()) == [score(evaluated(log, Split.TRAIN)[2])] == [SuccessRate(1, 1, others=2)]
    assert view.status(2_000).evaluations == ((2, "home", Split.TRAIN, 1, 1.0),)


def test_an_interruption_is_no_sign_that_a_run_goes_on() -> None:
    view = RunView()
    view.feed(trajectory("t1", Outcome.UNKNOWN), 1_000)
    view.feed(trajectory("t2", Outcome.INTERRUPTED), 2_000)
    assert view.last_trajectory == 1_000


def test_a_task_that_nobody_did_in_many_attempts_is_named_from_training_and_evaluations() -> None:
    """Twenty attempts at a row of a list: half of them fed, half evaluated, and one of each delivered twice."""
    view = RunView()
    for number in range(10):
        failed = trajectory(f"mine-{number}", Outcome.FAILURE)
        failed = replace(failed, task=replace(failed.task, suite="mine", instruction="do \x1b[2J it"))
        evaluation = Evaluation(number, "c" * 64, "e", failed)
        for record in (failed, failed, evaluation):
            assert view.status(2_000).unsolved == ()
            view.feed(record)
        view.feed(evaluation)
    found = view.status(2_000).unsolved
    assert [(each.instruction, each.attempts) for each in found] == [("do \x1b[2J it", 20)]
    assert without_success(found) == [
        'no success in 20 attempts: "do \\x1b[2J it" (check it: distrl tasks oracle -s feeder.tasks=FILE)'
    ]
    others = [replace(found[0], suite="home", family="shop", instruction=""), *found * 5]
    assert without_success(others)[0] == (
        "no success in 20 attempts: home shop, any task of it (check it: distrl tasks oracle --suite home)"
    )
    named = without_success([replace(others[0], suite="ho\x1b[2Jme", family="sh\x07op")])
    assert named == [
        "no success in 20 attempts: ho\\x1b[2Jme sh\\x07op, any task of it "
        "(check it: distrl tasks oracle --suite ho\\x1b[2Jme)"
    ]
    assert without_success(others)[-1] == "1 more without a success; the run's report lists all"


def test_agents_without_weights_are_scored_apart() -> None:
    view = RunView()
    for sha256, outcome in (("a" * 64, Outcome.SUCCESS), ("b" * 64, Outcome.FAILURE)):
        view.feed(Evaluation(PROMPTED, sha256, "e", trajectory("a", outcome)))
    assert view.status(2_000).evaluations == (
        (PROMPTED, "home", Split.TRAIN, 1, 1.0),
        (PROMPTED, "home", Split.TRAIN, 1, 0.0),
    )


def test_evaluations_of_many_versions_take_little_room() -> None:
    """A list's task ids end alike, so that each pair of version and task was kept by its name."""
    view = RunView()
    sizes = []
    for version in range(1_000, 3_000):
        for task in ("list-9f3a-0000", "list-77b1-0000"):
            view.feed(Evaluation(version, "c" * 64, "e", trajectory(task, Outcome.INTERRUPTED)))
        if version in (1_009, 2_999):
            sizes.append(len(pack(view)))
    few, many = sizes
    assert many < 2 * few


def test_suites_are_scored_apart() -> None:
    view = RunView()
    for suite, outcome in (("home", Outcome.SUCCESS), ("webshop", Outcome.FAILURE)):
        played = trajectory(suite, outcome)
        played = replace(played, task=replace(played.task, suite=suite))
        view.feed(Evaluation(2, "c" * 64, suite, played))
    assert view.status(2_000).evaluations == (
        (2, "home", Split.TRAIN, 1, 1.0),
        (2, "webshop", Split.TRAIN, 1, 0.0),
    )


def test_rate_forgets_what_is_older_than_a_minute() -> None:
    view = RunView()
    view.feed(trajectory("old", Outcome.SUCCESS), 1)
    view.feed(trajectory("new", Outcome.SUCCESS), 70_000)
    assert view.status(80_000).per_minute == 1


@pytest.mark.parametrize("its_clock_ms", [0, 10**12])
def test_no_clock_but_the_brokers_says_how_many_episodes_a_minute_has(its_clock_ms: int) -> None:
    view = RunView()
    view.feed(trajectory("a", Outcome.SUCCESS, finished_at=its_clock_ms), 100_000)
    assert view.status(100_500).per_minute == 1
    assert view.status(200_000).per_minute == 0


def test_a_process_whose_work_is_seen_is_not_silent_though_its_heartbeats_wait() -> None:
    view, late = RunView(), 1_000 + HEARTBEAT_STALE_MS + 1
    for name, role in (("learner", "learner"), ("w", "worker"), ("gone", "worker")):
        view.feed(Heartbeat(name, role, 1_000, None, None), 1_000)
    view.feed(version(3), late - 1_000)
    view.feed(replace(trajectory("t0", Outcome.SUCCESS), worker="w"), late - 1_000)
    assert view.status(late).silent == {"gone"}
    assert view.status(late + HEARTBEAT_STALE_MS).silent == {"learner", "w", "gone"}


def test_what_is_shown_is_what_came_last_though_the_clock_of_its_machine_was_set_back() -> None:
    view = RunView()
    for appended_at, at, episodes in ((1_000, 10**6, 1.0), (2_000, 0, 2.0)):
        view.feed(Heartbeat("w", "worker", at, None, None, {"episodes": episodes}), appended_at)
    assert [beat.metrics["episodes"] for beat in view.status(2_000).processes] == [2.0]


@pytest.mark.parametrize("looks_on_ms", [0, -60_000])
@pytest.mark.parametrize("its_clock_ms", [-60_000, 0, 60_000])
def test_no_clock_but_the_brokers_says_who_is_silent(its_clock_ms: int, looks_on_ms: int) -> None:
    """Neither that of a process, nor one behind the broker's of who looks on."""
    view, now = RunView(), 10**6
    for name, at in (("alive", now - 1_000), ("gone", now - HEARTBEAT_STALE_MS - 1_000)):
        view.feed(Heartbeat(name, "worker", at + its_clock_ms, None, None), at)
    view.feed(Heartbeat("feeder", "feeder", now, None, None), now)
    assert view.status(now + looks_on_ms).silent == {"gone"}


def test_a_silent_process_is_shown_and_its_name_is_not_markup() -> None:
    view = RunView()
    beat = Heartbeat("worker-[red]0", "worker", 1_000, 4, "d" * 64, {"episodes": 3.0})
    view.feed(beat, 1_000)
    view.feed(replace(beat, metrics={"episodes": 1.0}), 500)
    status = view.status(1_000 + HEARTBEAT_STALE_MS + 1)
    assert status.silent == {"worker-[red]0"}
    console = Console(width=160, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(render(status, "run"))
    assert "worker-[red]0 (silent)" in captured.get()
    assert " 3 " in captured.get(), "an older heartbeat does not replace a newer one"


outcomes = st.sampled_from(Outcome)
names = st.sampled_from(["a", "b", "c"])
moments = st.integers(0, 200_000)
task_ids = st.builds("t-{:02}".format, st.integers(0, 60))
trajectories = st.builds(
    lambda task_id, outcome, oldest, at, worker: replace(trajectory(task_id, outcome, oldest, at), worker=worker),
    task_ids,
    outcomes,
    st.integers(0, 9),
    moments,
    names,
)
versions = st.builds(lambda number, at: replace(version(number), published_at=at), st.integers(0, 40), moments)
roles = st.sampled_from(["learner", "worker"])
heartbeats = st.builds(lambda name, role, at: Heartbeat(name, role, at, None, None), names, roles, moments)
evaluations = st.builds(lambda number, of: Evaluation(number, "c" * 64, "e", of), st.integers(-2, 3), trajectories)
records: st.SearchStrategy[Record] = trajectories | versions | heartbeats | evaluations


@given(st.lists(records, max_size=80), st.data())
def test_who_goes_on_from_a_snapshot_shows_what_who_reads_all_shows(log: list[Record], data: st.DataObject) -> None:
    """Where less is kept than comes, too."""
    cut, now = data.draw(st.integers(0, len(log))), data.draw(moments)
    with pytest.MonkeyPatch.context() as patch:
        for name, few in (("RATE_KEPT", 9), ("VERSIONS_KEPT", 3), ("SUCCESS_WINDOW", 5), ("FORGOTTEN_MS", 50_000)):
            patch.setattr(telemetry_view, name, few)
        whole, resumed = RunView(), RunView()
        for at, record in enumerate(log):
            if at == cut:
                resumed.forget(now)
                resumed = unpack(pack(resumed), RunView, len(log))
            whole.feed(record, at)
            resumed.feed(record, at)
        for later in (now, now + 30_000, now + 10**6):
            assert resumed.status(later) == whole.status(later)
        assert resumed.last_trajectory == whole.last_trajectory


def test_the_lag_of_the_last_trajectories_is_exact_however_many_versions_there_were() -> None:
    versions = [replace(version(n), published_at=100 * n) for n in range(VERSIONS_KEPT + 50)]
    view = RunView()
    for record in reversed(versions):
        view.feed(record)
    last = versions[-1]
    view.feed(trajectory("t0", Outcome.SUCCESS, last.version - 7, last.published_at - 100))
    assert view.status(last.published_at).lag_max == 6
    assert len(view._published) == VERSIONS_KEPT


def test_a_process_that_was_not_heard_of_for_a_day_is_shown_no_more() -> None:
    view = RunView()
    view.feed(Heartbeat("w", "worker", 1_000, None, None), 1_000)
    assert [beat.process for beat in view.status(1_000 + FORGOTTEN_MS).processes] == ["w"]
    assert view.status(1_001 + FORGOTTEN_MS).processes == ()
    view.forget(1_001 + FORGOTTEN_MS)
    assert view.processes == 0


def test_a_saved_view_that_cannot_be_shown_is_refused() -> None:
    view = RunView()
    view._scores[0, "", "home", Split.TRAIN] = Score()
    with pytest.raises(WireError, match="a score of nothing"):
        unpack(pack(view), RunView, 9)
    view = RunView()
    view._beats["w"] = 1_000, Heartbeat("w", "worker", 1_000, None, None)
    with pytest.raises(WireError, match="never heard of"):
        unpack(pack(view), RunView, 9)
