"""Arms over a log in memory: the same fold as the learner's, shared where nothing differs, compared by the bit."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distrl.broker.duplicates import IdSet
from distrl.config import Config
from distrl.config.effects import When
from distrl.errors import ConfigError
from distrl.learner.fold import fold
from distrl.learner.recover import snapshot
from distrl.learner.state import LearnerState
from distrl.offline.ablation.arms import BASELINE, Arm, changed, plan
from distrl.offline.ablation.figure import draw
from distrl.offline.ablation.fold import HELD_OUT, SEEN, Folded, Identity, Shared, fold_arm
from distrl.offline.ablation.log import Branch, RunLog, UpdateRange, cut, update_range
from distrl.offline.ablation.report import Ablation, to_json, to_markdown
from distrl.policy.autoui.policy import AutoUIPolicy
from distrl.policy.protocol import trajectory_steps
from distrl.runs.settings import learning_fingerprint
from distrl.store.checkpoints import save_checkpoint
from distrl.store.directory import DirectoryStore
from distrl.types import ObjectRef, Outcome
from learner.world import Screens, config, logged, save_tiny_base, trajectory, update_of, windows

UPDATES = 6
OTHER = {
    "algorithm.gamma": "0.5",
    "algorithm.retrace_lambda": "0.2",
    "algorithm.retrace": "false",
    "algorithm.truncation": "bootstrap",
    "algorithm.entropy": "0.3",
    "algorithm.invalid_penalty": "0.7",
    "algorithm.repetition_penalty": "0.4",
    "algorithm.invalid_reward": "0.4",
    "algorithm.advantage": "paper",
    "algorithm.ratio_clip": "0.3",
    "algorithm.normalise_advantage": "false",
    "algorithm.negative_advantage_weight": "1",
    "algorithm.replay.w1": "0",
    "algorithm.replay.w2": "3",
    "algorithm.replay.w3": "2",
    "algorithm.replay.alpha": "1",
    "algorithm.replay.refresh_share": "1",
    "algorithm.replay.refresh_within": "1",
    "algorithm.replay.value_filter": "0",
    "algorithm.minibatches": "3",
    "algorithm.lr": "0.02",
    "algorithm.critic_lr": "0.02",
    "algorithm.critic_warmup_updates": "2",
    "algorithm.batch_size": "4",
    "algorithm.grad_norm": "0.1",
}
LATER = sorted(path for path, effect in Config().effects().items() if effect.when is When.LATER)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Config:
    directory = tmp_path_factory.mktemp("base")
    save_tiny_base(directory)
    return config(directory)


@pytest.fixture(scope="module")
def screens() -> Screens:
    return Screens()


@pytest.fixture(scope="module")
def log(settings: Config, screens: Screens) -> RunLog:
    return log_of(settings, screens)


def log_of(settings: Config, screens: Screens, held_out: int = 12) -> RunLog:
    rows, marks = [], ()
    for u, window in enumerate(windows(screens, settings, UPDATES)):
        update = update_of(u, window, marks, settings)
        rows.append((update, window))
        marks = update.watermarks
    after = logged([trajectory(screens, 5000 + seed) for seed in range(held_out)], 900)
    return RunLog(UpdateRange(0, UPDATES, 1), None, rows, after, {}, settings.warmup.demonstrations)


def folded_by_the_learner(settings: Config, log: RunLog, screens: Screens) -> LearnerState:
    state = LearnerState(settings)
    for update, window in log.windows:
        fold(state, window, update, screens, settings)
        state.forget_screens()
    return state


def arm(settings: Config, *sets: tuple[str, str]) -> Arm:
    return Arm(",".join(f"{path}={value}" for path, value in sets) or BASELINE, sets, changed(settings, sets))


def folded(arms: Sequence[Arm], log: RunLog, screens: Screens, shared: Shared | None = None) -> list[Folded]:
    keeps = shared or Shared()
    return [fold_arm(each, log, keeps, screens, lambda state: None)[0] for each in arms]


def test_the_baseline_is_the_learners_own_fold(settings: Config, screens: Screens, log: RunLog) -> None:
    state = folded_by_the_learner(settings, log, screens)
    (baseline,) = folded([arm(settings)], log, screens)
    assert baseline.digests == state.digests()
    assert baseline.adapter == state.policy.adapter()
    assert [u for u, _ in baseline.updates] == list(range(UPDATES))
    assert baseline.trajectories == sum(len(window) for _, window in log.windows)


@pytest.mark.parametrize("path", LATER)
def test_an_arm_that_goes_on_from_the_baselines_warm_up_ends_as_from_nothing(
    settings: Config, screens: Screens, log: RunLog, path: str
) -> None:
    other = arm(settings, (path, OTHER[path]))
    assert learning_fingerprint(other.config) != learning_fingerprint(settings)
    shared = Shared()
    _, goes_on = folded([arm(settings), other], log, screens, shared)
    assert shared.after_warmup is not None
    assert shared.after_warmup.u == settings.warmup.updates
    assert goes_on.digests == folded_by_the_learner(other.config, log, screens).digests()
    assert [u for u, _ in goes_on.updates] == list(range(UPDATES))


@pytest.mark.parametrize(
    "sets",
    [("learner.seed", "5"), ("warmup.lr", "0.1"), ("policy.lora_rank", "3"), ("algorithm.replay.capacity", "40")],
)
def test_an_arm_that_differs_in_the_warm_up_is_folded_from_nothing(
    settings: Config, screens: Screens, log: RunLog, sets: tuple[str, str]
) -> None:
    other = arm(settings, sets)
    baseline, found = folded([arm(settings), other], log, screens)
    assert found.digests == folded_by_the_learner(other.config, log, screens).digests()
    assert found.digests["adapter"] != baseline.digests["adapter"]


def test_a_range_that_begins_later_goes_on_from_the_runs_state(settings: Config, screens: Screens, log: RunLog) -> None:
    state = LearnerState(settings)
    for update, window in log.windows[:4]:
        fold(state, window, update, screens, settings)
    later = replace(log, range=UpdateRange(4, UPDATES), begin=Branch.of(state), windows=log.windows[4:])
    baseline, other = folded([arm(settings), arm(settings, ("algorithm.replay.w1", "0"))], later, screens)
    assert baseline.digests == folded_by_the_learner(settings, log, screens).digests()
    assert other.digests != baseline.digests
    assert [u for u, _ in other.updates] == [4, 5]


def test_an_arm_that_cuts_the_log_anew_folds_the_same_records(settings: Config, screens: Screens, log: RunLog) -> None:
    again = cut(log, settings)
    assert [(u.watermarks, list(window)) for u, window in again] == [(u.watermarks, w) for u, w in log.windows]
    halved = arm(settings, ("learner.trajectories_per_update", "2"))
    rows = cut(log, halved.config)
    per_update = settings.learner.trajectories_per_update // 2
    assert len(rows) == 3 + (UPDATES - 3) * 2
    assert all(len(window) == per_update for _, window in rows[3:])
    (found,) = folded([halved], log, screens)
    assert (len(found.updates), found.trajectories) == (len(rows), len(log.records))


@pytest.mark.parametrize("wanted", [0, 1, 4])
def test_an_arm_of_fewer_demonstrations_learns_from_no_others(
    settings: Config, screens: Screens, log: RunLog, wanted: int
) -> None:
    fewer = arm(settings, ("warmup.demonstrations", str(wanted)))
    rows = cut(log, fewer.config)
    assert [sum(each.trajectory.is_expert for each in window) for _, window in rows] == [wanted] + [0] * (UPDATES - 1)
    (found,) = folded([fewer], log, screens)
    assert found.trajectories == len(log.records) - settings.warmup.demonstrations + wanted


def test_demonstrations_that_came_late_are_left_to_the_arms_of_the_runs_own_number(
    settings: Config, screens: Screens, log: RunLog
) -> None:
    late = logged([trajectory(screens, 7000 + seed, expert=True) for seed in range(3)], 6)
    update, window = log.windows[4]
    longer = replace(log, windows=[*log.windows[:4], (update, [*late, *window]), *log.windows[5:]])

    def taken(*sets: tuple[str, str]) -> int:
        rows = cut(longer, changed(settings, sets))
        return sum(each.trajectory.is_expert for _, window in rows for each in window)

    assert taken(("learner.trajectories_per_update", "2")) == 9
    assert taken(("warmup.demonstrations", "7")) == 7


def test_an_arm_that_cuts_the_log_anew_waits_for_no_demonstration_that_was_left_out(
    settings: Config, log: RunLog
) -> None:
    update, window = log.windows[0]
    less = replace(log, windows=[(update, window[1:]), *log.windows[1:]])
    assert [list(window) for _, window in cut(less, settings)] == [list(window) for _, window in less.windows]


def test_a_record_longer_than_the_buffer_is_left_out_and_ends_no_arm(
    settings: Config, screens: Screens, log: RunLog
) -> None:
    """As the learner does: of the baseline, too."""
    short = arm(settings, ("algorithm.replay.capacity", "2"))
    lengths = [len(each.trajectory.steps) for each in log.records]
    assert max(lengths) > 2
    (found,) = folded([short], log, screens)
    assert sum(metrics["skipped"] for _, metrics in found.updates) == sum(length > 2 for length in lengths)


def test_no_policy_of_an_arm_stays_in_memory_for_the_next_one(settings: Config, screens: Screens, log: RunLog) -> None:
    shared, policies = Shared(), list[weakref.ref[object]]()
    for each in (arm(settings), arm(settings, ("algorithm.replay.w1", "0")), arm(settings, ("learner.seed", "5"))):
        assert [policy() for policy in policies] == [None] * len(policies)
        _, state = fold_arm(each, log, shared, screens, lambda state: None)
        policies.append(weakref.ref(state.policy))
        del state
    assert [policy() for policy in policies] == [None] * 3


def test_no_weights_of_a_frugal_policy_stay_in_memory_until_all_garbage_is_collected(
    settings: Config, screens: Screens, log: RunLog
) -> None:
    """A GPU's memory is full long before Python looks for cycles."""
    frugal = settings.model_copy(
        update={"learner": settings.learner.model_copy(update={"gradient_checkpointing": True})}
    )
    gc.collect()
    gc.disable()
    try:
        _, state = fold_arm(arm(frugal), log, Shared(), screens, lambda state: None)
        assert isinstance(state.policy, AutoUIPolicy)
        weights = [weakref.ref(each) for each in state.policy.model.parameters()]
        del state
        assert not [each for each in weights if each() is not None]
    finally:
        gc.enable()


def test_a_screenshot_is_looked_at_once_for_all_arms_and_by_the_arm_that_reads_it(
    settings: Config, screens: Screens, log: RunLog
) -> None:
    asked = list[str]()

    def images(ref: ObjectRef) -> bytes:
        asked.append(ref.sha256)
        return screens(ref)

    shared = Shared()
    shorter = replace(log, windows=log.windows[:4], held_out=[])
    fold_arm(arm(settings), shorter, shared, images, lambda state: None)
    first = len(asked)
    fold_arm(arm(settings, ("learner.seed", "5")), log, shared, images, lambda state: None)
    assert len(asked) == len(set(asked))
    assert len(asked) > first, "the second arm reads screenshots that the first one did not"


def test_a_cut_that_never_begins_is_refused(settings: Config, log: RunLog) -> None:
    with pytest.raises(ConfigError, match="do not fill one update"):
        cut(log, changed(settings, (("warmup.demonstrations", "500"),)))


def test_at_the_policy_that_acted_the_estimates_are_the_mean_return(settings: Config, screens: Screens) -> None:
    """With steps that carry the last policy's own probabilities, nothing is left to correct."""
    base = log_of(settings, screens)
    _, state = fold_arm(arm(settings), base, Shared(), screens, lambda state: None)

    acted = []
    for each in base.held_out:
        steps = each.trajectory.steps
        state.features.load((step.screenshot for step in steps), screens)
        logprobs = state.context.score(trajectory_steps(each.trajectory)).logprob.detach().tolist()
        moved = tuple(replace(step, logprob=found) for step, found in zip(steps, logprobs, strict=True))
        acted.append(replace(each, trajectory=replace(each.trajectory, steps=moved)))
    (baseline,) = folded([arm(settings)], replace(base, held_out=acted), screens)
    expected = np.mean([each.trajectory.outcome is Outcome.SUCCESS for each in acted])
    found = baseline.estimates[HELD_OUT]
    assert set(found) == {"mean_return", "mean_weight", "ordinary", "weighted", "per_decision", "doubly_robust"}
    for name, estimate in found.items():
        assert estimate.value == pytest.approx(1.0 if name == "mean_weight" else expected, abs=1e-4)
        assert estimate.episodes == pytest.approx(len(acted), rel=1e-4)
    assert set(baseline.estimates[SEEN]) == set(found) - {"doubly_robust"}


def test_demonstrations_and_what_nobody_judged_are_in_no_estimate(
    settings: Config, screens: Screens, log: RunLog
) -> None:
    spoilt = [replace(each, trajectory=replace(each.trajectory, outcome=Outcome.UNKNOWN)) for each in log.held_out[:4]]
    (baseline,) = folded([arm(settings)], replace(log, held_out=[*spoilt, *log.held_out[4:]]), screens)
    assert baseline.estimates[HELD_OUT]["weighted"].of == len(log.held_out) - 4
    acted = sum(not each.trajectory.is_expert for each in log.records)
    assert baseline.estimates[SEEN]["weighted"].of == acted


@pytest.mark.parametrize("kind", ["cloning", "filtered_bc"])
def test_an_arm_of_another_algorithm_folds_the_same_log_and_stands_in_the_report(
    settings: Config, screens: Screens, log: RunLog, kind: str
) -> None:
    other = plan(settings, arms=[f"algorithm.type={kind},algorithm.minibatches=2,algorithm.batch_size=8"])
    baseline, found = folded(other.arms, log, screens)
    assert (found.trajectories, len(found.updates)) == (baseline.trajectories, len(baseline.updates))
    assert found.digests["adapter"] != baseline.digests["adapter"]
    assert "critic" not in found.digests
    assert set(found.estimates[HELD_OUT]) == set(baseline.estimates[HELD_OUT]) - {"doubly_robust"}
    ablation = Ablation(settings, other, log, arms=[baseline, found])
    assert json.loads(to_json(ablation))["arms"][1]["name"].startswith(f"algorithm.type={kind}")
    assert f"algorithm.type={kind}" in to_markdown(ablation)
    assert draw(ablation.arms)[:4] == b"\x89PNG"


def test_an_arm_that_diverges_is_said_to_and_harms_no_other(settings: Config, screens: Screens, log: RunLog) -> None:
    wild = arm(settings, ("algorithm.lr", "1e30"), ("algorithm.grad_norm", "1e30"))
    baseline, found, after = folded([arm(settings), wild, arm(settings, ("algorithm.replay.w1", "0"))], log, screens)
    assert found.diverged
    assert found.estimates == {}
    assert not baseline.diverged
    assert not after.diverged
    ablation = Ablation(settings, plan(settings), log, arms=[baseline, found, after])
    assert "NaN" not in to_json(ablation)
    assert "diverged" in to_markdown(ablation)


def test_a_report_of_a_part_of_the_arms_says_that_it_is_not_complete(
    settings: Config, screens: Screens, log: RunLog
) -> None:
    wanted = plan(settings, sets=["algorithm.replay.w1=0"])
    done = folded(wanted.arms, log, screens)
    for count, complete in ((1, False), (2, True)):
        report = json.loads(to_json(Ablation(settings, wanted, log, arms=done[:count])))
        assert report["complete"] is complete
        assert [each["name"] for each in report["arms"]] == [each.name for each in wanted.arms[:count]]


def test_the_comparison_with_the_run_sees_one_bit(
    settings: Config, screens: Screens, log: RunLog, tmp_path: Path
) -> None:
    store = DirectoryStore(tmp_path)
    state = folded_by_the_learner(settings, log, screens)
    identity = Identity()
    assert identity.holds is None
    identity.compare(state, {})
    identity.compare_checkpoint(state, store, settings.run)
    assert identity.holds is None
    save_checkpoint(store, settings.run, *snapshot(state, IdSet()))
    identity.compare_checkpoint(state, store, settings.run)
    identity.compare(state, {UPDATES - 1: hashlib.sha256(state.policy.adapter()).hexdigest()})
    assert identity.holds
    parameter = next(iter(state.algorithm.critics.parameters())).data.view(-1)
    parameter[0] = math.nextafter(float(parameter[0]), 9.0) + 1e-6
    identity.compare_checkpoint(state, store, settings.run)
    assert identity.checkpoint is False
    assert not identity.holds


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((0, None, 0), UpdateRange(0, 9)),
        ((2, 5, 0), UpdateRange(2, 5)),
        ((0, None, 3), UpdateRange(0, 6, 3)),
        ((4, 8, 1), UpdateRange(4, 7, 1)),
    ],
)
def test_update_ranges(asked: tuple[int, int | None, int], expected: UpdateRange) -> None:
    assert update_range(9, *asked) == expected


@pytest.mark.parametrize(
    ("length", "asked", "said"),
    [
        (0, (0, None, 0), "distrl learner"),
        (9, (0, 10, 0), "--to 9"),
        (9, (9, None, 0), "--from 0 to 8"),
        (9, (5, 4, 0), "--from 0 to 3"),
        (9, (5, None, 4), "0 to 3"),
    ],
)
def test_spans_that_the_journal_does_not_hold_are_refused_with_those_it_does(
    length: int, asked: tuple[int, int | None, int], said: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        update_range(length, *asked)
    assert said in refusal.value.hint
