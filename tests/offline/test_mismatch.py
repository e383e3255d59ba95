"""`distrl policy check`: equal weights give equal log-probabilities, and whatever is planted is found where it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import factories
import pytest
from distrl.compute import on_threads
from distrl.config import PolicySettings
from distrl.errors import PolicyError, StoreError
from distrl.offline.mismatch import EXACT, Checked, Report, report
from distrl.policy.protocol import Policy
from distrl.policy.registry import policy_of
from distrl.policy.sampling import FULL, Sampling
from distrl.store.objects import CorruptObjectError, MissingObjectError
from distrl.types import Action, ActionKind, LoggedTrajectory, LogPosition, ObjectRef, Step
from learner.world import Screens, save_tiny_base
from policy.vlm.models import qwen25

BACK = Action(ActionKind.BACK)
SAMPLING = Sampling(0.8, top_p=0.95, top_k=40)
Make = Callable[..., Policy]


@pytest.fixture(params=["autoui", "qwen25"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Opens the policy of one directory, as a process does."""
    if request.param == "autoui":
        save_tiny_base(tmp_path)
        return lambda **more: policy_of(PolicySettings(base_model=tmp_path, lora_rank=2, **more))
    qwen25(tmp_path)
    told = {"dialect": "json", "system_prompt": "Act.", "action_tokens": 24, "lora_rank": 2}
    return lambda **more: policy_of(PolicySettings(base_model=tmp_path, **told, **more))


@pytest.fixture
def screens() -> Screens:
    return Screens()


def acted(policy: Policy, screens: Screens, sampling: Sampling = SAMPLING) -> list[LoggedTrajectory]:
    """Four episodes of three steps, as a worker records them."""
    refs = [screens.make(number) for number in range(12)]
    pngs = [screens(ref) for ref in refs]
    firsts = [max(number - number % 3, number - policy.earlier_screens) for number in range(12)]
    earlier = [pngs[first:number] for number, first in enumerate(firsts)]
    prompts = [
        policy.tokenizer.encode_prompt("red shoes", [BACK] * len(before), policy.image_features(png).size)
        for png, before in zip(pngs, earlier, strict=True)
    ]
    drawn = policy.decide(pngs, prompts, sampling, range(12), earlier)
    steps = [
        factories.step(screenshot=ref, prompt_ids=prompt, action_ids=each.action_ids, logprob=each.logprob)
        for ref, prompt, each in zip(refs, prompts, drawn, strict=True)
    ]
    return [logged(number, steps[3 * number : 3 * number + 3]) for number in range(4)]


def logged(number: int, steps: list[Step]) -> LoggedTrajectory:
    played = factories.trajectory(factories.task(f"t{number}", max_steps=8), steps)
    return LoggedTrajectory(LogPosition("distrl.r.trajectories", 0, number), played)


def checked(
    learner: Policy, worker: Policy, records: list[LoggedTrajectory], screens: Screens, sampling: Sampling = SAMPLING
) -> Report:
    weights = learner.adapter()
    check = Checked(learner, worker, sampling, screens, lambda sha256: weights, rows=5)
    return report(check.play(records), check)


def test_what_a_worker_recorded_is_repeated_bit_for_bit_however_many_threads_torch_has_here(
    make: Make, screens: Screens
) -> None:
    """A sum over two threads is rounded in other places."""
    with on_threads(1):
        records = acted(make(), screens)
    learner, found = make(), list[list[tuple[float, float]]]()
    weights = learner.adapter()
    for here in (1, 2):
        with on_threads(here):
            check = Checked(learner, make(), SAMPLING, screens, lambda sha256: weights, rows=5)
            found.append([(each.learner, each.worker) for each in check.play(records)])
    assert found[0] == found[1]


def test_what_acts_and_what_learns_agree(make: Make, screens: Screens) -> None:
    policy = make()
    found = checked(make(), make(), acted(policy, screens), screens)
    assert found.by_name.keys() == {"learner and worker", "learner and record"}
    for each in found.by_name.values():
        assert (each.steps, each.beyond) == (12, 0)
        assert each.largest < EXACT
    found.refuse_above(EXACT)


def test_earlier_screenshots_are_read_by_what_acts_and_what_learns(screens: Screens, tmp_path: Path) -> None:
    qwen25(tmp_path)
    settings = PolicySettings(base_model=tmp_path, dialect="json", action_tokens=24, history_screens=2)
    policy = policy_of(settings)
    records = acted(policy, screens)
    found = checked(policy, policy_of(settings), records, screens)
    for each in found.by_name.values():
        assert (each.steps, each.beyond) == (12, 0)
    screens.gone.add(records[0].trajectory.steps[0].screenshot.sha256)

    def image(ref: ObjectRef) -> bytes:
        if ref.sha256 in screens.gone:
            raise MissingObjectError(ref.key, "is not in the store", "put it there")
        return screens(ref)

    check = Checked(policy, policy, SAMPLING, image, lambda sha256: policy.adapter(), rows=5)
    assert report(check.play(records), check).skipped == 3, "every step that reads what is gone"


def test_a_wrong_record_is_found_at_its_place(make: Make, screens: Screens) -> None:
    policy = make()
    records = acted(policy, screens)
    steps = list(records[2].trajectory.steps)
    steps[1] = replace(steps[1], logprob=steps[1].logprob - 0.02)
    records[2] = replace(records[2], trajectory=replace(records[2].trajectory, steps=tuple(steps)))
    found = checked(policy, policy, records, screens)
    record = found.by_name["learner and record"]
    assert (record.worst, record.beyond) == ("distrl.r.trajectories/0/2#1", 1)
    assert record.largest == pytest.approx(0.02, abs=EXACT)
    assert record.quantiles[0.5] < EXACT
    assert found.by_name["learner and worker"].beyond == 0
    with pytest.raises(PolicyError, match=r"trajectories/0/2#1: learner and record differ by 0\.02 nats") as refused:
        found.refuse_above(0.01)
    assert "--threshold" in refused.value.hint
    found.refuse_above(0.03)


def test_a_worker_that_computes_otherwise_is_found(make: Make, screens: Screens) -> None:
    """Its frozen weights are in half precision, and the learner's are not."""
    records = acted(make(), screens)
    found = checked(make(), make(precision="bfloat16"), records, screens)
    assert found.by_name["learner and worker"].beyond > 6
    assert found.by_name["learner and record"].beyond == 0


def test_a_worker_that_draws_otherwise_is_found(make: Make, screens: Screens) -> None:
    """It has drawn from all tokens: some of its actions a worker with the settings of the run could not have drawn."""
    policy = make()
    found = checked(policy, policy, acted(policy, screens, FULL), screens, Sampling(top_k=2))
    record = found.by_name["learner and record"]
    assert record.largest == float("inf")
    assert found.by_name["learner and worker"].beyond == 0
    written = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert written["differences"]["learner and record"]["largest"] is None
    with pytest.raises(PolicyError, match="differ by inf nats"):
        found.refuse_above(100.0)


def test_what_cannot_be_played_is_counted(make: Make, screens: Screens) -> None:
    policy = make()
    records = acted(policy, screens)
    missing = records[0].trajectory.steps[0].screenshot
    first = records[1].trajectory.steps[0]
    unknown = replace(records[1].trajectory, steps=(replace(first, action_ids=(10**6,)),))
    other = replace(records[2].trajectory, steps=(replace(first, version_sha256="gone"),))
    expert = replace(records[3].trajectory, is_expert=True)
    changed = [replace(records[place], trajectory=each) for place, each in ((1, unknown), (2, other), (3, expert))]
    weights = policy.adapter()

    def adapter(sha256: str) -> bytes:
        if sha256 == "gone":
            raise MissingObjectError(sha256, "was pruned", "name another")
        return weights

    def image(ref: ObjectRef) -> bytes:
        if ref == missing:
            raise MissingObjectError(ref.key, "is not in the store", "put it there")
        return screens(ref)

    check = Checked(policy, policy, SAMPLING, image, adapter, rows=4)
    found = report(check.play([records[0], *changed]), check)
    assert found.skipped == 3
    assert found.by_name["learner and worker"].steps == 2 + 3
    assert found.by_name["learner and record"].steps == 2, "the script's probabilities are no policy's"


def test_one_bad_step_does_not_end_the_others(make: Make, screens: Screens) -> None:
    policy = make()
    records = acted(policy, screens)
    bad = [records[number].trajectory.steps[0] for number in range(4)]
    endless = replace(bad[0], action_ids=(bad[0].action_ids[0],))
    corrupt, malformed = bad[2].screenshot, ObjectRef("../secret", "0", -1)
    no_image = screens.keep(b"no image")
    changes = {0: endless, 1: replace(bad[1], screenshot=no_image), 3: replace(bad[3], screenshot=malformed)}
    for number, step in changes.items():
        whole = records[number].trajectory
        records[number] = replace(records[number], trajectory=replace(whole, steps=(step, *whole.steps[1:])))
    weights = policy.adapter()

    def image(ref: ObjectRef) -> bytes:
        if ref == corrupt:
            raise CorruptObjectError(ref.key, "has other bytes", "put it there again")
        return screens(ref)

    check = Checked(policy, policy, SAMPLING, image, lambda sha256: weights, rows=5)
    found = report(check.play(records), check)
    assert found.skipped == 4
    assert found.by_name["learner and worker"].steps == 8
    found.refuse_above(EXACT)


def test_a_store_that_is_away_is_no_step_that_is_gone(make: Make, screens: Screens) -> None:
    policy = make()
    records = acted(policy, screens)
    screens.gone.add(records[0].trajectory.steps[0].screenshot.sha256)  # as a StoreError without more
    with pytest.raises(StoreError):
        checked(policy, policy, records, screens)


def test_nothing_to_play_is_an_error(make: Make, screens: Screens) -> None:
    policy = make()
    with pytest.raises(PolicyError, match="no step could be played"):
        checked(policy, policy, [], screens).refuse_above(1.0)
