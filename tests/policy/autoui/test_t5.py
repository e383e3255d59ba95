"""What acts computes what the library computes, with LoRA merged into the weights and beside them."""

from __future__ import annotations

import pytest
import torch
from distrl.config import PolicySettings
from distrl.policy.adapters import LoraAdapter
from distrl.policy.autoui import t5 as module
from distrl.policy.autoui.policy import AutoUIPolicy, pad
from distrl.policy.autoui.t5 import ActingT5
from distrl.policy.sampling import FULL
from transformers import T5Config, T5ForConditionalGeneration

from policy.conftest import png, shake


@pytest.fixture(params=[0, 64 << 20], ids=["beside", "merged"])
def merged_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "MERGED_BYTES", request.param)
    return int(request.param)


@pytest.mark.parametrize("more", [{}, {"feed_forward_proj": "gated-gelu", "relative_attention_num_buckets": 4}])
def test_states_are_the_librarys(merged_bytes: int, more: dict[str, object]) -> None:
    torch.manual_seed(0)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 24, "num_heads": 4, "num_layers": 2, "vocab_size": 30}
    t5 = T5ForConditionalGeneration(T5Config(**(sizes | more))).eval()
    with torch.no_grad():
        for parameter in t5.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    adapter = LoraAdapter(t5, ("q", "v"), PolicySettings(lora_rank=4, lora_alpha=8), "0" * 64, 0)
    with torch.no_grad():
        for parameter in adapter.parameters().values():
            parameter.normal_(std=0.3)
    inputs, mask = torch.randn(3, 9, 16), (torch.arange(9) < torch.tensor([9, 4, 6])[:, None]).long()
    acting = ActingT5(t5)
    with torch.no_grad():
        expected = t5.encoder(inputs_embeds=inputs, attention_mask=mask).last_hidden_state
        found = acting.encode(inputs, mask)
    for row, each in enumerate(mask.sum(1)):  # nobody reads the states of padding
        assert torch.allclose(found[row, :each], expected[row, :each], atol=1e-4)


def test_a_ratio_is_one_however_lora_is_computed(agent: AutoUIPolicy, merged_bytes: int) -> None:
    shake(agent, 1)
    prompts = [agent.tokenizer.encode_prompt("touch red shoes", [])] * 4
    drawn = agent.decide([png(place) for place in range(4)], prompts, FULL, range(4))
    found = _scored(agent, prompts, [each.action_ids for each in drawn])
    assert (found - torch.tensor([each.logprob for each in drawn])).abs().max() < 1e-4


def test_a_weight_that_changes_in_place_is_acted_with(agent: AutoUIPolicy) -> None:
    """As an optimiser changes it, and an adapter that is loaded."""
    prompts = [agent.tokenizer.encode_prompt("touch lamp", [])]
    shake(agent, 1)
    first, adapter = agent.decide([png(0)], prompts, None, [0])[0].logprob, agent.adapter()
    optimiser = torch.optim.AdamW(agent.parameters().values(), lr=0.1)
    for parameter in agent.parameters().values():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    (changed,) = agent.decide([png(0)], prompts, None, [0])
    assert abs(changed.logprob - first) > 1e-3
    assert abs(_scored(agent, prompts, [changed.action_ids]).item() - changed.logprob) < 1e-4
    agent.load(adapter)
    assert agent.decide([png(0)], prompts, None, [0])[0].logprob == first


def _scored(agent: AutoUIPolicy, prompts: list[tuple[int, ...]], actions: list[tuple[int, ...]]) -> torch.Tensor:
    """By the library's layers, with PEFT's."""
    tokens = torch.stack([agent.image_features(png(place)).tokens for place in range(len(prompts))])
    with torch.no_grad():
        states, mask = agent.model.encode(tokens, pad(prompts))
        logp = agent.model.logits(states, mask, pad(actions)).log_softmax(-1)
    chosen = logp.gather(-1, pad(actions)[..., None]).squeeze(-1)
    drawn = (pad(actions) != 0).float()
    drawn[:, agent.tokenizer.action_length - 1 :] = 0.0
    return (chosen * drawn).sum(1)
