"""The paper's policy network: about 1.3 B parameters with its image encoder (DistRL, appendix A.5.1).

Sources. The network: Zhan and Zhang, "You Only Look at Screens", arXiv 2309.11436, section 3, and their code,
cooelf/Auto-GUI, model.py of commit 0b37ebadc840e2f8f04ee92781e920715062a2d8. What it sees: BLIP-2's vision model
(EVA-CLIP-g, 1408 wide), of which the pooled output is taken (fetch_features.py there). DigiRL and DistRL show it the
present screen (DigiRL-agent/digirl, digirl/models/autoui_agent.py, `image_features[..., -1408:]`); the two frames of
1408 that both speak of are read by their critics, and Auto-GUI's option `use_img_history`, which stacks frames, is off
in its published runs. LoRA: q, k, v, o (ai-agents-2030/DistRL-open, distrl/models/autoui_agent.py).

Symbols as in `distrl.policy.autoui.encoder_decoder`; w is 1408, N the frames: 1 + `policy.history_screens`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import Blip2VisionConfig, Blip2VisionModel, T5Config, T5ForConditionalGeneration

from distrl.policy.autoui.encoder_decoder import EncoderDecoder
from distrl.policy.autoui.t5 import ActingT5
from distrl.policy.autoui.tokenizer import PAD

Pixels = Callable[[Image.Image], Tensor]
"""A screenshot as the image encoder takes it: (1, 3, H, W)."""


class GatedFusion(nn.Module):
    """Words look at the frames, and a gate mixes what they find into them, element by element.

    A = attention(words, frames, frames), one head
    g = sigmoid(W [words; A])
    fused = (1 − g) words + g A
    """

    def __init__(self, seen: int, width: int) -> None:
        """seen: w. width: d."""
        super().__init__()
        self.image_dense = nn.Linear(seen, width)
        self.mha_layer = nn.MultiheadAttention(width, num_heads=1, batch_first=True)
        self.gate_dense = nn.Linear(2 * width, width)

    def forward(self, words: Tensor, frames: Tensor, shown: Tensor | None = None) -> Tensor:
        """words: (B, L, d). frames: (B, N, w). shown: (B, N) of bool, the frames that are looked at; None: all.
        Returns (B, L, d). It does not depend on the order of the frames: the attention knows no places."""
        images = self.image_dense(frames)
        absent = None if shown is None else ~shown
        found, _ = self.mha_layer(words, images, images, key_padding_mask=absent, need_weights=False)
        gate = torch.sigmoid(self.gate_dense(torch.cat([words, found], dim=-1)))
        return cast(Tensor, (1 - gate) * words + gate * found)


class AutoUIT5(EncoderDecoder):
    """T5 whose encoder states meet the screen behind the encoder. LoRA goes on `t5`; the rest is frozen by its user.

    t5, vision: as config.json has them. Raises ValueError, TypeError and the like for what are no such settings.
    """

    def __init__(self, t5: Mapping[str, Any], vision: Mapping[str, Any]) -> None:
        super().__init__()
        self.vision = Blip2VisionModel(Blip2VisionConfig(**vision))
        config = T5Config(**t5)
        self.fusion = GatedFusion(self.vision.config.hidden_size, config.d_model)
        self.t5 = T5ForConditionalGeneration(config)
        for stack in (self.t5.encoder, self.t5.decoder):
            stack.embed_tokens = self.t5.shared
        # FLAN-T5's head is its own, which the library no longer says. Whether outputs are scaled before the head is
        # another question, which the library answers by the setting scale_decoder_outputs where there is one.
        if not t5.get("tie_word_embeddings", True):
            self.t5.lm_head = nn.Linear(config.d_model, config.vocab_size, bias=False)
        else:
            self.t5.lm_head.weight = self.t5.shared.weight
        self.pixels: Pixels | None = None
        """Set by whoever loads the model."""

    def limit(self, tokens: int) -> None:
        """Never write an embedding beyond the `tokens` that the tokenizer has: T5 fills its vocabulary up."""
        self.impossible = (PAD, *range(tokens, self.t5.config.vocab_size))

    def look(self, picture: Image.Image) -> Tensor:
        assert self.pixels is not None, "the model was loaded without its image processor"
        with torch.no_grad():
            return cast(Tensor, self.vision(pixel_values=self.pixels(picture).to(self.device)).pooler_output)

    def encode(
        self, features: Tensor, prompts: Tensor, acting: ActingT5 | None = None, shown: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        mask = (prompts != PAD).long()
        words = self._read(self.t5.shared(prompts), mask, acting)
        return self.fusion(words.float(), features, shown), mask


def published_name(name: str) -> str:
    """What Auto-GUI calls a parameter of the T5 or the fusion, which lie side by side there."""
    return name.removeprefix("t5.").removeprefix("fusion.")
