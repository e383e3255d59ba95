"""T5's decoder as a policy acts with it: a token at a time, with the keys and values of all that was read and written.

It computes what `T5ForConditionalGeneration` does, with the model's own layers, LoRA on them included. The library's
forward pass with its cache would do, but for the shipped model most of its time is spent between the layers, not in
them. Symbols: B rows, S encoder positions, h heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import T5ForConditionalGeneration

from distrl.policy.autoui.tokenizer import PAD

Cached = tuple[Tensor, Tensor]
"""Keys and values, (B, h, positions, d_kv)."""


class T5Decoder:
    """`distrl.policy.writing.Decoder`. Without dropout."""

    def __init__(
        self,
        t5: T5ForConditionalGeneration,
        states: Tensor,
        mask: Tensor,
        most: int,
        allowed: Callable[[Tensor], Tensor],
    ) -> None:
        """states: (B, S, d) of the encoder. mask: (B, S) of 0 and 1. most: tokens that a row will have, at most.
        allowed: rules out the logits of tokens that are never written."""
        self._t5: Any = t5
        self._allowed = allowed
        self._blocks: list[Any] = [block.layer for block in self._t5.decoder.block]
        self._rows = len(states)
        self._hidden = ((1.0 - mask.to(states.dtype)) * torch.finfo(states.dtype).min)[:, None, None]
        self._read = [_cached(layer[1].EncDecAttention, states) for layer in self._blocks]
        self._written: list[Cached | None] = [None for _ in self._blocks]
        self._bias: Tensor = self._blocks[0][0].SelfAttention.compute_bias(most, most)
        self._count = 0

    def first(self) -> Tensor:
        return self.following(self._hidden.new_full((self._rows,), PAD, dtype=torch.long))

    def following(self, tokens: Tensor) -> Tensor:
        x = self._t5.decoder.embed_tokens(tokens)[:, None]
        self._count += 1
        bias = self._bias[:, :, self._count - 1 : self._count, : self._count]
        for place, layer in enumerate(self._blocks):
            attention, normed = layer[0].SelfAttention, _normed(layer[0].layer_norm, x)
            before, now = self._written[place], _cached(attention, normed)
            known = now if before is None else (torch.cat([before[0], now[0]], 2), torch.cat([before[1], now[1]], 2))
            self._written[place] = known
            x = x + _attended(attention, normed, known, bias)
            x = x + _attended(
                layer[1].EncDecAttention, _normed(layer[1].layer_norm, x), self._read[place], self._hidden
            )
            x = x + layer[2].DenseReluDense(_normed(layer[2].layer_norm, x))
        x = _normed(self._t5.decoder.final_layer_norm, x[:, 0])
        if self._t5.config.scale_decoder_outputs:
            x = x * self._t5.config.d_model**-0.5
        return self._allowed(self._t5.lm_head(x))

    def keep(self, rows: Tensor) -> None:
        self._rows = len(rows)
        self._hidden = self._hidden[rows]
        self._read = [(keys[rows], values[rows]) for keys, values in self._read]
        self._written = [each and (each[0][rows], each[1][rows]) for each in self._written]


def _cached(attention: Any, states: Tensor) -> Cached:
    return _by_head(attention, attention.k(states)), _by_head(attention, attention.v(states))


def _by_head(attention: Any, projected: Tensor) -> Tensor:
    return projected.view(*projected.shape[:2], attention.n_heads, attention.key_value_proj_dim).transpose(1, 2)


def _attended(attention: Any, queries: Tensor, cached: Cached, bias: Tensor) -> Tensor:
    """(B, queries, d). T5 does not scale its scores."""
    scores = _by_head(attention, attention.q(queries)) @ cached[0].transpose(2, 3)
    found = (scores + bias).float().softmax(-1).type_as(scores) @ cached[1]  # as the library, in float32
    return cast(Tensor, attention.o(found.transpose(1, 2).flatten(2)))


def _normed(norm: Any, x: Tensor) -> Tensor:
    return F.rms_norm(x, x.shape[-1:], norm.weight, norm.variance_epsilon)
