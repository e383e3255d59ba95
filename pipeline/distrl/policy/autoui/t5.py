"""T5 as a policy acts with it: without gradients or dropout, a token at a time, with the keys and values of all that
was read and written.

It computes what `T5ForConditionalGeneration` does, from the model's own weights. The library's forward pass with its
cache would do, but for the shipped model most of its time is spent between the layers, not in them, and as much again
in LoRA's small products beside each large one. Symbols: B rows, S encoder positions, d the model's width, h heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, cast

import torch
import torch.nn.functional as F
from peft.tuners.lora import LoraLayer
from torch import Tensor, nn
from transformers import T5ForConditionalGeneration

from distrl.policy.autoui.tokenizer import PAD

MERGED_BYTES: Final = 64 << 20
"""Most bytes of weights with LoRA merged into them. A large model's time is spent in the large products, and a second
copy of its weights would cost more than it saves."""

Part = Callable[[Tensor], Tensor]
Cached = tuple[Tensor, Tensor]
"""Keys and values, (B, h, positions, d_kv)."""


class _Attention(NamedTuple):
    norm: Part
    q: Part
    k: Part
    v: Part
    o: Part


class _Feeding(NamedTuple):
    norm: Part
    dense: Part


class ActingT5:
    """A T5 with its weights as they are now; once they change, another one is to be made.

    With LoRA on weights in float32, of `MERGED_BYTES` at most, W + scale · B A is computed here, once. Else LoRA stays
    beside the weights, as the learner has it.
    """

    def __init__(self, t5: T5ForConditionalGeneration) -> None:
        encoder, decoder = cast(Any, t5.encoder), cast(Any, t5.decoder)
        self.model: Any = t5
        self.heads: int = encoder.block[0].layer[0].SelfAttention.n_heads
        self.places: Any = decoder.block[0].layer[0].SelfAttention
        """The layer whose `compute_bias` gives the decoder's position bias."""
        merged = _merges(t5)
        self.decoding = [
            (
                _attention(own.SelfAttention, own.layer_norm, merged),
                _attention(across.EncDecAttention, across.layer_norm, merged),
                _Feeding(_norm(dense.layer_norm), dense.DenseReluDense),
            )
            for own, across, dense in (block.layer for block in decoder.block)
        ]
        self.norm = _norm(decoder.final_layer_norm)
        self._reading = [
            (
                _attention(own.SelfAttention, own.layer_norm, merged),
                _Feeding(_norm(dense.layer_norm), dense.DenseReluDense),
            )
            for own, dense in (block.layer for block in encoder.block)
        ]
        self._read_norm = _norm(encoder.final_layer_norm)
        self._read_places = encoder.block[0].layer[0].SelfAttention

    def encode(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """(B, S, d) states of embeddings (B, S, d), of which `mask` (B, S) of 0 and 1 hides some."""
        length = inputs.shape[1]
        bias = self._read_places.compute_bias(length, length) + hidden(mask, inputs.dtype)
        x = inputs
        for attention, feeding in self._reading:
            normed = attention.norm(x)
            known = self.by_head(attention.k(normed)), self.by_head(attention.v(normed))
            x = x + attention.o(self.attended(attention.q(normed), known, bias))
            x = x + feeding.dense(feeding.norm(x))
        return self._read_norm(x)

    def by_head(self, projected: Tensor) -> Tensor:
        """(B, positions, h · d_kv) to (B, h, positions, d_kv)."""
        return projected.view(*projected.shape[:2], self.heads, -1).transpose(1, 2)

    def attended(self, queries: Tensor, known: Cached, bias: Tensor) -> Tensor:
        """(B, positions, h · d_kv). T5 does not scale its scores."""
        found = F.scaled_dot_product_attention(self.by_head(queries), *known, attn_mask=bias, scale=1.0)
        return found.transpose(1, 2).flatten(2)


class T5Decoder:
    """`distrl.policy.writing.Decoder`."""

    def __init__(
        self, t5: ActingT5, states: Tensor, mask: Tensor, most: int, allowed: Callable[[Tensor], Tensor]
    ) -> None:
        """states: (B, S, d) of the encoder. mask: (B, S) of 0 and 1. most: tokens that a row will have, at most.
        allowed: rules out the logits of tokens that are never written."""
        self._t5 = t5
        self._allowed = allowed
        self._rows = len(states)
        self._hidden = hidden(mask, states.dtype)
        self._read = [(t5.by_head(across.k(states)), t5.by_head(across.v(states))) for _, across, _ in t5.decoding]
        self._written: list[Cached | None] = [None for _ in t5.decoding]
        self._bias: Tensor = t5.places.compute_bias(most, most)
        self._count = 0

    def first(self) -> Tensor:
        return self.following(self._hidden.new_full((self._rows,), PAD, dtype=torch.long))

    def following(self, tokens: Tensor) -> Tensor:
        t5, model = self._t5, self._t5.model
        x = model.decoder.embed_tokens(tokens)[:, None]
        self._count += 1
        bias = self._bias[:, :, self._count - 1 : self._count, : self._count]
        for place, (own, across, feeding) in enumerate(t5.decoding):
            normed = own.norm(x)
            before, now = self._written[place], (t5.by_head(own.k(normed)), t5.by_head(own.v(normed)))
            known = now if before is None else (torch.cat([before[0], now[0]], 2), torch.cat([before[1], now[1]], 2))
            self._written[place] = known
            x = x + own.o(t5.attended(own.q(normed), known, bias))
            x = x + across.o(t5.attended(across.q(across.norm(x)), self._read[place], self._hidden))
            x = x + feeding.dense(feeding.norm(x))
        x = t5.norm(x[:, 0])
        if model.config.scale_decoder_outputs:
            x = x * model.config.d_model**-0.5
        return self._allowed(model.lm_head(x))

    def keep(self, rows: Tensor) -> None:
        self._rows = len(rows)
        self._hidden = self._hidden[rows]
        self._read = [(keys[rows], values[rows]) for keys, values in self._read]
        self._written = [each and (each[0][rows], each[1][rows]) for each in self._written]


def hidden(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, 1, 1, S) what is added to the scores of positions that `mask` (B, S) hides by 0."""
    return ((1.0 - mask.to(dtype)) * torch.finfo(dtype).min)[:, None, None]


def _merges(t5: nn.Module) -> bool:
    layers = [each for each in t5.modules() if isinstance(each, LoraLayer)]
    weights = [cast(Tensor, cast(Any, each.get_base_layer()).weight) for each in layers]
    return all(each.dtype == torch.float32 for each in weights) and sum(each.nbytes for each in weights) <= MERGED_BYTES


def _attention(attention: Any, norm: Any, merged: bool) -> _Attention:
    parts = (_projection(layer, merged) for layer in (attention.q, attention.k, attention.v, attention.o))
    return _Attention(_norm(norm), *parts)


def _projection(layer: Any, merged: bool) -> Part:
    if not isinstance(layer, LoraLayer):
        weight = layer.weight
    elif not merged:
        return cast(Part, layer)
    else:
        lora: Any = layer
        (name,) = lora.active_adapters
        weight = lora.get_base_layer().weight + lora.scaling[name] * (
            lora.lora_B[name].weight @ lora.lora_A[name].weight
        )
    return lambda x: F.linear(x, weight)


def _norm(norm: Any) -> Part:
    weight, shape, epsilon = norm.weight, norm.weight.shape, norm.variance_epsilon
    return lambda x: F.rms_norm(x, shape, weight, epsilon)
