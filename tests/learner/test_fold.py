from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from distrl.algorithms.protocol import Algorithm, Optimised
from distrl.config import Config
from distrl.errors import ConfigError, StoreError
from distrl.learner.fold import fold, is_usable, why_skipped
from distrl.learner.ranks import keep_features
from distrl.learner.state import LearnerState, refuse_unsaved
from distrl.policy.sampling import FULL
from distrl.runs.settings import learning_fingerprint
from distrl.telemetry.metrics import METRICS
from distrl.types import PROMPTED, Action, ActionKind, HeldBack, LoggedTrajectory, ObjectRef, Outcome, Step, Unmet
from torch import nn

from learner.world import CODEC, Screens, config, folded, logged, trajectory, update_of, windows

UPDATES = 7


def fresh(settings: Config) -> LearnerState:
    return LearnerState(settings)


def test_same_log_gives_the_same_bits_whatever_the_callers_random_state(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, UPDATES)
    torch.manual_seed(1)
    one = folded(fresh(settings), records, screens, settings).digests()
    torch.manual_seed(2)
    torch.rand(7)
    np.random.seed(5)
    assert folded(fresh(settings), records, screens, settings).digests() == one


def test_why_trajectories_are_skipped_is_counted(settings: Config, screens: Screens) -> None:
    state = fresh(settings)
    good, *others = [trajectory(screens, seed, outcome=Outcome.SUCCESS) for seed in range(4)]
    broken = replace(others[0], steps=(replace(others[0].steps[0], action_ids=(1_000_000,)), *others[0].steps[1:]))
    played = [
        good,
        broken,
        replace(others[1], outcome=Outcome.UNKNOWN),
        replace(others[2], outcome=Outcome.UNKNOWN),
        replace(trajectory(screens, 9, outcome=Outcome.SUCCESS), steps=()),
    ]
    state.features.load(state.screens(logged([good])), screens, state.context.compute)
    assert why_skipped(state, logged(played)) == {
        "steps that the tokenizer of policy.base_model does not accept": 1,
        "outcome unknown": 2,
        "no steps": 1,
    }


class Buffered(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)


class Own:
    """An algorithm of somebody else."""

    def __init__(self, module: nn.Module, optimiser: type[torch.optim.Optimizer]) -> None:
        self._module, self._made = module, optimiser(module.parameters())

    def modules(self) -> dict[str, nn.Module]:
        return {"own": self._module}

    def optimisers(self) -> dict[str, Optimised]:
        return {"own": Optimised(self._made, dict(self._module.named_parameters()))}


@pytest.mark.parametrize(
    ("module", "optimiser", "what"),
    [
        (Buffered(), torch.optim.AdamW, r"module own has the buffer norm\.num_batches_tracked"),
        (nn.Linear(2, 2), torch.optim.RMSprop, "optimiser own is no plain AdamW"),
        (nn.Linear(2, 2), partial(torch.optim.AdamW, amsgrad=True), "optimiser own is no plain AdamW"),
    ],
)
def test_what_no_checkpoint_would_hold_is_refused(
    module: nn.Module, optimiser: type[torch.optim.Optimizer], what: str
) -> None:
    """A restart went on with other numbers, without a word."""
    with pytest.raises(ConfigError, match=what):
        refuse_unsaved(cast("Algorithm", Own(module, optimiser)))
    refuse_unsaved(cast("Algorithm", Own(nn.Linear(2, 2), torch.optim.AdamW)))


def test_fold_leaves_the_callers_torch_as_it_was(settings: Config, screens: Screens) -> None:
    torch.manual_seed(4)
    expected = torch.rand(1)
    torch.manual_seed(4)
    folded(fresh(settings), windows(screens, settings, 5), screens, settings)
    assert torch.rand(1) == expected
    assert not torch.are_deterministic_algorithms_enabled()


def test_why_an_attempt_failed_is_for_people_alone(settings: Config, screens: Screens) -> None:
    """Records of version 4 hold the answer to the task; neither weights nor buffers may depend on it."""
    records = windows(screens, settings, UPDATES)
    why = {"unmet": (Unmet("clock.alarms", "equals", "[]", "[1]"),), "final_state": '{"screen": "x"}', "reason": "no"}
    said = [[replace(it, trajectory=replace(it.trajectory, **why)) for it in window] for window in records]
    assert said != records
    one, two = folded(fresh(settings), records, screens, settings), folded(fresh(settings), said, screens, settings)
    assert one.digests() == two.digests()


def judged(records: list[list[LoggedTrajectory]], valid: bool | None) -> list[list[LoggedTrajectory]]:
    """The same log, had a judge said so of every action."""

    def said(item: LoggedTrajectory) -> LoggedTrajectory:
        steps = tuple(replace(step, valid=valid) for step in item.trajectory.steps)
        return replace(item, trajectory=replace(item.trajectory, steps=steps))

    return [[said(item) for item in window] for window in records]


def test_what_is_not_judged_is_learned_from_like_what_is_valid_and_what_is_invalid_is_not(
    settings: Config, screens: Screens
) -> None:
    records = windows(screens, settings, UPDATES)
    nobody, valid, invalid = (
        folded(fresh(settings), judged(records, each), screens, settings).digests() for each in (None, True, False)
    )
    assert nobody == valid == folded(fresh(settings), records, screens, settings).digests()
    assert [name for name in nobody if nobody[name] != invalid[name]] == [
        "adapter",
        "critic",
        "policy_optimiser",
        "critic_optimiser",
        "buffer",
    ]


@pytest.mark.parametrize("valid", [None, True, False])
def test_an_action_that_is_judged_invalid_costs_what_one_that_is_none_does(
    settings: Config, screens: Screens, valid: bool | None
) -> None:
    from distrl.algorithms.aride.credit import is_invalid, penalties_of

    (first, *rest) = trajectory(screens, 1, steps=3).steps
    steps = [replace(first, valid=valid), *rest]
    expected = [-settings.algorithm.invalid_reward if valid is False else 0.0, 0.0, 0.0]
    assert penalties_of(steps, settings.algorithm) == pytest.approx(expected)
    refused = replace(first, held_back=HeldBack.REFUSED, valid=valid)
    assert is_invalid(refused), "what the phone cannot do, the policy should not have written"
    none = replace(first, action=Action(ActionKind.INVALID), valid=valid)
    assert is_invalid(none), "a judge cannot make an action of what is none"
    assert penalties_of([none, *rest], settings.algorithm) == pytest.approx(
        [-settings.algorithm.invalid_reward, 0.0, 0.0]
    )


def test_seed_of_the_run_matters(base_directory: Path, settings: Config, screens: Screens) -> None:
    other = config(base_directory, "learner.seed=1")
    records = windows(screens, settings, 4)
    one, two = (folded(fresh(each), records, screens, each).digests() for each in (settings, other))
    assert one["adapter"] != two["adapter"]


@pytest.mark.parametrize("in_memory", [512, 0])
def test_features_that_are_kept_change_no_bit_and_their_screens_are_not_fetched(
    base_directory: Path, settings: Config, screens: Screens, tmp_path: Path, in_memory: int
) -> None:
    kept = config(base_directory, f"learner.features_kept={tmp_path}", f"learner.features_mb={in_memory}")
    records = windows(screens, settings, UPDATES)
    log = [item for window in records for item in window]
    whole = folded(fresh(settings), records, screens, settings)
    halted = fresh(kept)
    keep_features(halted, kept)
    folded(halted, records[:4], screens, kept)
    again = LearnerState.restore(kept, halted.meta(), halted.tensors(), log)
    keep_features(again, kept)
    held = {ref.sha256 for ref in again.screens(again.held())}
    fetched = list[str]()

    def images(ref: ObjectRef) -> bytes:
        fetched.append(ref.sha256)
        return screens(ref)

    assert folded(again, records, images, kept).digests() == whole.digests()
    assert held
    assert held.isdisjoint(fetched)
    assert fetched, "screens of later records are new"


@pytest.mark.parametrize("stop_at", [0, 2, 3, 4, 6])
def test_restored_from_a_checkpoint_it_goes_on_as_if_it_had_not_stopped(
    settings: Config, screens: Screens, stop_at: int
) -> None:
    records = windows(screens, settings, UPDATES)
    whole = folded(fresh(settings), records, screens, settings)
    halted = folded(fresh(settings), records[:stop_at], screens, settings)
    log = [item for window in records for item in window]
    again = LearnerState.restore(settings, halted.meta(), halted.tensors(), log)
    assert again.digests() == halted.digests()
    assert folded(again, records, screens, settings).digests() == whole.digests()
    assert again.policy.adapter() == whole.policy.adapter()


def test_cached_features_never_change_a_result(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, UPDATES)
    whole, forgetful = fresh(settings), fresh(settings)
    folded(whole, records, screens, settings)
    for window in records:
        forgetful.features.keep(set())
        folded(forgetful, [*records[: forgetful.u], window], screens, settings)
    assert whole.digests() == forgetful.digests()


@pytest.mark.parametrize("truncation", ["terminal", "bootstrap"])
@pytest.mark.parametrize("most_mb", [0, 1])
def test_where_features_lie_changes_no_bit_and_no_fingerprint(
    base_directory: Path, screens: Screens, tmp_path: Path, truncation: str, most_mb: int
) -> None:
    sets = [f"algorithm.truncation={truncation}"]
    held = config(base_directory, *sets)
    elsewhere = [f"learner.features_mb={most_mb}", f"learner.features_directory={tmp_path}"]
    spilled = config(base_directory, *sets, *elsewhere)
    records, updates = windows(screens, held, UPDATES), []
    states = fresh(held), fresh(spilled)
    for state, settings in zip(states, (held, spilled), strict=True):
        store = state.features.store
        for window in records:
            folded(state, [*records[: state.u], window], screens, settings)
            state.forget_screens()
            updates.append((store.held_bytes > 0, store.in_file > 0))
    assert states[0].digests() == states[1].digests()
    assert {*updates[:UPDATES]} == {(True, False)}
    assert {*updates[UPDATES:]} == ({(False, True)} if most_mb == 0 else {(True, False)})
    assert learning_fingerprint(held) == learning_fingerprint(spilled)


def test_what_has_left_the_buffer_leaves_the_file(base_directory: Path, screens: Screens) -> None:
    settings = config(base_directory, "learner.features_mb=0", "algorithm.replay.capacity=8")
    state = fresh(settings)
    for window in (records := windows(screens, settings, UPDATES)):
        folded(state, [*records[: state.u], window], screens, settings)
        state.forget_screens()
        held = {ref.sha256 for ref in state.screens(state.held())}
        assert state.features.store.names() == held
    ever = {ref.sha256 for window in records for ref in state.screens(window)}
    assert len(held) < len(ever)


def test_half_precision_is_another_run_that_keeps_half_as_much(base_directory: Path, screens: Screens) -> None:
    whole, half = config(base_directory), config(base_directory, "policy.image_precision=float16")
    assert learning_fingerprint(whole) != learning_fingerprint(half)
    records = windows(screens, whole, UPDATES)
    states = [folded(fresh(each), records, screens, each) for each in (whole, half)]
    assert states[0].digests()["adapter"] != states[1].digests()["adapter"]
    assert states[0].features.store.held_bytes == 2 * states[1].features.store.held_bytes > 0
    assert folded(fresh(half), records, screens, half).digests() == states[1].digests()


def test_each_phase_trains_its_own_part(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, 6)
    state = fresh(settings)
    before = state.digests()
    changed = []
    for u in range(6):
        folded(state, records[: u + 1], screens, settings)
        after = state.digests()
        changed.append((after["adapter"] != before["adapter"], after["critic"] != before["critic"]))
        before = after
    memory = state.algorithm.memory
    assert [memory.phase(u).name for u in range(3, 6)] == ["critics", "a-ride", "a-ride"]
    assert changed == [(True, False)] * 3 + [(False, True)] + [(True, True)] * 2


def test_metrics_are_all_declared(settings: Config, screens: Screens) -> None:
    records, state = windows(screens, settings, 5), fresh(settings)
    for window in records:
        metrics = fold(state, window, update_of(state.u, window, state.watermarks, settings), screens, settings)
        assert metrics.keys() <= METRICS.keys()


def test_cloning_lowers_its_loss(base_directory: Path, screens: Screens) -> None:
    settings = config(base_directory, "warmup.minibatches=20", "warmup.lr=0.01")
    state, records = fresh(settings), windows(screens, settings, 3)
    found = [
        fold(state, window, update_of(state.u, window, state.watermarks, settings), screens, settings)["clone_loss"]
        for window in records
    ]
    assert found[-1] < found[0] - 0.5


def test_critic_learns_to_tell_outcomes_apart(base_directory: Path, screens: Screens) -> None:
    settings = config(
        base_directory,
        "warmup.updates=0",
        "algorithm.critic_warmup_updates=100",
        "algorithm.critic_lr=0.01",
        "algorithm.minibatches=8",
        "algorithm.replay.capacity=400",
    )
    state = fresh(settings)
    good, bad = ([screens.plain(shade) for shade in range(begin, begin + 3)] for begin in (10, 240))
    for u in range(12):
        window = []
        for index in range(6):
            won = index % 2 == 0
            made = trajectory(screens, 50 * u + index, steps=3, outcome=Outcome.SUCCESS if won else Outcome.FAILURE)
            steps = tuple(
                replace(step, screenshot=shot) for step, shot in zip(made.steps, good if won else bad, strict=True)
            )
            window.append(replace(made, steps=steps))
        placed = logged(window, 6 * u)
        metrics = fold(state, placed, update_of(u, placed, state.watermarks, settings), screens, settings)
    assert metrics["value_accuracy"] > 0.9
    assert metrics["trajectory_value_loss"] < 0.4


def test_ratio_is_one_at_the_weights_that_acted(base_directory: Path, screens: Screens) -> None:
    from distrl.algorithms.aride.scoring import score

    settings = config(base_directory, "warmup.updates=0")
    state = fresh(settings)
    made = trajectory(screens, 1, steps=5)
    pngs = [screens(step.screenshot) for step in made.steps]
    decisions = state.policy.decide(pngs, [step.prompt_ids for step in made.steps], FULL, range(5))
    steps = tuple(
        replace(step, action_ids=d.action_ids, action=d.action, action_text=d.action_text, logprob=d.logprob)
        for step, d in zip(made.steps, decisions, strict=True)
    )
    item = logged([replace(made, steps=steps)])[0]
    state.features.load((step.screenshot for step in steps), screens)
    memory = state.algorithm.memory
    memory.admit(item)
    rows = memory.outdated(0)
    memory.take(0, rows, score(state.context, state.algorithm.critics, rows, settings.algorithm))
    assert memory.buffer.columns["ratio"][:5] == pytest.approx(np.ones(5), abs=1e-4)


def prompted(step: Step) -> Step:
    """As an agent without weights of ours stamps it."""
    return replace(step, version=PROMPTED, prompt_ids=(), action_ids=(), logprob=0.0)


def test_interrupted_unknown_and_broken_trajectories_are_skipped_and_counted(
    settings: Config, screens: Screens
) -> None:
    state = folded(fresh(settings), windows(screens, settings, 3), screens, settings)
    fine = trajectory(screens, 5, steps=2)
    torn = screens.keep(b"no image at all")
    spoilt = [
        replace(fine, outcome=Outcome.INTERRUPTED),
        replace(fine, outcome=Outcome.UNKNOWN),
        replace(fine, steps=()),
        replace(fine, steps=(replace(fine.steps[0], action_ids=(9_999, 1)),)),
        replace(fine, steps=(replace(fine.steps[0], action_ids=()),)),
        replace(fine, steps=(replace(fine.steps[0], prompt_ids=(-1,)),)),
        replace(fine, steps=(replace(fine.steps[0], prompt_ids=(5,) * 10_000),)),
        replace(fine, steps=(replace(fine.steps[0], logprob=math.nan),)),
        replace(fine, steps=tuple(map(prompted, fine.steps))),
        replace(fine, steps=(replace(fine.steps[0], screenshot=replace(torn, key="../../etc/passwd")),)),
        replace(fine, steps=(replace(fine.steps[0], screenshot=replace(torn, sha256="")),)),
        replace(fine, steps=fine.steps * (settings.algorithm.replay.capacity // 2 + 1)),
        replace(fine, steps=(replace(fine.steps[0], screenshot=torn),)),
    ]
    assert not any(is_usable(each, CODEC) for each in spoilt[:-2])
    window = logged([replace(each, task=replace(fine.task, task_id=f"t{i}")) for i, each in enumerate([*spoilt, fine])])
    before = len(state.algorithm.memory.buffer)
    metrics = fold(state, window, update_of(3, window, state.watermarks, settings), screens, settings)
    assert metrics["skipped"] == len(spoilt)
    assert len(state.algorithm.memory.buffer) == before + 2
    assert all(math.isfinite(value) for value in metrics.values())


def test_an_update_of_nothing_usable_changes_no_weights(base_directory: Path, screens: Screens) -> None:
    settings = config(base_directory, "warmup.updates=0", "algorithm.critic_warmup_updates=0")
    state = fresh(settings)
    before = state.digests()
    window = logged([trajectory(screens, 1, outcome=Outcome.INTERRUPTED)])
    fold(state, window, update_of(0, window, (), settings), screens, settings)
    assert state.digests() == before
    assert state.u == 1


def test_missing_screenshot_leaves_the_state_as_it_was(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, 5)
    state = folded(fresh(settings), records[:4], screens, settings)
    whole = folded(fresh(settings), records, screens, settings)
    before = state.digests()
    state.features.keep(set())
    lost = records[4][-1].trajectory.steps[-1].screenshot
    screens.gone = {lost.sha256}
    with pytest.raises(StoreError, match="not in the store") as refusal:
        folded(state, records, screens, settings)
    assert refusal.value.where == lost.key
    assert (state.digests(), state.u) == (before, 4)
    screens.gone = set()
    assert folded(state, records, screens, settings).digests() == whole.digests()


def test_demonstrations_seed_the_buffer_only_where_asked(base_directory: Path, screens: Screens) -> None:
    for asked in (0, 1):
        settings = config(base_directory, f"algorithm.replay.demonstrations={asked}")
        state = folded(fresh(settings), windows(screens, settings, 3), screens, settings)
        assert (len(state.algorithm.memory.buffer) > 0) == bool(asked)
        assert len(state.warmup.memory.buffer) > 0


@pytest.mark.parametrize("fault", ["number", "beyond", "before", "order", "twice"])
def test_a_window_that_is_not_the_journals_is_refused(settings: Config, screens: Screens, fault: str) -> None:
    records = windows(screens, settings, 5)
    state = folded(fresh(settings), records[:4], screens, settings)
    window = records[4]
    update = update_of(4, window, state.watermarks, settings)
    if fault == "number":
        update = replace(update, u=5)
    if fault == "beyond":
        window = [*window, *logged([trajectory(screens, 77)], 99)]
    if fault == "before":
        window = [*records[3][-1:], *window]
    if fault == "order":
        window = window[::-1]
    if fault == "twice":
        window = [window[0], replace(window[1], trajectory=window[0].trajectory)]
    with pytest.raises(ValueError, match="update"):
        fold(state, window, update, screens, settings)
