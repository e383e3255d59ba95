"""Which layers LoRA goes on, by the architecture of the language part. The library's models, without memory."""

from __future__ import annotations

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from distrl.policy.vlm.model import language_layers
from distrl.policy.vlm.targets import USUAL, left_out, lora_targets
from transformers import AutoModelForImageTextToText

from policy.vlm.models import FAMILIES

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
LATENT: dict[str, Any] = {
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 4,
}
GATES = {"in_proj_a", "in_proj_b", "in_proj_z"}
"""Of Qwen3.5's linear attention; they get none."""


def made(kind: str, config: str = "Config", **more: Any) -> Any:
    library: Any = transformers
    described = getattr(library, f"{kind}{config}")(**SMALL, **more)
    with torch.device("meta"):
        return getattr(library, f"{kind}ForCausalLM")(described)


def counted(whole: Any, chosen: tuple[str, ...] | None = None) -> Counter[str]:
    """How often LoRA goes on layers of each last name."""
    return Counter(name.rpartition(".")[2] for name in lora_targets(whole, chosen))


def lfm2() -> Any:
    return made("Lfm2", layer_types=["conv", "full_attention", "conv", "conv"])


def qwen35() -> Any:
    kinds = ["linear_attention"] * 3 + ["full_attention"]
    return made("Qwen3_5", "TextConfig", layer_types=kinds, head_dim=8)


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        (lfm2, {"q_proj": 1, "k_proj": 1, "v_proj": 1, "in_proj": 3, "out_proj": 4}),
        (qwen35, {"q_proj": 1, "k_proj": 1, "v_proj": 1, "o_proj": 1, "in_proj_qkv": 3, "out_proj": 3}),
        (
            lambda: made("DeepseekV3", q_lora_rank=8, **LATENT),
            dict.fromkeys(("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"), 4),
        ),
        (
            lambda: made("DeepseekV2", q_lora_rank=None, **LATENT),
            dict.fromkeys(("q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"), 4),
        ),
    ],
)
def test_every_layer_that_mixes_gets_lora(
    whole: Any, expected: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    model = whole()
    with caplog.at_level(logging.WARNING):
        assert counted(model) == Counter(expected)
    assert not caplog.records
    left = {each.rpartition(".")[2] for each in left_out(model.get_decoder(), tuple(expected))}
    assert left <= GATES


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tested_families_have_the_four_that_they_had(
    family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    FAMILIES[family](tmp_path)
    with caplog.at_level(logging.WARNING, "distrl"):
        whole = AutoModelForImageTextToText.from_pretrained(tmp_path)
        found = lora_targets(whole, None)
    assert found == [name for name in language_layers(whole) if name.rpartition(".")[2] in USUAL]
    assert len(found) == 8, "four in each of two layers"
    assert not [each for each in caplog.records if each.name.startswith("distrl")]


def test_attention_that_gets_none_is_named_and_what_a_user_names_wins(caplog: pytest.LogCaptureFixture) -> None:
    """OPT's output has another name, and OPT is in no table."""
    whole = made("OPT", ffn_dim=64, word_embed_proj_dim=32)
    with caplog.at_level(logging.WARNING):
        assert set(counted(whole)) == {"q_proj", "k_proj", "v_proj"}
    (record,) = caplog.records
    assert "get no LoRA: OPTAttention.out_proj;" in record.getMessage()
    assert "policy.lora_targets" in record.getMessage()
    caplog.clear()
    assert counted(whole, ("out_proj",)) == {"out_proj": 4}
    assert counted(lfm2(), ("q_proj",)) == {"q_proj": 1}
    assert not caplog.records
    assert counted(lfm2(), ("q_proj", "v_porj")) == {"q_proj": 1}
    assert "has no layer v_porj, as policy.lora_targets names it" in caplog.text
