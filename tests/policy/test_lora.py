from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from distrl.config import Policy
from distrl.errors import PolicyError
from distrl.policy.agent import Agent
from distrl.policy.base import load_base, save_base
from distrl.policy.lora import adapter_bytes, attach, load_adapter, lora_parameters
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from .conftest import png, shake


def decisions(agent: Agent) -> list[float]:
    prompt = agent.codec.encode_prompt("touch red", [])
    return [d.logprob for d in agent.decide([png(i) for i in range(3)], [prompt] * 3, None, [0, 1, 2])]


def test_a_fresh_adapter_changes_nothing(base_directory: Path, agent: Agent) -> None:
    base = load_base(base_directory)
    features, prompts = torch.randn(2, *agent.image_features(png(0)).shape), torch.tensor([[5, 9, 1], [9, 1, 0]])
    with torch.no_grad():
        expected = base.model.encode(features, prompts)[0]
        found = agent.model.encode(features, prompts)[0]
    assert torch.equal(found, expected)


def test_only_the_adapter_is_trainable(agent: Agent) -> None:
    trainable = {name for name, parameter in agent.model.named_parameters() if parameter.requires_grad}
    assert trainable == {name for name in dict(agent.model.named_parameters()) if "lora_" in name}
    assert not any("vision" in name for name in trainable)


def test_the_initial_adapter_depends_on_the_seed_alone(base_directory: Path, settings: Policy) -> None:
    torch.manual_seed(5)
    first = adapter_bytes(attach(load_base(base_directory).model, settings, seed=1))
    torch.manual_seed(6)
    assert adapter_bytes(attach(load_base(base_directory).model, settings, seed=1)) == first
    assert adapter_bytes(attach(load_base(base_directory).model, settings, seed=2)) != first


def test_equal_weights_give_equal_bytes_and_travel_whole(base_directory: Path, agent: Agent, settings: Policy) -> None:
    shake(agent, 1)
    data = agent.adapter()
    assert all(agent.adapter() == data for _ in range(5))
    other = Agent(load_base(base_directory), settings)
    assert decisions(other) != decisions(agent)
    other.load(data)
    assert decisions(other) == decisions(agent)
    assert other.adapter() == data


def test_an_adapter_of_another_base_is_refused(base_directory: Path, agent: Agent, tmp_path: Path) -> None:
    base = load_base(base_directory)
    with torch.no_grad():
        base.model.vision.row.add_(1.0)
    save_base(tmp_path, base.model, base.codec, {})
    other = Agent(load_base(tmp_path), Policy(lora_rank=4, lora_alpha=8))
    with pytest.raises(PolicyError, match="base_model_sha256"):
        agent.load(other.adapter())


@pytest.mark.parametrize(
    "other", [Policy(lora_rank=2, lora_alpha=8), Policy(lora_rank=4), Policy(lora_targets=("q", "v"), lora_rank=4)]
)
def test_an_adapter_of_other_settings_is_refused(base_directory: Path, agent: Agent, other: Policy) -> None:
    before = agent.adapter()
    with pytest.raises(PolicyError, match="lora_"):
        agent.load(Agent(load_base(base_directory), other).adapter())
    assert agent.adapter() == before


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x04K\x00.", b"\x10" + b"\0" * 7 + b"{" * 16])
def test_garbage_is_refused(agent: Agent, data: bytes) -> None:
    with pytest.raises(PolicyError, match="adapter"):
        agent.load(data)


def test_truncated_or_unnamed_or_half_an_adapter_is_refused(agent: Agent) -> None:
    data = agent.adapter()
    with pytest.raises(PolicyError):
        agent.load(data[:-10])
    with pytest.raises(PolicyError, match="no adapter of this project"):
        agent.load(save_tensors(load_tensors(data)))


@pytest.mark.parametrize("change", ["missing", "shape", "dtype", "nan", "inf", "-inf"])
def test_tensors_that_do_not_fit_are_refused_and_nothing_is_taken(agent: Agent, change: str) -> None:
    before = agent.adapter()
    length = int.from_bytes(before[:8], "little")
    metadata = json.loads(before[8 : 8 + length])["__metadata__"]
    tensors = {name: value + 1 for name, value in load_tensors(before).items()}
    last = sorted(tensors)[-1]
    if change == "missing":
        del tensors[last]
    elif change == "shape":
        tensors[last] = tensors[last].T.contiguous()
    elif change == "dtype":
        tensors[last] = tensors[last].double()
    else:
        tensors[last][0, 0] = float(change)
    with pytest.raises(PolicyError, match="adapter"):
        load_adapter(agent.model, save_tensors(tensors, metadata))
    assert agent.adapter() == before


def test_unknown_targets_and_a_second_adapter_are_refused(base_directory: Path, agent: Agent) -> None:
    with pytest.raises(PolicyError, match="lora_targets"):
        attach(load_base(base_directory).model, Policy(lora_targets=("nowhere",)))
    with pytest.raises(PolicyError, match="already"):
        attach(agent.model, Policy())


def test_parameters_are_named_in_a_fixed_order(agent: Agent) -> None:
    names = list(lora_parameters(agent.model))
    assert names == sorted(names)
    assert len(names) == 2 * (2 * 2 + 2 * 4)
