from __future__ import annotations

import math
import zlib

import numpy as np
import pytest
import torch
from distrl import images
from distrl.errors import PolicyError
from distrl.policy import agent as agent_module
from distrl.policy.agent import Agent, Decision
from distrl.policy.vocabulary import END, PAD
from distrl.types import Action, ActionKind

from .conftest import png, shake


def prompts_of(agent: Agent, count: int) -> list[tuple[int, ...]]:
    goals = ["touch red shoes", "search for blue", "7", "touch lamp search for red shoes 7"]
    return [agent.codec.encode_prompt(goals[i % 4], [Action(ActionKind.BACK)] * (i % 3)) for i in range(count)]


def decide(agent: Agent, count: int, temperature: float | None = 1.0, first_seed: int = 0) -> list[Decision]:
    pngs = [png(i) for i in range(count)]
    return agent.decide(pngs, prompts_of(agent, count), temperature, range(first_seed, first_seed + count))


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
@pytest.mark.parametrize("rows", range(1, 9))
def test_ratio_is_one_at_equal_weights(agent: Agent, rows: int, temperature: float) -> None:
    shake(agent, rows)
    decisions = decide(agent, rows, temperature)
    features = torch.stack([agent.image_features(png(i)) for i in range(rows)])
    score = agent.score(features, prompts_of(agent, rows), [d.action_ids for d in decisions], temperature)
    ratios = np.exp(score.logprob.detach().numpy() - [d.logprob for d in decisions])
    assert np.allclose(ratios, 1.0, atol=1e-4)
    assert bool((score.entropy > 0).all())


def test_a_row_is_the_same_alone_and_in_a_batch(agent: Agent) -> None:
    shake(agent, 1)
    together = decide(agent, 8)
    for i, prompt in enumerate(prompts_of(agent, 8)):
        (alone,) = agent.decide([png(i)], [prompt], 1.0, [i])
        assert alone.action_ids == together[i].action_ids
        assert math.isclose(alone.logprob, together[i].logprob, abs_tol=1e-4)


def test_equal_seeds_give_equal_actions_and_other_seeds_others(agent: Agent) -> None:
    assert decide(agent, 6) == decide(agent, 6)
    assert [d.action_ids for d in decide(agent, 6)] != [d.action_ids for d in decide(agent, 6, first_seed=50)]


def test_samples_follow_the_distribution_that_is_recorded(agent: Agent) -> None:
    """With one prompt and many seeds, an action occurs as often as exp(logprob) says, within 4 standard errors."""
    agent.model.t5.shared.weight.data.mul_(8.0)  # random weights are near uniform; peaked ones repeat actions
    count = 600
    prompt = prompts_of(agent, 1)[0]
    decisions = [
        d for s in range(0, count, 50) for d in agent.decide([png(0)] * 50, [prompt] * 50, 1.0, range(s, s + 50))
    ]
    firsts = {d.action_ids: d for d in decisions}
    for ids, decision in firsts.items():
        seen, p = sum(d.action_ids == ids for d in decisions), math.exp(decision.logprob)
        if p * count >= 5:
            assert abs(seen - p * count) < 4 * math.sqrt(count * p * (1 - p))


def test_greedy_takes_the_likeliest_token_whatever_the_seed(agent: Agent) -> None:
    shake(agent, 2)
    first, second = decide(agent, 4, None), decide(agent, 4, None, first_seed=9)
    assert first == second
    cold = decide(agent, 4, 1e-6)
    assert [d.action_ids for d in cold] == [d.action_ids for d in first]


def test_actions_end_and_hold_no_padding(agent: Agent) -> None:
    for decision in decide(agent, 64):
        assert decision.action_ids[-1] == END
        assert decision.action_ids.count(END) == 1
        assert PAD not in decision.action_ids
        assert len(decision.action_ids) <= agent.codec.action_length
        assert agent.codec.decode_action(decision.action_ids) == decision.action


def test_the_forced_end_counts_neither_in_logprob_nor_in_entropy(agent: Agent) -> None:
    longest = tuple(agent.codec.tokens.index("red") for _ in range(agent.codec.action_length - 1))
    features = agent.image_features(png(0))[None]
    prompts = prompts_of(agent, 1)
    whole, cut = agent.score(features, prompts, [(*longest, END)]), agent.score(features, prompts, [longest])
    assert torch.allclose(whole.logprob, cut.logprob)
    assert torch.allclose(whole.entropy, cut.entropy)


def test_score_trains_the_adapter_alone(agent: Agent) -> None:
    shake(agent, 3)
    features = torch.stack([agent.image_features(png(i)) for i in range(2)])
    actions = [agent.codec.encode_action(Action(ActionKind.BACK))] * 2
    optimiser = torch.optim.SGD([p for p in agent.model.parameters() if p.requires_grad], lr=0.05)
    before = agent.score(features, prompts_of(agent, 2), actions).logprob.sum()
    (-before).backward()
    optimiser.step()
    assert agent.score(features, prompts_of(agent, 2), actions).logprob.sum() > before
    assert all(parameter.grad is None for parameter in agent.model.vision.parameters())


def test_score_shapes(agent: Agent) -> None:
    features = torch.stack([agent.image_features(png(i)) for i in range(3)])
    prompts = prompts_of(agent, 3)
    logprob, entropy, states, mask = agent.score(features, prompts, [(END,)] * 3)
    length = features.shape[1] + max(map(len, prompts))
    assert logprob.shape == entropy.shape == (3,)
    assert states.shape == (3, length, agent.model.shape.d_model)
    assert mask.sum(1).tolist() == [features.shape[1] + len(prompt) for prompt in prompts]


def test_image_features_are_a_function_of_the_bytes(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh = agent.image_features(png(1)).clone()
    assert torch.equal(agent.image_features(png(1)), fresh)
    monkeypatch.setattr(agent_module, "CACHED_SCREENS", 2)
    for seed in range(5):
        agent.image_features(png(seed))
    assert len(agent._screens) == agent_module.CACHED_SCREENS
    assert torch.equal(agent.image_features(png(1)), fresh)
    assert not torch.equal(agent.image_features(png(2)), fresh)


def test_a_screen_of_another_size_is_resized(agent: Agent) -> None:
    assert agent.image_features(png(1, 270, 600)).shape == agent.image_features(png(1)).shape


def with_chunk(kind: bytes, data: bytes) -> bytes:
    """A PNG with one more chunk behind its pixels."""
    chunk = len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")
    return png(0)[:-12] + chunk + png(0)[-12:]


@pytest.mark.parametrize(
    "data", [b"", b"no image", png(0)[:60], b"GIF89a" + b"\0" * 20, with_chunk(b"iCCP", b""), with_chunk(b"IHDR", b"")]
)
def test_a_screenshot_that_is_none_is_refused(agent: Agent, data: bytes) -> None:
    with pytest.raises(PolicyError, match="screenshot"):
        agent.decide([data], prompts_of(agent, 1), 1.0, [0])


def test_a_huge_screenshot_is_refused_before_it_is_unpacked(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    with pytest.raises(PolicyError, match="pixels"):
        agent.image_features(png(77))


def test_nothing_to_decide_is_fine(agent: Agent) -> None:
    assert agent.decide([], [], 1.0, []) == []
