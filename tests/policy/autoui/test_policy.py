from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import factories
import numpy as np
import pytest
import torch
from distrl import images
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.autoui.base import load_base
from distrl.policy.autoui.policy import AutoUIPolicy
from distrl.policy.autoui.tokenizer import END, PAD
from distrl.policy.protocol import SampledAction, Score
from distrl.policy.sampling import FULL, Sampling
from distrl.policy.screen_cache import ScreenCache
from distrl.types import Action, ActionKind

from policy.conftest import png, shake


def prompts_of(agent: AutoUIPolicy, count: int) -> list[tuple[int, ...]]:
    goals = ["touch red shoes", "search for blue", "7", "touch lamp search for red shoes 7"]
    return [agent.tokenizer.encode_prompt(goals[i % 4], [Action(ActionKind.BACK)] * (i % 3)) for i in range(count)]


def decide(
    agent: AutoUIPolicy, count: int, sampling: Sampling | None = FULL, first_seed: int = 0
) -> list[SampledAction]:
    pngs = [png(i) for i in range(count)]
    return agent.decide(pngs, prompts_of(agent, count), sampling, range(first_seed, first_seed + count))


def score(
    agent: AutoUIPolicy,
    prompts: Sequence[tuple[int, ...]],
    actions: Sequence[tuple[int, ...]],
    sampling: Sampling = FULL,
) -> Score:
    """Of the first screens of `png`, one for each row."""
    steps = [
        factories.step(prompt_ids=prompt, action_ids=action) for prompt, action in zip(prompts, actions, strict=True)
    ]
    return agent.score(steps, [agent.image_features(png(i)) for i in range(len(steps))], sampling)


@pytest.mark.parametrize("sampling", [Sampling(0.7), FULL, Sampling(1.5), Sampling(0.9, 0.8, 5)])
@pytest.mark.parametrize("rows", range(1, 9))
def test_ratio_is_one_at_equal_weights(agent: AutoUIPolicy, rows: int, sampling: Sampling) -> None:
    shake(agent, rows)
    decisions = decide(agent, rows, sampling)
    found = score(agent, prompts_of(agent, rows), [d.action_ids for d in decisions], sampling)
    ratios = np.exp(found.logprob.detach().numpy() - [d.logprob for d in decisions])
    assert np.allclose(ratios, 1.0, atol=1e-4)
    assert bool((found.entropy > 0).all())
    assert np.allclose(found.entropy.detach().numpy(), [d.entropy for d in decisions], atol=1e-4)


def test_half_precision_holds_for_who_acts_and_who_scores(base_directory: Path) -> None:
    """ρ = 1 for what is kept in half precision too, since it was acted on in half precision."""
    agent = AutoUIPolicy(
        load_base(base_directory), PolicySettings(lora_rank=4, lora_alpha=8, image_precision="float16")
    )
    whole = AutoUIPolicy(load_base(base_directory), PolicySettings(lora_rank=4, lora_alpha=8))
    half = agent.image_features(png(0)).tokens
    assert half.dtype == torch.float16
    assert torch.equal(half, whole.image_features(png(0)).tokens.half())
    shake(agent, 1)
    decisions = decide(agent, 8)
    found = score(agent, prompts_of(agent, 8), [d.action_ids for d in decisions])
    ratios = np.exp(found.logprob.detach().numpy() - [d.logprob for d in decisions])
    assert np.allclose(ratios, 1.0, atol=1e-4)


def test_a_row_is_the_same_alone_and_in_a_batch(agent: AutoUIPolicy) -> None:
    shake(agent, 1)
    together = decide(agent, 8)
    for i, prompt in enumerate(prompts_of(agent, 8)):
        (alone,) = agent.decide([png(i)], [prompt], FULL, [i])
        assert alone.action_ids == together[i].action_ids
        assert math.isclose(alone.logprob, together[i].logprob, abs_tol=1e-4)


def test_equal_seeds_give_equal_actions_and_other_seeds_others(agent: AutoUIPolicy) -> None:
    assert decide(agent, 6) == decide(agent, 6)
    assert [d.action_ids for d in decide(agent, 6)] != [d.action_ids for d in decide(agent, 6, first_seed=50)]


def test_samples_follow_the_distribution_that_is_recorded(agent: AutoUIPolicy) -> None:
    """With one prompt and many seeds, an action occurs as often as exp(logprob) says, within 4 standard errors."""
    agent.model.t5.shared.weight.data.mul_(8.0)  # random weights are near uniform; peaked ones repeat actions
    count = 600
    prompt = prompts_of(agent, 1)[0]
    decisions = [
        d for s in range(0, count, 50) for d in agent.decide([png(0)] * 50, [prompt] * 50, FULL, range(s, s + 50))
    ]
    firsts = {d.action_ids: d for d in decisions}
    for ids, decision in firsts.items():
        seen, p = sum(d.action_ids == ids for d in decisions), math.exp(decision.logprob)
        if p * count >= 5:
            assert abs(seen - p * count) < 4 * math.sqrt(count * p * (1 - p))


def test_greedy_takes_the_likeliest_token_whatever_the_seed(agent: AutoUIPolicy) -> None:
    shake(agent, 2)
    first, second = decide(agent, 4, None), decide(agent, 4, None, first_seed=9)
    assert first == second
    cold = decide(agent, 4, Sampling(1e-6))
    assert [d.action_ids for d in cold] == [d.action_ids for d in first]


def test_actions_end_and_hold_no_padding(agent: AutoUIPolicy) -> None:
    for decision in decide(agent, 64):
        assert decision.action_ids[-1] == END
        assert decision.action_ids.count(END) == 1
        assert PAD not in decision.action_ids
        assert len(decision.action_ids) <= agent.tokenizer.action_length
        assert agent.tokenizer.decode_action(decision.action_ids) == decision.action


def test_the_forced_end_counts_neither_in_logprob_nor_in_entropy(agent: AutoUIPolicy) -> None:
    longest = tuple(agent.tokenizer.tokens.index("red") for _ in range(agent.tokenizer.action_length - 1))
    prompts = prompts_of(agent, 1)
    whole, cut = score(agent, prompts, [(*longest, END)]), score(agent, prompts, [longest])
    assert torch.allclose(whole.logprob, cut.logprob)
    assert torch.allclose(whole.entropy, cut.entropy)


def test_the_entropy_of_greedy_actions_is_that_of_all_tokens(agent: AutoUIPolicy) -> None:
    shake(agent, 1)
    taken = decide(agent, 8, None)
    found = score(agent, prompts_of(agent, 8), [each.action_ids for each in taken])
    assert np.allclose(found.entropy.detach().numpy(), [each.entropy for each in taken], atol=1e-4)


def test_score_trains_the_adapter_alone(agent: AutoUIPolicy) -> None:
    shake(agent, 3)
    actions = [agent.tokenizer.encode_action(Action(ActionKind.BACK))] * 2
    optimiser = torch.optim.SGD([p for p in agent.model.parameters() if p.requires_grad], lr=0.05)
    before = score(agent, prompts_of(agent, 2), actions).logprob.sum()
    (-before).backward()
    optimiser.step()
    assert score(agent, prompts_of(agent, 2), actions).logprob.sum() > before
    assert all(parameter.grad is None for parameter in agent.model.vision.parameters())


def test_score_shapes(agent: AutoUIPolicy) -> None:
    prompts, tokens = prompts_of(agent, 3), len(agent.image_features(png(0)).tokens)
    logprob, entropy, states, mask = score(agent, prompts, [(END,)] * 3)
    length = tokens + max(map(len, prompts))
    assert logprob.shape == entropy.shape == (3,)
    assert states.shape == (3, length, agent.model.shape.d_model)
    assert mask.sum(1).tolist() == [tokens + len(prompt) for prompt in prompts]


def test_image_features_are_a_function_of_the_bytes(agent: AutoUIPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = agent.image_features(png(1)).tokens.clone()
    assert torch.equal(agent.image_features(png(1)).tokens, fresh)
    monkeypatch.setattr(agent, "_screens", ScreenCache(2, 1 << 20))
    for seed in range(5):
        agent.image_features(png(seed))
    assert len(agent._screens) == 2
    assert torch.equal(agent.image_features(png(1)).tokens, fresh)
    assert not torch.equal(agent.image_features(png(2)).tokens, fresh)


def test_a_screen_of_another_size_is_resized(agent: AutoUIPolicy) -> None:
    large, small = agent.image_features(png(1, 270, 600)), agent.image_features(png(1))
    assert large.tokens.shape == small.tokens.shape
    assert large.size == (270, 600)


def with_chunk(kind: bytes, data: bytes) -> bytes:
    """A PNG with one more chunk behind its pixels."""
    chunk = len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
    return png(0)[:-12] + chunk + png(0)[-12:]


@pytest.mark.parametrize(
    "data", [b"", b"no image", png(0)[:60], b"GIF89a" + b"\0" * 20, with_chunk(b"iCCP", b""), with_chunk(b"IHDR", b"")]
)
def test_a_screenshot_that_is_none_is_refused(agent: AutoUIPolicy, data: bytes) -> None:
    with pytest.raises(PolicyError, match="screenshot"):
        agent.decide([data], prompts_of(agent, 1), FULL, [0])


def test_a_huge_screenshot_is_refused_before_it_is_unpacked(
    agent: AutoUIPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    with pytest.raises(PolicyError, match="pixels"):
        agent.image_features(png(77))


def test_nothing_to_decide_is_fine(agent: AutoUIPolicy) -> None:
    assert agent.decide([], [], FULL, []) == []


@pytest.mark.parametrize("setting", [{"dialect": "json"}, {"system_prompt": "Act."}, {"chat_template": "{{ 1 }}"}])
def test_settings_of_vision_language_models_are_refused(base_directory: Path, setting: dict[str, str]) -> None:
    with pytest.raises(PolicyError, match=f"policy.{next(iter(setting))}"):
        AutoUIPolicy(load_base(base_directory), PolicySettings(**setting))


@pytest.mark.parametrize("trains", ["lora", "all"])
def test_where_a_device_replaces_parameters_those_of_now_are_trained_and_act(
    base_directory: Path, trains: Literal["lora", "all"], replaced_parameters: None
) -> None:
    """Else nothing is trained, and a worker goes on with its first weights."""
    given = PolicySettings(lora_rank=4, lora_alpha=8, trains=trains)
    placed, other, fresh = (AutoUIPolicy(load_base(base_directory), given) for _ in range(3))
    before = list(placed.model.parameters())  # else their ids may be given again
    placed.place(torch.device("cpu"))
    assert not {id(each) for each in before} & {id(each) for each in placed.model.parameters()}
    assert {id(each) for each in placed.parameters().values()} <= {id(each) for each in placed.model.parameters()}
    asked = [png(0)], prompts_of(placed, 1), FULL, [1]
    first = placed.decide(*asked)
    with torch.no_grad():
        for name, parameter in other.parameters().items():
            if trains == "all" or ".lora_B." in name:
                parameter.add_(0.3)
    for agent in (placed, fresh):
        agent.load(other.adapter())
    assert placed.adapter() == other.adapter()
    assert placed.decide(*asked) == fresh.decide(*asked) != first
