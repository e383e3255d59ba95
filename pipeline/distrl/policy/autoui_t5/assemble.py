"""Makes a base model from published parts: `distrl base-model autoui`.

checkpoint   Auto-GUI's (declare-lab/flan-alpaca-base trained further), or any T5 of Hugging Face, whose fusion is
             then drawn at random: the paper could not take AutoUI's weights, which know the test tasks (A.5.1)
vision       BLIP-2, such as Salesforce/blip2-opt-2.7b; only its vision model is read
decoder      a GPT-2, if the decoder is to begin from one
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import save_file
from torch import Tensor

from distrl.errors import PolicyError
from distrl.policy.autoui_t5.base import described_model, fill
from distrl.policy.autoui_t5.checkpoints import tensors_of
from distrl.policy.autoui_t5.directory import FORMAT, OPTIONAL, PIXELS, VISION, WEIGHTS, WORDS, identity
from distrl.policy.autoui_t5.gpt2 import Grafted, grafted
from distrl.policy.autoui_t5.model import GatedFusion
from distrl.policy.files import CONFIG, parsed, read, refuse_used

COPIES: Final = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
"""Other names of shared.weight, under which some checkpoints have it once more."""
DEAD: Final = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
"""Of old T5s, which neither the library nor Auto-GUI reads."""
FUSION: Final = ("image_dense.", "mha_layer.", "gate_dense.")
PREFIX: Final = "vision_model."
SHARED: Final = "shared.weight"
HEAD: Final = "lm_head.weight"


@dataclass(frozen=True, slots=True)
class Assembled:
    """drawn: the fusion has random weights. decoder: what became of GPT-2, if one was named."""

    base_sha256: str
    parameters: int
    drawn: bool
    decoder: Grafted | None


def assemble(checkpoint: Path, vision: Path, out: Path, decoder: Path | None, seed: int) -> Assembled:
    """Write a base model to the new directory `out`. seed: of a fusion that the checkpoint lacks.

    Deterministic given the arguments. Raises PolicyError, which names what does not fit.
    """
    refuse_used(out)
    t5 = _t5_config(checkpoint)
    sight = _vision_config(vision)
    words = [name for name in (WORDS, *OPTIONAL) if (checkpoint / name).is_file()]
    if WORDS not in words:
        raise PolicyError(
            str(checkpoint), f"has no {WORDS}", "load its tokenizer with AutoTokenizer, and `save_pretrained` it there"
        )
    copied = {name: read(checkpoint / name) for name in words} | {PIXELS: read(vision / PIXELS)}
    language = _language(checkpoint)
    if "scale_decoder_outputs" in t5:  # saved by transformers 5, which calls the head of every T5 its embeddings
        head, shared = language.get(HEAD), language.get(SHARED)
        t5["tie_word_embeddings"] = head is None or (shared is not None and torch.equal(head, shared))
        if t5["tie_word_embeddings"]:
            language.pop(HEAD, None)
    eyes = {name.removeprefix(PREFIX): value for name, value in _vision_tensors(vision).items()}
    with torch.device("meta"):
        model = described_model(t5, sight, str(checkpoint / CONFIG))
    drawn = not any(name.startswith(FUSION) for name in language)
    if drawn:
        language |= _fusion(model.vision.config.hidden_size, model.width, seed)
    graft = None
    if decoder is not None:
        graft = grafted(language, t5, tensors_of(decoder, lambda name: True))
        language |= graft.tensors
    fill(model, language, eyes, str(checkpoint))
    try:
        out.mkdir(parents=True, exist_ok=True)
        save_file({name: value.float().contiguous() for name, value in language.items()}, out / WEIGHTS)
        save_file({name: value.float().contiguous() for name, value in eyes.items()}, out / VISION)
        for name, content in copied.items():
            (out / name).write_bytes(content)
        (out / CONFIG).write_text(json.dumps({"format": FORMAT, "t5": t5, "vision": sight}, indent=1) + "\n")
    except OSError as error:
        raise PolicyError(str(out), f"cannot be written ({error})", "name a writable directory") from None
    return Assembled(identity(out), sum(each.numel() for each in model.parameters()), drawn, graft)


def _t5_config(checkpoint: Path) -> dict[str, Any]:
    config = parsed(read(checkpoint / CONFIG), checkpoint / CONFIG)
    if config.get("model_type") != "t5":
        raise PolicyError(str(checkpoint / CONFIG), f"is of {config.get('model_type')!r:.40}, not of a T5", "name a T5")
    return {name: value for name, value in config.items() if not name.startswith("_")}


def _vision_config(vision: Path) -> dict[str, Any]:
    config = parsed(read(vision / CONFIG), vision / CONFIG)
    found = config.get("vision_config", config if config.get("model_type") == "blip_2_vision_model" else None)
    if not isinstance(found, dict):
        raise PolicyError(
            str(vision / CONFIG), "describes no image encoder of BLIP-2", "name BLIP-2's directory with --vision"
        )
    return {name: value for name, value in found.items() if not name.startswith("_")}


def _language(checkpoint: Path) -> dict[str, Tensor]:
    found = tensors_of(checkpoint, lambda name: name != DEAD)
    shared = found.get(SHARED)
    for name in COPIES:
        copy = found.pop(name, None)
        if copy is not None and (shared is None or not torch.equal(copy, shared)):
            raise PolicyError(
                str(checkpoint), f"{name} is not shared.weight, as T5's embeddings are", "name another checkpoint"
            )
    return found


def _vision_tensors(vision: Path) -> dict[str, Tensor]:
    """Under BLIP-2's prefix, or without one where the directory holds the image encoder alone."""
    inside = tensors_of(vision, lambda name: name.startswith(PREFIX))
    return inside or tensors_of(vision, lambda name: True)


def _fusion(seen: int, width: int, seed: int) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return {name: value.detach() for name, value in GatedFusion(seen, width).named_parameters()}
