"""The layers of a language part that LoRA goes on: those that mix what stands in different places of a prompt.

Nearly every decoder of the library calls them by the same four names. Others have more of them, or other ones, and are
in a table; where another one still has layers of attention without LoRA, the log names them. That is no error: such a
model learns by the other layers, and a run that has begun goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from torch import nn

from distrl.errors import PolicyError
from distrl.policy.vlm.model import language_layers

LOG = logging.getLogger("distrl.policy.vlm.targets")

USUAL: Final = ("q_proj", "k_proj", "v_proj", "o_proj")
LATENT: Final = (
    *("q_proj", "q_a_proj", "q_b_proj"),  # one, or two in place of it, by the configuration
    *("kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
)
"""Of attention over compressed keys and values."""
CONVOLVED: Final = ("q_proj", "k_proj", "v_proj", "in_proj", "out_proj")
"""Most layers have a short convolution in attention's place, between the last two."""
LINEAR: Final = (*USUAL, "in_proj_qkv", "out_proj")
"""Most layers have linear attention, of the last two. Its gates and decays stay as they are."""
BY_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "lfm2": CONVOLVED,
    "lfm2_moe": CONVOLVED,
    "mistral4": LATENT,
    "qwen3_5_moe_text": LINEAR,
    "qwen3_5_text": LINEAR,
}
"""By the `model_type` of the language part, as transformers 5.23 names the layers."""
MIXERS: Final = ("Attention", "DeltaNet", "Mamba", "ShortConv")
"""In the names of the library's classes for what mixes."""


def lora_targets(whole: Any, chosen: tuple[str, ...] | None) -> list[str]:
    """The names in the whole model of the layers that LoRA goes on. chosen: their last names; None: by the model's
    type. Raises PolicyError where there are none; logs those that are chosen and not there."""
    decoder, layers = whole.get_decoder(), language_layers(whole)
    by_type = BY_TYPE.get(str(decoder.config.model_type))
    wanted = chosen or by_type or USUAL
    found = [name for name in layers if name.rpartition(".")[2] in wanted]
    known = {name.rpartition(".")[2] for name in layers}
    missing = [name for name in wanted if name not in known]
    if not found:
        raise PolicyError(
            "policy.lora_targets",
            f"the language part has no layer {', '.join(missing)}",
            f"its layers: {', '.join(sorted(known))}",
        )
    if chosen and missing:  # no error, as a run may have begun so
        LOG.warning("the language part has no layer %s, as policy.lora_targets names it", ", ".join(missing))
    if chosen is None and by_type is None and (left := left_out(decoder, wanted)):
        LOG.warning(
            "%s has layers of attention that get no LoRA: %s; to train them too, name all in policy.lora_targets",
            type(decoder).__name__,
            ", ".join(left),
        )
    return found


def left_out(decoder: nn.Module, wanted: tuple[str, ...]) -> list[str]:
    """`Class.layer` of each linear layer of attention that is not of these last names."""
    mixers = [each for each in decoder.modules() if any(mark in type(each).__name__ for mark in MIXERS)]
    found = {
        f"{type(mixer).__name__}.{name}"
        for mixer in mixers
        for name, layer in mixer.named_children()
        if isinstance(layer, nn.Linear) and name not in wanted
    }
    return sorted(found)
