"""The tiny AutoUI: a frozen vision tower, whose tokens a T5 encoder reads before the words, and a T5 decoder.

Symbols: B rows, N image tokens, L prompt tokens, T action tokens, V vocabulary, d the model's width.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from distrl.policy.autoui.encoder_decoder import EncoderDecoder
from distrl.policy.autoui.t5 import ActingT5
from distrl.policy.autoui.tokenizer import END, PAD

THIRD: Final = 8
"""How many layers of the tower reach up to the third convolution's activation. The tower has three convolutions or
more."""
STROKE: Final = 8
"""Pixels per side of a cell at that layer."""
GROUPS: Final = 8
"""Groups of every normalisation in the tower. Not batch normalisation: an image's tokens must depend on that image
alone."""
SOUGHT: Final = 4.0
"""Factor of the learned scores of other words (Fusion.seeks), so that they are learned in hundreds of updates."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a model; any of this architecture. Saved in the base model's config.json.

    image_width, image_height: pixels. tower: channels after each convolution except the last, which has d_model; each
    is a multiple of 8. All have stride 2, so that a token stands for 2^(len(tower) + 1) pixels. beside: convolutions
    after them, each of three tokens of a row. sharpness: of what is read in a token, as an inverse temperature. seeks:
    words look for others, too ("weather" for "browser").
    """

    vocabulary: int
    image_width: int
    image_height: int
    tower: tuple[int, ...] = (16, 32, 64, 96)
    d_model: int = 96
    d_ff: int = 256
    layers: int = 2
    heads: int = 4
    d_kv: int = 24
    dropout: float = 0.1
    beside: int = 0
    sharpness: float = 1.0
    seeks: bool = False

    @property
    def grid(self) -> tuple[int, int]:
        """(rows, columns) of image tokens."""
        stride = 2 ** (len(self.tower) + 1)
        return self.image_height // stride, self.image_width // stride


class Beside(nn.Module):
    """Adds to each token what stands to its left and right: a long word reaches over more pixels than a token sees."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.row = nn.Conv2d(channels, channels, (1, 3), padding=(0, 1))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, d, rows, columns) to the same."""
        return tokens + cast(Tensor, self.row(F.gelu(self.norm(tokens))))


class VisionTower(nn.Module):
    """Convolutions from pixels to a grid of tokens that know their place."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        channels = (*shape.tower, shape.d_model)
        layers: list[nn.Module] = [nn.Conv2d(3, channels[0], 3, 2, 1), nn.GELU()]
        for before, after in itertools.pairwise(channels):
            layers += [nn.Conv2d(before, after, 3, 2, 1), nn.GroupNorm(GROUPS, after), nn.GELU()]
        layers = layers[:-2]  # the last are normalised as tokens
        self.layers = nn.Sequential(*layers, *(Beside(shape.d_model) for _ in range(shape.beside)))
        self.norm = nn.LayerNorm(shape.d_model)
        rows, columns = shape.grid
        self.row = nn.Parameter(torch.randn(rows, 1, shape.d_model) * 0.5)
        self.column = nn.Parameter(torch.randn(1, columns, shape.d_model) * 0.5)

    def strokes(self, images: Tensor) -> Tensor:
        """uint8 (B, 3, H, W) to what the third convolution sees: (B, C, H / 8, W / 8), cells of a letter's size."""
        pixels = images.contiguous(memory_format=torch.channels_last).float().div_(127.5).sub_(1.0)
        return cast(Tensor, self.layers[:THIRD](pixels))

    def content_of(self, strokes: Tensor) -> Tensor:
        """What is drawn in each cell, wherever it is: `strokes` to (B, rows, columns, d)."""
        return cast(Tensor, self.norm(self.layers[THIRD:](strokes).permute(0, 2, 3, 1)))

    def content(self, images: Tensor) -> Tensor:
        """`content_of` the `strokes` of uint8 (B, 3, H, W)."""
        return self.content_of(self.strokes(images))

    def forward(self, images: Tensor) -> Tensor:
        """uint8 (B, 3, H, W) to tokens (B, N, d), N = rows x columns."""
        return (self.content(images) + self.row + self.column).flatten(1, 2)


class Fusion(nn.Module):
    """Words look for themselves on the screen: each takes up the place of the cells whose content it is.

    AutoUI lets language attend to the image and adds what it finds through a gate; here the attention's scores are
    those by which the tower learned to read, so that a word finds itself without learning where to look. A word scores
    higher where the words beside it in the sentence are read too: "8 pm" is found among twelve times because both of
    its words stand there, whether or not any training has named that time. What a word looks for beside itself is
    learned: another name of the same, or who does what it asks for.
    """

    def __init__(self, vocabulary: int, width: int, sharpness: float = 1.0, seeks: bool = False) -> None:
        super().__init__()
        self.sharpness = sharpness
        self.lexicon = nn.Parameter(torch.randn(vocabulary, width), requires_grad=False)  # what the tower reads against
        self.scale = nn.Parameter(torch.tensor(1.0))
        self.nowhere = nn.Parameter(torch.tensor(3.0))  # the score of not standing on the screen
        self.neighbours = nn.Parameter(torch.full((2, 2), 2.0))  # (word before, after) x (same cell, beside it)
        self.gate = nn.Linear(width, width, bias=False)
        nn.init.eye_(self.gate.weight)
        self.seeks = nn.Parameter(torch.zeros(vocabulary, width)) if seeks else None

    def read(self, content: Tensor) -> Tensor:
        """What stands in each cell: content (..., d) to scores (..., V), whose softmax is P(word | cell)."""
        return content @ self.lexicon.T * self.sharpness / math.sqrt(self.lexicon.shape[-1])

    def forward(self, words: Tensor, prompts: Tensor, content: Tensor, places: Tensor) -> Tensor:
        """words (B, L, d) of prompts (B, L), content (B, rows, columns, d), places (rows * columns, d) to words
        (B, L, d) that know where they stand."""
        read = self.read(content)
        scores = _columns(read, prompts) * self.scale
        if self.seeks is not None:
            others = self.seeks[prompts] * (SOUGHT / math.sqrt(self.seeks.shape[-1]))
            scores = scores + others @ content.flatten(1, 2).transpose(1, 2)
        same = read.softmax(-1)
        pooled = F.max_pool2d(same.permute(0, 3, 1, 2), (1, 3), 1, (0, 1)).permute(0, 2, 3, 1)
        for step, (here, beside) in zip((1, -1), self.neighbours, strict=True):
            neighbour = _shifted(prompts, step)
            scores = scores + here * _columns(same, neighbour) + beside * _columns(pooled, neighbour)
        scores = torch.cat([scores, self.nowhere.expand(*scores.shape[:2], 1)], dim=-1)
        found = scores.softmax(-1)[..., :-1] @ places
        return words + cast(Tensor, self.gate(found))


def _columns(grid: Tensor, words: Tensor) -> Tensor:
    """grid (B, rows, columns, V), words (B, L) to what the grid says of each word: (B, L, rows * columns)."""
    cells = grid.flatten(1, 2)
    return cells.gather(2, words[:, None, :].expand(-1, cells.shape[1], -1)).transpose(1, 2)


def _shifted(prompts: Tensor, step: int) -> Tensor:
    """The word before each (step 1) or after it (-1); PAD, which stands nowhere, beyond the ends."""
    moved = prompts.roll(step, dims=1)
    moved[:, 0 if step == 1 else -1] = PAD
    return moved


class AutoUIModel(EncoderDecoder):
    """The tiny stand-in, whose words find themselves on the screen before the encoder reads them.

    `vision` and `fusion` are frozen by whoever fine-tunes; LoRA goes on `t5`.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.vision = VisionTower(shape)
        self.fusion = Fusion(shape.vocabulary, shape.d_model, shape.sharpness, shape.seeks)
        self.t5 = T5ForConditionalGeneration(
            T5Config(
                vocab_size=shape.vocabulary,
                d_model=shape.d_model,
                d_kv=shape.d_kv,
                d_ff=shape.d_ff,
                num_layers=shape.layers,
                num_decoder_layers=shape.layers,
                num_heads=shape.heads,
                dropout_rate=shape.dropout,
                pad_token_id=PAD,
                eos_token_id=END,
            )
        )

    def look(self, picture: Image.Image) -> Tensor:
        return self.features(pixels(picture, self.shape.image_width, self.shape.image_height).to(self.device))[0]

    def features(self, images: Tensor) -> Tensor:
        """Image tokens (B, N, d) of uint8 screens (B, 3, H, W) or of one (3, H, W); no gradient."""
        with torch.no_grad():
            return cast(Tensor, self.vision(images if images.dim() == 4 else images.unsqueeze(0)))

    def encode(
        self, features: Tensor, prompts: Tensor, acting: ActingT5 | None = None, shown: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(B, N + L, d), (B, N + L). The image stands before the words so that padding moves nothing: T5 knows places
        only relative to each other."""
        places = (self.vision.row + self.vision.column).flatten(0, 1)
        content = (features - places).view(-1, *self.shape.grid, self.shape.d_model)
        words = self.fusion(self.t5.shared(prompts).float(), prompts, content, places)
        mask = torch.cat([prompts.new_ones(features.shape[:2]), (prompts != PAD).long()], dim=1)
        inputs = torch.cat([features, words], dim=1).to(self.t5.shared.weight.dtype)
        return self._read(inputs, mask, acting), mask


def pixels(colour: Image.Image, width: int, height: int) -> Tensor:
    """A picture in RGB as uint8 (3, height, width), resized where it has another size. It lies in memory as in the
    picture, colours of a pixel side by side, which is how the tower reads it."""
    if colour.size != (width, height):
        colour = colour.resize((width, height), Image.Resampling.BOX)
    return torch.from_numpy(np.array(colour)).permute(2, 0, 1)
