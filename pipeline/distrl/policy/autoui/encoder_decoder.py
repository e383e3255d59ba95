"""What the models of the AutoUI family share: a frozen part that looks, and a T5 that reads and writes.

The tiny stand-in (model.py) and the paper's own (`distrl.policy.autoui_t5`) differ in how they look and in how what
they see meets the words. Everything else, and the policy above them, is one.

Symbols: B rows, N image tokens of width w, S encoder positions, L prompt tokens, T action tokens, V vocabulary, d the
model's width.
"""

from __future__ import annotations

from typing import Final, Self, cast

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import T5ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput

from distrl.policy.autoui.t5 import ActingT5, T5Decoder
from distrl.policy.autoui.tokenizer import PAD

IMPOSSIBLE: Final = -1e9
"""Logit of PAD, which is never written: a drawn PAD could not be told from padding when the action is scored. Also of
embeddings that no token has."""


class EncoderDecoder(nn.Module):
    """Image tokens and prompt in, logits of the action's tokens out."""

    t5: T5ForConditionalGeneration
    """With `policy.precision: bfloat16` its frozen weights alone are of that type; the rest of a model is float32."""
    impossible: tuple[int, ...] = (PAD,)
    """Tokens that are never written."""

    @property
    def width(self) -> int:
        """d."""
        return self.t5.config.d_model

    @property
    def device(self) -> torch.device:
        return self.t5.shared.weight.device

    def language_parameters(self) -> dict[str, nn.Parameter]:
        """The parameters of `t5` except the token embeddings (and so without a head that shares them), by their names
        in the model."""
        embeddings = self.t5.shared.weight
        return {f"t5.{name}": each for name, each in self.t5.named_parameters() if each is not embeddings}

    def train(self, mode: bool = True) -> Self:
        """As nn.Module's, for all parts except `vision`: that is frozen, and another thread may be using it, so it
        never has dropout."""
        self.training = mode
        for name, part in self.named_children():
            part.train(mode and name != "vision")
        return self

    def look(self, picture: Image.Image) -> Tensor:
        """Image tokens (N, w) of one screenshot, whatever its size; no gradient."""
        raise NotImplementedError

    def encode(
        self, features: Tensor, prompts: Tensor, acting: ActingT5 | None = None, shown: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Encoder states (B, S, d) and their mask (B, S) of 0 and 1.

        features: (B, N, w). prompts: (B, L) ids, padded behind with PAD. acting: made of `t5`, to read without
        gradients or dropout; None: the library's encoder reads. shown: (B, N) of bool, the tokens that are of a
        screenshot, at least one in each row; None: all. Only a family that reads earlier screenshots is given it.
        """
        raise NotImplementedError

    def logits(self, states: Tensor, mask: Tensor, actions: Tensor) -> Tensor:
        """(B, T, V): the scores of each token of `actions` (B, T) given the tokens before it."""
        shifted = torch.cat([actions.new_full((len(actions), 1), PAD), actions[:, :-1]], dim=1)
        return self._decode(states, mask, shifted)

    def decoder(self, acting: ActingT5, states: Tensor, mask: Tensor, most: int) -> T5Decoder:
        """To write at most `most` tokens in each row, given what `encode` returned."""
        return T5Decoder(acting, states.to(self.t5.shared.weight.dtype), mask, most, self._allowed)

    def _read(self, inputs: Tensor, mask: Tensor, acting: ActingT5 | None) -> Tensor:
        """The T5 encoder's states (B, L, d) of embeddings (B, L, d)."""
        if acting is not None:
            return acting.encode(inputs, mask)
        return cast(Tensor, self.t5.encoder(inputs_embeds=inputs, attention_mask=mask).last_hidden_state)

    def _decode(self, states: Tensor, mask: Tensor, inputs: Tensor) -> Tensor:
        out = self.t5(
            encoder_outputs=BaseModelOutput(last_hidden_state=states.to(self.t5.shared.weight.dtype)),
            attention_mask=mask,
            decoder_input_ids=inputs,
            use_cache=False,
        )
        return self._allowed(out.logits)

    def _allowed(self, logits: Tensor) -> Tensor:
        return logits.float().index_fill(-1, torch.tensor(self.impossible, device=logits.device), IMPOSSIBLE)
