"""A T5 decoder that begins from GPT-2, as the paper's does (DistRL, appendix A.5.1).

The paper does not say how. What the two have in common is taken, layer by layer: self-attention, the scales of the
norms, and the feed-forward part where the T5's has no gate and the same width. GPT-2 divides scores by √d_kv, which T5
does not, so that goes into q. GPT-2 has biases, absolute places, no cross-attention and another vocabulary: there the
T5's own weights stay.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from torch import Tensor

from distrl.errors import PolicyError

PARTS: Final = ("attn.c_attn", "attn.c_proj", "ln_1", "ln_2", "mlp.c_fc", "mlp.c_proj")
"""What is taken of a layer of GPT-2."""


@dataclass(frozen=True, slots=True)
class Grafted:
    """tensors: by the T5's names. kept: of the decoder's layers, parameters that stay the T5's own."""

    tensors: Mapping[str, Tensor]
    kept: tuple[str, ...]


def grafted(t5: Mapping[str, Tensor], config: Mapping[str, Any], gpt2: Mapping[str, Tensor]) -> Grafted:
    """What of GPT-2 goes into the decoder of `t5`.

    t5: by published names. config: of T5. gpt2: by its names, with or without `transformer.`. Raises PolicyError where
    layers or widths differ, and where GPT-2 lacks a weight.
    """
    source = {name.removeprefix("transformer."): value for name, value in gpt2.items()}
    layers = int(config.get("num_decoder_layers") or config["num_layers"])
    width, inner = int(config["d_model"]), int(config["num_heads"]) * int(config["d_kv"])
    theirs = len({name.split(".")[1] for name in source if name.startswith("h.")})
    first = source.get("h.0.attn.c_attn.weight")
    if first is None or theirs != layers or tuple(first.shape) != (width, 3 * width) or inner != width:
        found = "no GPT-2" if first is None else f"{theirs} layers of width {first.shape[0]}"
        raise PolicyError(
            "--decoder",
            f"is {found}; the decoder has {layers} layers of width {width} and {inner} in its heads",
            "name a GPT-2 of the decoder's size: gpt2 for a base T5, gpt2-medium for a large one",
        )
    needed = [f"h.{number}.{part}.weight" for number in range(layers) for part in PARTS]
    if missing := [name for name in (*needed, "ln_f.weight") if name not in source]:
        raise PolicyError("--decoder", f"has no {missing[0]}", "name a whole GPT-2; download the checkpoint again")
    taken: dict[str, Tensor] = {}
    for number in range(layers):
        ours, layer = f"decoder.block.{number}.layer", f"h.{number}"
        q, k, v = source[f"{layer}.attn.c_attn.weight"].float().chunk(3, dim=1)
        attention = {
            "q": q / math.sqrt(int(config["d_kv"])),
            "k": k,
            "v": v,
            "o": source[f"{layer}.attn.c_proj.weight"].float(),
        }
        taken |= {f"{ours}.0.SelfAttention.{name}.weight": value.T.contiguous() for name, value in attention.items()}
        taken[f"{ours}.0.layer_norm.weight"] = source[f"{layer}.ln_1.weight"].float()
        taken[f"{ours}.2.layer_norm.weight"] = source[f"{layer}.ln_2.weight"].float()
        for name, part in (("wi", "c_fc"), ("wo", "c_proj")):
            place, value = f"{ours}.2.DenseReluDense.{name}.weight", source[f"{layer}.mlp.{part}.weight"].float().T
            if f"{ours}.2.DenseReluDense.wi.weight" in t5 and t5[place].shape == value.shape:
                taken[place] = value.contiguous()
    taken["decoder.final_layer_norm.weight"] = source["ln_f.weight"].float()
    return Grafted(taken, tuple(sorted(name for name in t5 if name.startswith("decoder.") and name not in taken)))
