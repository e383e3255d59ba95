"""The settings that decide the weights of a pre-trained base model."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of training. batch: screens in an update. lr: the highest learning rate, reached after `warmup`
    updates; final_lr: the share of it at the end."""

    updates: int
    batch: int
    lr: float
    warmup: int = 40
    final_lr: float = 0.03

    def rate(self, update: int) -> float:
        """Learning rate: a linear warm-up, then a cosine down to `final_lr` of the highest."""
        cosine = 0.5 * (1 + math.cos(math.pi * update / self.updates))
        return self.lr * min(1.0, (update + 1) / self.warmup) * (self.final_lr + (1 - self.final_lr) * cosine)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the weights, beside the sources of the phone's words and screens."""

    seed: int = 0
    threads: int = 2
    screens_to_touch: int = 32768
    """The tower sees each of these screens once, and many examples are made of it. For reading, every screen is new."""
    free_to_read: float = 0.6
    """Share of labels that are any two words: from the pairs of apps the tower learns which word follows which, and of
    a pair that was held out it reads one word."""
    free_to_touch: float = 0.2
    reading: Stage = Stage(updates=6000, batch=32, lr=4e-3)
    acting: Stage = Stage(updates=6000, batch=64, lr=3e-3)
    touches_per_screen: int = 2
    by_words: int = 1600
    """Updates in which words alone say what is typed; from then on it needs a keyboard on the screen. Asked for from
    the beginning, copying is not learned."""
    uncluttered: int = 200
    """Updates over which clutter grows from none to all: what to copy is learned at once from bare sentences, and late
    from cluttered ones."""
    weight_decay: float = 0.01
    grad_norm: float = 1.0
    tower: tuple[int, ...] = (16, 32, 64, 160)
    beside: int = 1
    sharpness: float = 2.0
    """Inverse temperature of what is read. At 1, with 508 words in 96 dimensions, a token that holds two words could
    not say so: the other words would take half of the probability."""
    seeks: bool = True
    d_model: int = 96
    d_ff: int = 256
    layers: int = 2
    heads: int = 8
    d_kv: int = 24
    dropout: float = 0.0
