from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from distrl.config import Config
from distrl.demonstrations.scripted import Scripted, demonstration_tasks, script_seed
from distrl.policy.autoui.pretraining.screens import phone_tokenizer
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.rollout.episode import Episode, Screen
from distrl.rollout.vocabulary import words_of_all_suites
from distrl.tasks.oracle import ImperfectScript
from distrl.tasks.outcome import checked
from distrl.tasks.suite import suites
from distrl.types import Action, ActionKind, Outcome, Point, Split, Task
from rollout.phone import MachinePhone
from rollout.world import CountingPhone, Shelf, shot, task, twice
from simphone.words import ALL

CODEC = WordTokenizer(ALL)


@dataclass
class Always:
    action: Action

    def act(self, task: Task, state: Mapping[str, Any]) -> tuple[Action, float]:
        return self.action, -2.5


def test_what_is_done_is_what_the_tokens_say() -> None:
    """The grid has 8 x 16 cells: a touch next to a corner lands in the middle of the corner's cell."""
    phone = CountingPhone()
    decider = Scripted(Always(Action(ActionKind.TAP, Point(0.01, 0.99))), CODEC)
    trajectory = Episode("demonstrate", Shelf().keep, twice, is_expert=True).run(task(max_steps=1), "a", phone, decider)
    step = trajectory.steps[0]
    assert step.action.touch == Point(0.5 / 8, 15.5 / 16)
    assert phone.sent == [step.action]
    assert CODEC.decode_action(step.action_ids) == step.action
    assert (step.logprob, step.version, step.version_sha256, trajectory.is_expert) == (-2.5, -1, "", True)


def test_a_real_phone_cannot_be_demonstrated_on() -> None:
    decider = Scripted(Always(Action(ActionKind.BACK)), CODEC)
    phone = CountingPhone(offers_truth=False)
    trajectory = Episode("demonstrate", Shelf().keep, twice).run(task(), "a", phone, decider)
    assert trajectory.outcome is Outcome.INTERRUPTED
    assert "offers no state" in trajectory.note


def test_demonstrations_are_numbered_the_same_again_and_no_training_task_is_among_them() -> None:
    config = Config()
    tasks = demonstration_tasks(config, 14)
    assert tasks == demonstration_tasks(config, 20)[:14]
    assert [each.task_id for each in tasks] == [f"demo-{n}" for n in range(14)]
    assert {each.split for each in tasks} == {Split.TRAIN}
    fed = [suites()["home"].task(n, config.learner.seed, Split.TRAIN).phone_seed for n in range(200)]
    assert not {each.phone_seed for each in tasks} & set(fed)
    assert len({script_seed(each) for each in tasks}) == 14


def test_what_a_list_holds_out_is_not_demonstrated(tmp_path: Path) -> None:
    given = demonstration_tasks(Config(), 6)
    rows = [{"instruction": each.instruction.upper(), "split": "test"} for each in given[1:3]]
    rows += [{"instruction": f"do {split}", "split": split} for split in ("train", "validation")]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    config = Config.model_validate({"feeder": {"tasks": [tmp_path / "mine.jsonl"]}})
    assert demonstration_tasks(config, 4) == [given[0], *given[3:6]]


@pytest.mark.parametrize("suite", sorted(suites()))
def test_demonstrations_are_of_the_suite_that_is_fed_and_each_action_has_tokens(suite: str) -> None:
    config = Config.model_validate({"feeder": {"suite": suite}})
    codec = phone_tokenizer(words_of_all_suites(phone_tokenizer()))
    for given in demonstration_tasks(config, 2 * len(suites()[suite].families)):
        assert (given.suite, given.split) == (suite, Split.TRAIN)
        decider = Scripted(ImperfectScript(script_seed(given), random_share=0.3), codec)
        trajectory = Episode("demonstrate", Shelf().keep, checked).run(given, "a", PlainPhone(), decider)
        assert trajectory.outcome in (Outcome.SUCCESS, Outcome.FAILURE), trajectory.note
        assert all(codec.decode_action(step.action_ids) == step.action for step in trajectory.steps)


class PlainPhone(MachinePhone):
    """One that draws nothing: what a script sees is the state."""

    def settle(self) -> Screen:
        return Screen(shot("nothing"))


@pytest.mark.parametrize("index", range(7))
def test_the_script_plays_every_family_on_a_phone_in_this_process(index: int) -> None:
    wanted = demonstration_tasks(Config(), 7)[index]
    decider = Scripted(ImperfectScript(1, random_share=0.0, stop_share=0.0), CODEC)
    trajectory = Episode("demonstrate", Shelf().keep, checked).run(wanted, "a", MachinePhone(), decider)
    assert trajectory.outcome is Outcome.SUCCESS
    assert trajectory.steps[-1].action.kind is ActionKind.COMPLETE
