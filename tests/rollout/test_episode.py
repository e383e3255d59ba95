from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
from distrl.errors import DeviceError
from distrl.rollout.episode import NOTE_CHARACTERS, Episode, Judgement, Screen, sampling_seed
from distrl.types import Action, ActionKind, HeldBack, ObjectRef, Outcome, Step, Task, Unmet

from rollout.world import DONE, INVALID, TAP, CountingPhone, Recorded, Shelf, TickingClock, ref, shot, task, twice


def episode(shelf: Shelf, clock: TickingClock | None = None) -> Episode:
    return Episode("worker-7", shelf.keep, twice, (clock or TickingClock(0.001)).clock())


def test_each_step_names_what_was_seen_what_was_done_and_by_which_weights() -> None:
    shelf, phone, decider = Shelf(), CountingPhone(), Recorded([TAP, TAP, DONE])
    trajectory = episode(shelf).run(task(), "a-1", phone, decider)

    assert [step.screenshot for step in trajectory.steps] == [ref(shot(f"screen {n}")) for n in (0, 1, 2)]
    assert [step.action for step in trajectory.steps] == [TAP, TAP, DONE]
    first = trajectory.steps[0]
    assert (first.version, first.version_sha256, first.logprob, first.entropy) == (3, "sha", -0.5, 0.25)
    assert (first.prompt_ids, first.action_ids, first.action_text) == ((1, 2), (3, 4), "tap")
    assert trajectory.final_screenshot == ref(shot("screen 2"))
    assert (trajectory.outcome, trajectory.outcome_source) == (Outcome.SUCCESS, "ground-truth")
    assert (trajectory.worker, trajectory.device, trajectory.attempt_id) == ("worker-7", "phone-0", "a-1")
    assert [seen.previous for seen in decider.seen] == [(), (TAP,), (TAP, TAP)]


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_a_decision_is_given_as_many_earlier_screens_as_it_reads(count: int) -> None:
    """Those of the same episode, oldest first, also where nothing was done on one."""
    decider = Recorded([TAP, INVALID, TAP, DONE], earlier_screens=count)
    for attempt in range(2):
        decider.seen.clear()
        episode(Shelf()).run(task(), "a", CountingPhone(), decider)
        shown = [seen.png for seen in decider.seen]
        assert shown == [shot(f"screen {n}") for n in (0, 1, 1, 2)]
        before = [shown[max(0, n - count) : n] for n in range(4)]
        assert [list(seen.earlier) for seen in decider.seen] == before, attempt


def test_the_end_is_not_sent_and_neither_is_what_is_no_action() -> None:
    phone = CountingPhone()
    trajectory = episode(Shelf()).run(task(), "a", phone, Recorded([INVALID, TAP, DONE]))
    assert phone.sent == [TAP]
    assert trajectory.outcome is Outcome.FAILURE
    assert trajectory.steps[0].action.kind is ActionKind.INVALID


def test_an_episode_ends_after_max_steps() -> None:
    trajectory = episode(Shelf()).run(task(max_steps=2), "a", CountingPhone(), Recorded([TAP] * 9))
    assert len(trajectory.steps) == 2
    assert trajectory.outcome is Outcome.SUCCESS


def test_a_screenshot_is_kept_before_anything_is_decided_on_it() -> None:
    shelf = Shelf()

    class Checking(Recorded):
        def decide(self, observation):  # type: ignore[no-untyped-def]
            assert ref(observation.png).sha256 in shelf.objects
            return super().decide(observation)

    assert episode(shelf).run(task(), "a", CountingPhone(), Checking([TAP, DONE])).steps


def test_a_phone_that_fails_interrupts_the_episode_and_keeps_the_steps_before() -> None:
    trajectory = episode(Shelf()).run(task(), "a", CountingPhone(fails_at=1), Recorded([TAP, TAP, DONE]))
    assert trajectory.outcome is Outcome.INTERRUPTED
    assert trajectory.note == "DeviceError: the phone is gone"
    assert len(trajectory.steps) == 1
    assert trajectory.final_screenshot is None


def test_the_apps_that_it_was_brought_back_from_are_noted_with_their_step_beside_what_ended_it() -> None:
    class Straying(CountingPhone):
        def settle(self) -> Screen:
            if self.sent:
                self.foreign_apps.append(f"com.b ({len(self.sent)})")
            return super().settle()

    noted = episode(Shelf()).run(task(), "a", Straying(), Recorded([TAP, TAP, DONE]))
    assert noted.note == "left the allowed apps: com.b (1) at step 1, com.b (2) at step 2, com.b (2) at step 3"
    assert noted.outcome is Outcome.SUCCESS
    cut = episode(Shelf()).run(task(), "b", Straying(fails_at=1), Recorded([TAP, TAP, DONE]))
    assert cut.note == "left the allowed apps: com.b (1) at step 1; DeviceError: the phone is gone"
    assert [step.held_back for step in cut.steps] == [HeldBack.UNDONE]
    many = episode(Shelf()).run(task(max_steps=99), "c", Straying(), Recorded([TAP] * 99))
    assert NOTE_CHARACTERS - 40 < len(many.note) <= NOTE_CHARACTERS
    assert many.note.startswith("left the allowed apps: com.b (1) at step 1, com.b (2) at step 2, ")
    assert len(re.findall("at step", many.note)) + int(many.note.split()[-2]) == 99


def test_neither_what_was_left_nor_what_ended_it_hides_the_other_in_the_note() -> None:
    class Failing(CountingPhone):
        def perform(self, action: Action) -> HeldBack:
            self.foreign_apps += ["com." + "b" * 900] * 5
            raise DeviceError("phone-0", "gone " * 900, "")

    note = episode(Shelf()).run(task(), "a", Failing(), Recorded([TAP])).note
    assert len(note) == NOTE_CHARACTERS
    left, _, why = note.partition("; ")
    assert re.fullmatch(r"left the allowed apps: com\.b+ and 4 more", left)
    assert why.startswith("DeviceError: gone gone ")
    assert len(why) >= NOTE_CHARACTERS // 2


def test_an_action_is_undone_where_it_led_to_what_was_left_and_unsent_where_that_came_before_it() -> None:
    """The step is named that did it: not the next one, not one that reached no phone, not one for what was there."""

    class Straying(CountingPhone):
        def __init__(self, before: set[int], under: set[int]) -> None:
            super().__init__()
            self.before, self.under, self.looks = before, under, -1

        def settle(self) -> Screen:
            self.looks += 1
            self.foreign_apps += ["com.b"] * (self.looks in self.before)
            return super().settle()

        def perform(self, action: Action) -> HeldBack:
            if self.looks in self.under:
                self.foreign_apps.append("com.c")
                return HeldBack.UNSENT
            return super().perform(action)

    def held(before: set[int], under: set[int], *actions: Action) -> str:
        steps = episode(Shelf()).run(task(), "a", Straying(before, under), Recorded(actions)).steps
        return " ".join(step.held_back.value for step in steps)

    assert held(set(), set(), TAP, TAP, DONE) == "no no no"
    assert held({1}, set(), TAP, TAP, DONE) == "undone no no"
    assert held({0}, set(), TAP, TAP, DONE) == "no no no", "it was there before the first action"
    assert held(set(), {1}, TAP, TAP, DONE) == "no unsent no"
    assert held({2}, {1}, TAP, TAP, DONE) == "no unsent no", "what was not sent leads nowhere"
    assert held({1, 2}, set(), INVALID, TAP, DONE) == "no undone no"
    assert held({4}, set(), TAP, TAP, TAP, TAP) == "no no no undone", "seen after the last one"
    assert held({3}, set(), TAP, TAP, DONE) == "no no no"


def test_a_phone_that_tells_no_truth_leaves_the_outcome_unknown() -> None:
    trajectory = episode(Shelf()).run(task(), "a", CountingPhone(offers_truth=False), Recorded([DONE]))
    assert (trajectory.outcome, trajectory.outcome_source) == (Outcome.UNKNOWN, "none")


def test_the_record_says_which_condition_failed_and_how_the_phone_was_in_the_end() -> None:
    failed = episode(Shelf()).run(task(), "a", CountingPhone(), Recorded([TAP, DONE]))
    assert failed.outcome is Outcome.FAILURE
    assert failed.unmet == (Unmet("taps", "equals", "2", "1"),)
    assert failed.final_state == '{"taps": 1}'
    solved = episode(Shelf()).run(task(), "a", CountingPhone(), Recorded([TAP, TAP, DONE]))
    assert (solved.outcome, solved.unmet, solved.final_state) == (Outcome.SUCCESS, (), '{"taps": 2}')
    broken = episode(Shelf()).run(task(), "a", CountingPhone(fails_at=1), Recorded([TAP, TAP, DONE]))
    assert (broken.outcome, broken.unmet, broken.final_state) == (Outcome.INTERRUPTED, (), "")


def test_of_a_phone_that_tells_no_truth_the_opinion_counts() -> None:
    asked = []

    def fallback_judge(of: Task, last: bytes, steps: Sequence[Step]) -> Judgement:
        asked.append((of.task_id, last, [step.action for step in steps]))
        return Judgement(Outcome.FAILURE, "vlm:m", reason="no " * NOTE_CHARACTERS)

    judged = replace(episode(Shelf()), fallback_judge=fallback_judge)
    told = judged.run(task(), "a", CountingPhone(offers_truth=False), Recorded([TAP, DONE]))
    assert (told.outcome, told.outcome_source) == (Outcome.FAILURE, "vlm:m")
    assert told.reason == ("no " * NOTE_CHARACTERS)[:NOTE_CHARACTERS], "a model's words are bounded"
    assert (told.unmet, told.final_state) == ((), "")
    assert asked == [(task().task_id, shot("screen 1"), [TAP, DONE])]
    assert judged.run(task(), "b", CountingPhone(), Recorded([TAP, DONE])).outcome_source == "ground-truth"
    assert len(asked) == 1, "a phone that tells the truth needs no other judge"


def test_where_the_state_cannot_tell_the_opinion_counts_too() -> None:
    """A task of a list without a check, on a simulated phone."""
    unsaid = replace(episode(Shelf()), judge=lambda of, truth: None)
    told = unsaid.run(task(), "a", CountingPhone(), Recorded([DONE]))
    assert (told.outcome, told.outcome_source) == (Outcome.UNKNOWN, "none")
    judged = replace(unsaid, fallback_judge=lambda of, last, steps: Judgement(Outcome.SUCCESS, "vlm:m"))
    told = judged.run(task(), "a", CountingPhone(), Recorded([DONE]))
    assert (told.outcome, told.outcome_source) == (Outcome.SUCCESS, "vlm:m")


def test_what_the_store_raises_is_not_taken_for_a_phone_that_failed() -> None:
    def full(png: bytes) -> ObjectRef:
        raise RuntimeError("no more patience")

    with pytest.raises(RuntimeError, match="no more patience"):
        Episode("w", full, twice).run(task(), "a", CountingPhone(), Recorded([DONE]))


def test_the_time_of_a_step_is_split_into_its_parts() -> None:
    """The clock moves a second per look, so each part is what lies between two looks: one second."""
    step = episode(Shelf(), TickingClock(1.0)).run(task(), "a", CountingPhone(), Recorded([TAP, DONE])).steps[0]
    assert (step.adb_ms, step.publish_ms, step.phone_ms, step.policy_ms) == (1000, 1000, 1000, 4)


def test_sampling_seeds_are_fixed_and_differ_by_task_attempt_and_step() -> None:
    seeds = {sampling_seed(t, a, s) for t in ("t", "u") for a in ("a", "b") for s in range(50)}
    assert len(seeds) == 200
    assert sampling_seed("t", "a", 0) == 4090806479771477372
    assert all(0 <= seed < 2**63 for seed in seeds)
