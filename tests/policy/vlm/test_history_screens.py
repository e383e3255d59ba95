"""Prompts with earlier screenshots: each image has its place, and what is learned is what was read."""

from __future__ import annotations

from collections.abc import Sequence

import factories
import numpy as np
import pytest
import torch
from distrl.errors import PolicyError
from distrl.policy.protocol import ImageFeatures
from distrl.policy.registry import policy_of
from distrl.policy.sampling import Sampling
from distrl.policy.screenshot import decoded
from distrl.policy.vlm.model import TYPES
from distrl.policy.vlm.policy import VlmPolicy
from distrl.types import ScreenSize, Step

from policy.conftest import png
from policy.vlm.models import FAMILIES
from policy.vlm.test_policy import SIZES, TAP, settings, shake

BEFORE = 2
STEPS = 5
"""Of an episode: two whose prompts have fewer screens, and three that leave out some."""
SHOTS = [png(place, *SIZES[place % len(SIZES)]) for place in range(STEPS)]
SCREENS = [ScreenSize(*SIZES[place % len(SIZES)]) for place in range(STEPS)]
EARLIER = [SHOTS[max(0, place - BEFORE) : place] for place in range(STEPS)]
SAMPLING = Sampling(0.9, 0.8, 20)


@pytest.fixture(scope="module", params=FAMILIES)
def policy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> VlmPolicy:
    directory = tmp_path_factory.mktemp(request.param)
    FAMILIES[request.param](directory)
    made = policy_of(settings(directory, history_screens=BEFORE, history=1))
    assert isinstance(made, VlmPolicy)
    shake(made, 1)
    return made


def prompt(policy: VlmPolicy, place: int) -> tuple[int, ...]:
    return policy.tokenizer.encode_prompt("open it", [TAP] * place, SCREENS[place])


def read(policy: VlmPolicy, place: int, earlier: Sequence[bytes]) -> ImageFeatures:
    return policy.image_features(SHOTS[place])._replace(earlier=tuple(map(policy.image_features, earlier)))


def test_ratio_is_one_at_each_step_of_an_episode_alone_and_in_a_batch(policy: VlmPolicy) -> None:
    """A batch of rows with one, two and three screenshots of several sizes; ρ is 1 within 1e-4 as it is drawn, repeated
    and scored."""
    assert policy.earlier_screens == BEFORE
    prompts = [prompt(policy, place) for place in range(STEPS)]
    drawn = policy.decide(SHOTS, prompts, SAMPLING, range(STEPS), EARLIER)
    steps = [factories.step(prompt_ids=p, action_ids=each.action_ids) for p, each in zip(prompts, drawn, strict=True)]
    features = [read(policy, place, EARLIER[place]) for place in range(STEPS)]
    together = policy.score(steps, features, SAMPLING)
    repeated = policy.repeat(steps, features, SAMPLING)
    for place, (step, each) in enumerate(zip(steps, drawn, strict=True)):
        (alone,) = policy.decide([SHOTS[place]], [step.prompt_ids], SAMPLING, [place], [EARLIER[place]])
        assert alone.action_ids == step.action_ids, "what is drawn does not depend on the other rows"
        scored = policy.score([step], [features[place]], SAMPLING)
        for logprob in (together.logprob[place].item(), scored.logprob.item(), repeated[place]):
            assert np.exp(logprob - each.logprob) == pytest.approx(1.0, abs=1e-4)
        assert torch.allclose(scored.states[0], together.states[place], atol=1e-4)


def test_each_screenshot_has_its_place(policy: VlmPolicy) -> None:
    """The probability changes with each of them, and with their order."""
    place = 3
    step = factories.step(prompt_ids=prompt(policy, place), action_ids=(7, 8, 9))

    def logprob(*earlier: bytes) -> float:
        return policy.score([step], [read(policy, place, earlier)]).logprob.item()

    # of one size: else the prompts would differ in length, too
    one, two, other = (png(seed, *SIZES[1]) for seed in (11, 12, 13))
    found = [logprob(one, two), logprob(two, one), logprob(other, two), logprob(one, other)]
    assert min(abs(a - b) for n, a in enumerate(found) for b in found[:n]) > 1e-7, found
    assert logprob(one, two) == found[0]


def test_a_prompt_is_what_the_models_own_processor_makes_of_it(policy: VlmPolicy) -> None:
    """Of text and pictures of several sizes; the logits are those of the library's own pass over pixels."""
    place, processor, model = 3, policy.tokenizer.processor, policy._model
    told, asked, count = policy.tokenizer.conversation("open it", [TAP] * place, SCREENS[place])
    assert count == 1 + BEFORE
    assert asked.endswith("Screens: before action 2, before action 3, now")
    pictures = [processor.scaled(decoded(shot)) for shot in SHOTS[1 : place + 1]]
    theirs = processor._processor(
        text=[processor._rendered(told, asked, count)], images=pictures, return_tensors="pt", add_special_tokens=False
    )
    features = read(policy, place, EARLIER[place])
    ours = policy._inputs([prompt(policy, place)], [features])
    assert ours["input_ids"].tolist() == theirs["input_ids"].tolist()  # type: ignore[attr-defined]
    action = torch.tensor([(7, 8, 9)])
    logits, _ = model.scored(ours, action, torch.tensor([3]))
    whole = {name: value for name, value in theirs.items() if name in model._takes}
    whole["input_ids"] = torch.cat([theirs["input_ids"], action], dim=1)
    whole["attention_mask"] = torch.ones_like(whole["input_ids"])
    whole |= {name: model._types(whole["input_ids"]) for name in TYPES if name in ours}
    with torch.no_grad():
        found = model.whole(**whole).logits[:, -4:-1]
    assert torch.allclose(model.allowed(found), logits, atol=1e-4)


def test_a_step_with_another_number_of_screenshots_is_not_of_this_policy(policy: VlmPolicy) -> None:
    def step(place: int) -> Step:
        return factories.step(prompt_ids=prompt(policy, place), action_ids=(7, 8, 9))

    fits = [[policy.tokenizer.accepts(step(of), index) for index in range(4)] for of in range(4)]
    assert fits == [[True, False, False, False], [False, True, False, False], *([[False, False, True, True]] * 2)]
    marker = policy.tokenizer.processor.marker_id
    assert not policy.tokenizer.accepts(factories.step(prompt_ids=prompt(policy, 1), action_ids=(marker,)), 1)
    with pytest.raises(PolicyError, match="are 2, and the prompt is of 3"):
        policy.decide([SHOTS[3]], [prompt(policy, 3)], None, [0], [SHOTS[2:3]])


def test_the_first_step_reads_what_it_would_without_the_setting(policy: VlmPolicy) -> None:
    said = policy.tokenizer.conversation("open it", [], SCREENS[0])
    assert said == ("Act.", "Instruction: open it\nActions so far:\nnone", 1)
