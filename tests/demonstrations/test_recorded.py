from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from distrl.config import Config
from distrl.demonstrations.recorded import UnusableError, demonstrated, demonstration_of, refuse
from distrl.learner.fold import is_usable
from distrl.learner.state import LearnerState
from distrl.policy.autoui.pretraining.screens import phone_tokenizer
from distrl.recordings.episode import Dataset, RecordedEpisode, RecordedStep
from distrl.recordings.folder import dataset_of, episodes, files_of
from distrl.tasks.held_out import held_out
from distrl.types import SCRIPTED, Action, ActionKind, Outcome, Point, Split, Trajectory
from distrl.wire.codec import decode, encode
from learner.world import CODEC as TINY
from learner.world import Screens, config, folded, logged, save_tiny_base
from recording_files import HEIGHT, WIDTH, aitw, android_control, dual_point, example, other, screens, write
from rollout.world import Shelf

CODEC = phone_tokenizer()
CLICK = {"action_type": "click", "x": WIDTH // 2, "y": HEIGHT // 4}
OPEN = {"action_type": "open_app", "app_name": "Settings"}
WAIT = {"action_type": "wait"}
SCROLL = {"action_type": "scroll", "direction": "down"}
TAP = dual_point((0.25, 0.5))


def read(folder: Path) -> list[RecordedEpisode]:
    files = files_of(folder)
    found = list(episodes(files, dataset_of(files)))
    assert all(isinstance(each, RecordedEpisode) for each in found), found
    return [each for each in found if isinstance(each, RecordedEpisode)]


def episode(*steps: tuple[str, Action | None], final: bytes | None = None) -> RecordedEpisode:
    png = screens(1)[0]
    made = tuple(RecordedStep(png, name, action) for name, action in steps)
    return RecordedEpisode(Dataset.AITW, "1", "turn on wifi", made, final, "file, record 0")


A_TAP = ("tap", Action(ActionKind.TAP, Point(0.5, 0.5)))
END = ("STATUS_TASK_COMPLETE", Action(ActionKind.COMPLETE))


def test_a_demonstration_of_android_control_begins_in_its_app_and_ends_as_a_policy_ends(tmp_path: Path) -> None:
    features = android_control(3, [WAIT, OPEN, WAIT, CLICK, WAIT, SCROLL, {"action_type": "input_text", "text": "red"}])
    write(tmp_path / "file", [example(features)])
    shelf = Shelf()
    [found] = read(tmp_path)
    made = demonstration_of(found, CODEC, shelf.keep)
    assert [step.action.kind for step in made.steps] == ["tap", "swipe", "type", "complete"]
    shown = features["screenshots"]
    assert [shelf.get(step.screenshot) for step in made.steps] == [shown[at] for at in (3, 5, 6, 7)]
    assert (made.task_id, made.task.instruction, made.task.split) == ("android-control-3", "turn on wifi", Split.TRAIN)
    assert (made.outcome, made.is_expert, made.final_screenshot) == (Outcome.SUCCESS, True, made.steps[-1].screenshot)
    assert {(step.version, step.logprob) for step in made.steps} == {(SCRIPTED, 0.0)}


def test_what_is_recorded_is_what_the_tokens_say_and_the_prompts_have_the_actions_before(tmp_path: Path) -> None:
    write(tmp_path / "file", map(example, aitw("abc", [TAP, other(3, "red"), other(7), other(10)])))
    [found] = read(tmp_path)
    made = demonstration_of(found, CODEC, Shelf().keep)
    assert made.steps[0].action.touch == Point(4.5 / 8, 4.5 / 16)
    earlier: list[Action] = []
    for step in made.steps:
        assert CODEC.decode_action(step.action_ids) == step.action
        assert step.prompt_ids == CODEC.encode_prompt("turn on wifi", earlier)
        earlier.append(step.action)
    assert made.task_id == "aitw-abc"
    assert is_usable(made, CODEC)
    assert decode(encode(made), Trajectory) == made


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (episode(A_TAP, ("long_press", None), END), "`long_press` has no counterpart"),
        (episode(A_TAP, ("open_app", None), A_TAP), "`open_app` has no counterpart"),
        (episode(A_TAP, ("STATUS_TASK_IMPOSSIBLE", None)), "`STATUS_TASK_IMPOSSIBLE` has no counterpart"),
        (episode(A_TAP, END, A_TAP), "it goes on after it is complete"),
        (episode(END), "nothing is done in it"),
        (episode(("wait", None)), "nothing is done in it"),
        (episode(("TYPE", Action(ActionKind.TYPE, text="zyzzyva"))), "the base model cannot write or read a step"),
        (episode(("TYPE", Action(ActionKind.TYPE, text="Red"))), "the base model cannot write what is typed"),
    ],
)
def test_an_episode_that_cannot_be_a_demonstration_is_skipped_and_leaves_no_screenshot(
    found: RecordedEpisode, kind: str
) -> None:
    shelf = Screens()
    with pytest.raises(UnusableError) as caught:
        demonstration_of(found, CODEC, shelf.keep)
    assert (caught.value.kind, shelf.known) == (kind, {})


def test_a_goal_that_is_held_out_or_has_unknown_words_is_skipped() -> None:
    refused = held_out(Config().feeder)
    words = next(iter(refused.pairs))
    with pytest.raises(UnusableError, match="held out"):
        refuse(replace(episode(A_TAP), goal=" ".join(words)), CODEC, refused)
    with pytest.raises(UnusableError, match="lacks words of its goal: zyzzyva"):
        refuse(replace(episode(A_TAP), goal="turn on zyzzyva"), CODEC, refused)
    refuse(episode(A_TAP), CODEC, refused)


def test_an_episode_without_a_status_at_its_end_is_kept_as_it_is() -> None:
    found = episode(A_TAP, A_TAP)
    assert demonstrated(found) == list(found.steps)
    assert demonstration_of(found, CODEC, Shelf().keep).final_screenshot is None


def test_a_learner_warms_up_on_them(tmp_path: Path) -> None:
    """The real fold of a tiny model: what the people did becomes likelier with every update of the warm-up."""
    (tmp_path / "base").mkdir()
    save_tiny_base(tmp_path / "base")
    (tmp_path / "data").mkdir()
    goal = "search for red shoes"
    write(
        tmp_path / "data" / "file",
        [example(android_control(number, [OPEN, CLICK, SCROLL], goal)) for number in range(6)],
    )
    held = Screens()
    demos = logged([demonstration_of(each, TINY, held.keep) for each in read(tmp_path / "data")])
    assert len(demos) == 6
    settings = config(tmp_path / "base", "warmup.updates=12", "warmup.lr=0.01")
    state = LearnerState(settings)
    steps = [step for demo in demos for step in demo.trajectory.steps]

    def likelihood() -> float:
        features = [state.policy.image_features(held(step.screenshot)) for step in steps]
        with torch.no_grad():
            return float(state.policy.score(steps, features).logprob.mean())

    before = likelihood()
    folded(state, [demos, *[[] for _ in range(11)]], held, settings)
    assert likelihood() > before + 0.1
