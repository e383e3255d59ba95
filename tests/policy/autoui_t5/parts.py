"""Published parts in small: a T5 with AutoUI's fusion, BLIP-2, GPT-2. Random weights; nothing is downloaded."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any, Final

import torch
from distrl.policy.autoui_t5.assemble import assemble
from distrl.policy.autoui_t5.model import GatedFusion
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import (
    Blip2VisionConfig,
    Blip2VisionModel,
    GPT2Config,
    GPT2Model,
    T5Config,
    T5ForConditionalGeneration,
    T5Tokenizer,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

SIGHT: Final = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "initializer_range": 0.2,
}
LINES: Final = (
    'Previous Actions: "action_type": "DUAL_POINT", "touch_point": "[0.8497, 0.5964]", "lift_point": "[-1.0, -1.0]", '
    '"typed_text": "" Goal: open the settings Action Plan: [TYPE,PRESS_HOME] ; Action Decision: "action_type": "TYPE"',
    "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 PRESS_BACK PRESS_ENTER STATUS_TASK_COMPLETE",
)
SPACE: Final = "\u2581"
"""T5's sign for the beginning of a word."""
PIECES: Final = 177
LONGEST: Final = 8
SPARE: Final = 5
"""Embeddings of no token, as T5 has them for a round number."""


@cache
def words() -> Any:
    """A tokenizer of T5's kind, of frequent pieces of LINES. They are counted and not trained: tokenizers' trainer does
    not make the same pieces twice, and a model learns from some of them what it does not from others."""
    counts = Counter(
        word[begin:end]
        for word in f" {' '.join(LINES)}".replace(" ", f" {SPACE}").split()
        for begin in range(len(word))
        for end in range(begin + 1, min(len(word), begin + LONGEST) + 1)
    )
    gain = {piece: count * len(piece) for piece, count in counts.items()}
    ranked = sorted(counts, key=lambda piece: (len(piece) > 1, -gain[piece], piece))  # every character is in
    total = sum(gain[piece] for piece in ranked[:PIECES])
    pieces = [(piece, math.log(gain[piece] / total)) for piece in ranked[:PIECES]]
    return T5Tokenizer(vocab=[("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *pieces], extra_ids=2)


def t5_settings(**more: Any) -> dict[str, Any]:
    """FLAN-T5's in small."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "num_decoder_layers": 2}
    flan = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "decoder_start_token_id": 0}
    return {"model_type": "t5", "vocab_size": len(words()) + SPARE, **sizes, **flan, **more}


def t5_tensors(settings: dict[str, Any]) -> dict[str, Tensor]:
    """As Auto-GUI saves its model: copies of the embeddings, a head of its own, and the fusion beside the T5."""
    torch.manual_seed(5)
    t5 = T5ForConditionalGeneration(T5Config(**settings))
    found = {name: value.detach().clone() for name, value in t5.named_parameters() if name != "lm_head.weight"}
    if not settings["tie_word_embeddings"]:
        found["lm_head.weight"] = torch.randn(settings["vocab_size"], settings["d_model"]) * 0.3
    for copy in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        found[copy] = found["shared.weight"].clone()
    fusion = GatedFusion(SIGHT["hidden_size"], settings["d_model"])
    return found | {name: value.detach() * 3 for name, value in fusion.named_parameters()}


def checkpoint(directory: Path, *, pickled: bool = False, fused: bool = True, **more: Any) -> Path:
    """Auto-GUI's, or a plain T5."""
    settings = t5_settings(**more)
    tensors = t5_tensors(settings)
    if not fused:
        tensors = {n: v for n, v in tensors.items() if not n.startswith(("image_dense", "mha_layer", "gate_dense"))}
    directory.mkdir(parents=True)
    if pickled:
        torch.save(tensors, directory / "pytorch_model.bin")
    else:
        save_file({name: value.contiguous() for name, value in tensors.items()}, directory / "model.safetensors")
    words().save_pretrained(directory)
    (directory / "config.json").write_text(json.dumps(settings))
    return directory


def blip2(directory: Path) -> Path:
    """Two files with an index, as BLIP-2 is published; the second holds what is not read."""
    directory.mkdir(parents=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(6)
        model = Blip2VisionModel(Blip2VisionConfig(**SIGHT))
        nn.init.normal_(model.embeddings.class_embedding, std=0.2)
    seen = {f"vision_model.{name}": value.detach() for name, value in model.named_parameters()}
    other = {"language_projection.weight": torch.ones(3)}
    weights = {}
    for number, tensors in enumerate((seen, other), 1):
        file = f"pytorch_model-{number:05}-of-00002.bin"
        torch.save(tensors, directory / file)
        weights |= dict.fromkeys(tensors, file)
    (directory / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weights}))
    (directory / "config.json").write_text(json.dumps({"model_type": "blip-2", "vision_config": SIGHT}))
    BlipImageProcessorPil(size={"height": 28, "width": 28}).save_pretrained(directory)
    return directory


def gpt2(directory: Path, **more: int) -> Path:
    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 16} | more
    GPT2Model(GPT2Config(**sizes)).save_pretrained(directory)
    return directory


def base_model(directory: Path, **more: Any) -> Path:
    """A base model assembled from the parts."""
    parts = directory / "parts"
    made = directory / "base"
    assemble(checkpoint(parts / "t5", **more), blip2(parts / "blip2"), made, None, 0)
    return made
