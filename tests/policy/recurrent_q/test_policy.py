"""A recurrent Q as a policy: what it writes it scores, whatever came before; and which actions it has."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import factories
import numpy as np
import pytest
import torch
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.autoui.tokenizer import SINGLES, UNKNOWN, WordTokenizer
from distrl.policy.protocol import ImageFeatures
from distrl.policy.recurrent_q.actions import PLACES, ActionGrid
from distrl.policy.recurrent_q.directory import Described, make
from distrl.policy.recurrent_q.network import NEVER
from distrl.policy.recurrent_q.policy import RecurrentQPolicy
from distrl.policy.recurrent_q.tokenizer import GridTokenizer
from distrl.policy.registry import policy_of, tokenizer_of
from distrl.policy.sampling import FULL, Ladder, Sampling
from distrl.tasks.suite import suites
from distrl.text import plain_words
from distrl.types import Action, ActionKind, Point, ScreenSize, Split, Step

from policy.conftest import png

SCREEN = ScreenSize(64, 128)
INSTRUCTION = "search for red shoes"
TYPED = Action(ActionKind.TYPE, text="red shoes")


@pytest.fixture(scope="module")
def base(base_directory: Path, tmp_path_factory: pytest.TempPathFactory) -> PolicySettings:
    directory = tmp_path_factory.mktemp("q")
    make(directory, base_directory, Described(width=16, epsilon=0.2))
    return PolicySettings(base_model=directory)


@pytest.fixture(scope="module")
def policy(base: PolicySettings) -> RecurrentQPolicy:
    found = policy_of(base)
    assert isinstance(found, RecurrentQPolicy)
    return found


@pytest.fixture
def tokenizer(base: PolicySettings) -> GridTokenizer:
    found = tokenizer_of(base)
    assert isinstance(found, GridTokenizer)
    return found


@dataclass(frozen=True, slots=True)
class Played:
    """An episode's steps, as recorded, and its screenshots."""

    steps: tuple[Step, ...]
    pngs: tuple[bytes, ...]

    def features(self, policy: RecurrentQPolicy) -> list[ImageFeatures]:
        made = [policy.image_features(each) for each in self.pngs]
        return [each._replace(earlier=tuple(made[:index])) for index, each in enumerate(made)]


def play(policy: RecurrentQPolicy, seed: int, steps: int, sampling: Sampling | None = FULL) -> Played:
    """As a worker does: each decision has the screens and the actions before it."""
    pngs, made, actions = tuple(png(100 * seed + index) for index in range(steps)), [], list[Action]()
    for index in range(steps):
        prompt = policy.tokenizer.encode_prompt(INSTRUCTION, actions, SCREEN)
        (found,) = policy.decide([pngs[index]], [prompt], sampling, [1000 * seed + index], [pngs[:index]])
        actions.append(found.action)
        made.append(
            factories.step(
                found.action,
                prompt_ids=prompt,
                action_ids=found.action_ids,
                logprob=found.logprob,
                action_text="",
                entropy=found.entropy,
            )
        )
    return Played(tuple(made), pngs)


@pytest.mark.parametrize(
    "sampling",
    [
        FULL,
        Sampling(temperature=1.5),
        Sampling(top_p=0.9),
        Sampling(top_k=3),
        Sampling(epsilon=0.7),
        Sampling(1.5, epsilon=0.4**8),
    ],
)
def test_what_it_decided_it_scores_alike(policy: RecurrentQPolicy, sampling: Sampling) -> None:
    """ρ = 1 at every step of episodes, alone and beside others, by `score` and by `repeat`."""
    played = [play(policy, seed, 5, sampling) for seed in range(3)]
    steps = [step for each in played for step in each.steps]
    features = [screen for each in played for screen in each.features(policy)]
    assert all(policy.tokenizer.accepts(step, index) for each in played for index, step in enumerate(each.steps))
    recorded = [step.logprob for step in steps]
    with torch.no_grad():
        scored = policy.score(steps, features, sampling)
    assert np.allclose(scored.logprob.numpy(), recorded, atol=1e-4)
    assert np.allclose(scored.entropy.numpy(), [step.entropy for step in steps], atol=1e-4)
    assert np.allclose(policy.repeat(steps, features, sampling), recorded, atol=1e-6)


@pytest.mark.parametrize(("sampling", "epsilon"), [(FULL, 0.2), (Sampling(epsilon=0.4), 0.4)])
def test_it_acts_by_the_distribution_that_it_says(policy: RecurrentQPolicy, sampling: Sampling, epsilon: float) -> None:
    """π = (1 − ε) softmax(Q / 0.01) + ε / n over what is possible: by its Q, and by counts of draws. ε is the base
    model's, or the sampling's."""
    prompt, screen = policy.tokenizer.encode_prompt(INSTRUCTION, (), SCREEN), png(1)
    q = policy.q(policy.seen(prompt, policy.image_features(screen))).detach().double().numpy()
    possible = q > NEVER
    grid, goal = policy.tokenizer.grid, prompt[:-1]
    assert np.array_equal(possible, grid.possible(goal))
    weight = np.where(possible, np.exp((q - q.max()) / 0.01), 0.0)
    expected = (1 - epsilon) * weight / weight.sum() + epsilon * possible / possible.sum()
    draws = policy.decide([screen] * 600, [prompt] * 600, sampling, list(range(600)))
    drawn = [grid.number(goal, each.action_ids) for each in draws]
    assert np.allclose([np.exp(each.logprob) for each in draws], expected[drawn], rtol=1e-3)
    likely = int(expected.argmax())
    deviation = np.sqrt(expected[likely] * (1 - expected[likely]) / 600)
    assert abs(drawn.count(likely) / 600 - expected[likely]) < 4 * deviation
    (greedy,) = policy.decide([screen], [prompt], None, [0])
    assert grid.number(goal, greedy.action_ids) == likely


def test_a_ladder_is_no_epsilon(policy: RecurrentQPolicy) -> None:
    """Which ε it would be depends on the episode, and a policy knows of none."""
    prompt = policy.tokenizer.encode_prompt(INSTRUCTION, (), SCREEN)
    with pytest.raises(ValueError, match="ladder"):
        policy.decide([png(1)], [prompt], Sampling(epsilon=Ladder(8)), [0])


def test_it_remembers_the_first_screen_and_the_actions(policy: RecurrentQPolicy) -> None:
    """What only the beginning of the episode tells reaches Q of its last step."""
    played = play(policy, 1, 4)
    screen = played.features(policy)[-1]
    prompt = played.steps[-1].prompt_ids

    def q(seen: ImageFeatures, ids: tuple[int, ...]) -> torch.Tensor:
        return policy.q(policy.seen(ids, seen)).detach()

    other_first = screen._replace(earlier=(policy.image_features(png(999)), *screen.earlier[1:]))
    actions = [Action(ActionKind.BACK), *(step.action for step in played.steps[1:-1])]
    other_action = policy.tokenizer.encode_prompt(INSTRUCTION, actions, SCREEN)
    assert not torch.equal(q(screen, prompt), q(other_first, prompt))
    assert prompt == other_action or not torch.equal(q(screen, prompt), q(screen, other_action))


def test_weights_are_shipped_whole(base: PolicySettings, policy: RecurrentQPolicy) -> None:
    other = policy_of(base, seed=5)
    assert other.adapter() != policy.adapter() == policy_of(base).adapter()
    other.load(policy.adapter())
    assert other.adapter() == policy.adapter()
    with pytest.raises(PolicyError, match="no weights"):
        other.load(b"none")


def test_every_possible_action_has_one_number(tokenizer: GridTokenizer) -> None:
    grid = tokenizer.grid
    goal = tokenizer.encode_prompt("search for red shoes for red lamp unknown", (), SCREEN)[:-1]
    assert goal[-1] == UNKNOWN
    numbers = np.flatnonzero(grid.possible(goal))
    written = [grid.written(goal, int(number)) for number in numbers]
    assert len(set(written)) == len(written)
    assert [grid.number(goal, ids) for ids in written] == numbers.tolist()
    actions = [tokenizer.decode_action(ids, SCREEN) for ids in written]
    assert all(action.kind is not ActionKind.INVALID for action in actions)
    cells = tokenizer.words.columns * tokenizer.words.rows
    texts = [action.text for action in actions if action.kind is ActionKind.TYPE]
    assert len(actions) == cells + len(SINGLES) + len(texts)
    assert {"red", "red shoes", "for red lamp", "shoes for red lamp"} <= set(texts)
    assert not any("unk" in text for text in texts)


def test_every_word_of_the_built_in_instructions_can_begin_a_text() -> None:
    said = [text for suite in suites().values() for split in Split for text in suite.said(split)]
    assert max(len(plain_words(text)) for text in said) <= PLACES


def test_a_step_that_it_cannot_have_taken_is_not_accepted(tokenizer: GridTokenizer) -> None:
    """The other place in the episode, text that is no part of the instruction, and ids of all sorts."""
    prompt = tokenizer.encode_prompt(INSTRUCTION, [Action(ActionKind.BACK)], SCREEN)
    taken = factories.step(TYPED, prompt_ids=prompt, action_ids=tokenizer.encode_action(TYPED, SCREEN))
    assert tokenizer.accepts(taken, 1)
    assert not tokenizer.accepts(taken, 0)
    elsewhere = tokenizer.encode_action(Action(ActionKind.TYPE, text="blue lamp"), SCREEN)
    tap = tokenizer.encode_action(Action(ActionKind.TAP, touch=Point(0.9, 0.9)), SCREEN)
    assert tokenizer.accepts(replace(taken, action_ids=tap), 1)
    for ids in (elsewhere, (), (1,), tap[:-1], (*tap, 1), (10**6,)):
        assert not tokenizer.accepts(replace(taken, action_ids=ids), 1)
    for ids in ((), prompt[:-1], (0, *prompt), (10**6, *prompt), (-1, *prompt), (*prompt[:-1], *prompt[:-1] * 9, 1)):
        assert not tokenizer.accepts(replace(taken, prompt_ids=ids), 1)


def test_a_spoilt_directory_is_refused(base: PolicySettings, base_directory: Path, tmp_path: Path) -> None:
    assert base.base_model is not None
    with pytest.raises(PolicyError, match="holds files"):
        make(base.base_model, base_directory, Described())
    (tmp_path / "file").touch()
    with pytest.raises(PolicyError, match="is a file"):
        make(tmp_path / "file", base_directory, Described())
    with pytest.raises(PolicyError, match="is not of the format"):
        make(tmp_path / "new", base.base_model, Described())
    about = {"format": "distrl-recurrent-q/1", "width": 16, "recurrent": True, "epsilon": 0.1}
    for changed in ({"width": 0}, {"width": "1"}, {"epsilon": 0}, {"epsilon": 1.5}, {"recurrent": 1}, {"more": 1}):
        (tmp_path / "config.json").write_text(json.dumps({**about, **changed}))
        with pytest.raises(PolicyError, match="does not describe a base model"):
            tokenizer_of(PolicySettings(base_model=tmp_path))


def test_settings_that_it_has_no_use_for_are_refused(base: PolicySettings) -> None:
    for name, value in (("trains", "all"), ("dialect", "json"), ("history_screens", 2)):
        with pytest.raises(PolicyError, match=f"policy.{name}"):
            policy_of(base.model_copy(update={name: value}))


def test_words_that_are_spelled_as_coordinates_are_typed_and_taps_stay_taps() -> None:
    words = WordTokenizer(("type", "x0", "y1"))
    grid, goal = ActionGrid(words), words.encode_prompt("type x0 y1", ())[:3]
    actions = [words.decode_action(grid.written(goal, int(number))) for number in np.flatnonzero(grid.possible(goal))]
    assert [action.kind for action in actions].count(ActionKind.TAP) == words.columns * words.rows
    assert "x0 y1" in {action.text for action in actions}


def test_where_a_device_replaces_parameters_those_of_now_are_trained(
    base: PolicySettings, replaced_parameters: None
) -> None:
    """Else each step was made on others, and each version had the first one's weights."""
    placed = policy_of(base, device=torch.device("cpu"))
    assert isinstance(placed, RecurrentQPolicy)
    assert {id(each) for each in placed.parameters().values()} == {id(each) for each in placed.network.parameters()}
