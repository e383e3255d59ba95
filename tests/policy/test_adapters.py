from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import pytest
import torch
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.adapters import WEIGHTS, LoraAdapter, check, write_peft
from distrl.policy.autoui.base import load_base, save_base
from distrl.policy.autoui.policy import AutoUIPolicy
from peft import PeftModel
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from policy.conftest import png, shake


def decisions(agent: AutoUIPolicy) -> list[float]:
    prompt = agent.tokenizer.encode_prompt("touch red", [])
    return [d.logprob for d in agent.decide([png(i) for i in range(3)], [prompt] * 3, None, [0, 1, 2])]


def test_a_fresh_adapter_changes_nothing(base_directory: Path, agent: AutoUIPolicy) -> None:
    base = load_base(base_directory)
    features, prompts = torch.randn(2, *agent.image_features(png(0)).tokens.shape), torch.tensor([[5, 9, 1], [9, 1, 0]])
    with torch.no_grad():
        expected = base.model.encode(features, prompts)[0]
        found = agent.model.encode(features, prompts)[0]
    assert torch.equal(found, expected)


def test_only_the_adapter_is_trainable(agent: AutoUIPolicy) -> None:
    trainable = {name for name, parameter in agent.model.named_parameters() if parameter.requires_grad}
    assert trainable == {name for name in dict(agent.model.named_parameters()) if "lora_" in name}
    assert not any("vision" in name for name in trainable)


def test_the_initial_adapter_depends_on_the_seed_alone(base_directory: Path, settings: PolicySettings) -> None:
    torch.manual_seed(5)
    first = AutoUIPolicy.open(base_directory, settings, seed=1).adapter()
    torch.manual_seed(6)
    assert AutoUIPolicy.open(base_directory, settings, seed=1).adapter() == first
    assert AutoUIPolicy.open(base_directory, settings, seed=2).adapter() != first


def test_equal_weights_give_equal_bytes_and_travel_whole(
    base_directory: Path, agent: AutoUIPolicy, settings: PolicySettings
) -> None:
    shake(agent, 1)
    data = agent.adapter()
    assert all(agent.adapter() == data for _ in range(5))
    other = AutoUIPolicy(load_base(base_directory), settings)
    assert decisions(other) != decisions(agent)
    other.load(data)
    assert decisions(other) == decisions(agent)
    assert other.adapter() == data


def test_an_adapter_of_another_base_is_refused(base_directory: Path, agent: AutoUIPolicy, tmp_path: Path) -> None:
    base = load_base(base_directory)
    with torch.no_grad():
        base.model.vision.row.add_(1.0)
    save_base(tmp_path, base.model, base.tokenizer, {})
    other = AutoUIPolicy(load_base(tmp_path), PolicySettings(lora_rank=4, lora_alpha=8))
    with pytest.raises(PolicyError, match="base_model_name_or_path"):
        agent.load(other.adapter())


@pytest.mark.parametrize(
    "other",
    [
        PolicySettings(lora_rank=2, lora_alpha=8),
        PolicySettings(lora_rank=4),
        PolicySettings(lora_targets=("q", "v"), lora_rank=4),
    ],
)
def test_an_adapter_of_other_settings_is_refused(
    base_directory: Path, agent: AutoUIPolicy, other: PolicySettings
) -> None:
    before = agent.adapter()
    with pytest.raises(PolicyError, match=r"its (r|lora_alpha|target_modules) is"):
        agent.load(AutoUIPolicy(load_base(base_directory), other).adapter())
    assert agent.adapter() == before


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x04K\x00.", b"\x10" + b"\0" * 7 + b"{" * 16])
def test_garbage_is_refused(agent: AutoUIPolicy, data: bytes) -> None:
    with pytest.raises(PolicyError, match="adapter"):
        agent.load(data)


def test_truncated_or_unnamed_or_half_an_adapter_is_refused(agent: AutoUIPolicy) -> None:
    data = agent.adapter()
    with pytest.raises(PolicyError):
        agent.load(data[:-10])
    with pytest.raises(PolicyError, match="no adapter of this project"):
        agent.load(save_tensors(load_tensors(data)))


@pytest.mark.parametrize("change", ["missing", "shape", "dtype", "nan", "inf", "-inf"])
def test_tensors_that_do_not_fit_are_refused_and_nothing_is_taken(agent: AutoUIPolicy, change: str) -> None:
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
        agent.load(save_tensors(tensors, metadata))
    assert agent.adapter() == before


def test_a_target_that_is_nowhere_beside_others_is_said(base_directory: Path, caplog: pytest.LogCaptureFixture) -> None:
    """PEFT asks for one of them alone."""
    made = AutoUIPolicy.open(base_directory, PolicySettings(lora_targets=("q", "vv")))
    assert all(".q.lora_" in name for name in made.parameters())
    assert "there is no layer vv" in caplog.text


@pytest.mark.parametrize("targets", [("nowhere",), ("q", "shared"), ("embed_tokens",), ("relative_attention_bias",)])
def test_targets_that_are_no_linear_layers_are_refused(base_directory: Path, targets: tuple[str, ...]) -> None:
    """PEFT would put weights on an embedding that nothing trains, and ship them."""
    with pytest.raises(PolicyError, match="lora_targets"):
        AutoUIPolicy.open(base_directory, PolicySettings(lora_targets=targets))


def test_a_second_adapter_is_refused(agent: AutoUIPolicy) -> None:
    with pytest.raises(PolicyError, match="already"):
        LoraAdapter(agent.model.t5, ["q"], PolicySettings(), agent.base_sha256, 0)


def test_parameters_are_named_in_a_fixed_order(agent: AutoUIPolicy) -> None:
    names = list(agent.parameters())
    assert names == sorted(names)
    assert len(names) == 2 * (2 * 2 + 2 * 4)


def test_peft_itself_loads_what_a_version_ships(base_directory: Path, agent: AutoUIPolicy, tmp_path: Path) -> None:
    shake(agent, 4)
    write_peft(agent.adapter(), tmp_path / "adapter")
    plain = load_base(base_directory).model
    theirs = PeftModel.from_pretrained(plain.t5, str(tmp_path / "adapter")).eval()
    ids = torch.tensor([[5, 9, 1], [9, 1, 0]])
    with torch.no_grad():
        expected = agent.model.t5(input_ids=ids, decoder_input_ids=ids).logits
        assert torch.equal(theirs(input_ids=ids, decoder_input_ids=ids).logits, expected)
    assert theirs.peft_config["default"].lora_alpha == 8
    assert (tmp_path / "adapter/adapter_model.safetensors").read_bytes() == agent.adapter()


def test_what_peft_saves_has_the_same_tensors(base_directory: Path, agent: AutoUIPolicy, tmp_path: Path) -> None:
    shake(agent, 5)
    write_peft(agent.adapter(), tmp_path / "ours")
    PeftModel.from_pretrained(load_base(base_directory).model.t5, str(tmp_path / "ours")).save_pretrained(
        str(tmp_path / "theirs")
    )
    ours, theirs = (
        load_tensors((tmp_path / side / "adapter_model.safetensors").read_bytes()) for side in ("ours", "theirs")
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_an_adapter_that_was_broken_off_is_none_yet(
    agent: AutoUIPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = list[int](), os.fsync

    def full(descriptor: int) -> None:
        if synced:  # the weights, after the config
            raise OSError(28, "No space left on device")
        synced.append(descriptor)
        sync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_peft(agent.adapter(), tmp_path / "adapter")
    assert not (tmp_path / "adapter" / WEIGHTS).exists()
    write_peft(agent.adapter(), tmp_path / "adapter")
    assert sorted(each.name for each in (tmp_path / "adapter").iterdir()) == ["adapter_config.json", WEIGHTS]


def test_what_is_written_is_on_disk_before_it_has_its_name(
    agent: AutoUIPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set[int](), os.fsync

    def noted(descriptor: int) -> None:
        sync(descriptor)
        synced.add(os.fstat(descriptor).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    write_peft(agent.adapter(), tmp_path)
    assert {file.stat().st_ino for file in tmp_path.iterdir()} == synced


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.float16])
def test_an_adapter_of_another_type_is_refused_where_no_model_is_loaded_too(
    agent: AutoUIPolicy, settings: PolicySettings, dtype: torch.dtype
) -> None:
    data = agent.adapter()
    (length,) = struct.unpack("<Q", data[:8])
    metadata = json.loads(data[8 : 8 + length])["__metadata__"]
    tensors = {name: tensor.to(dtype) for name, tensor in load_tensors(data).items()}
    with pytest.raises(PolicyError, match="weights are float32"):
        check(save_tensors(tensors, metadata), settings, agent.base_sha256)
    nested = save_tensors(load_tensors(data), dict.fromkeys(metadata, "[" * 5000))
    with pytest.raises(PolicyError, match="is no adapter of this project"):
        check(nested, settings, agent.base_sha256)
