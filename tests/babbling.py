"""A small base model that babbles: it says random actions of the grammar, whatever it sees.

Random weights write only nonsense, INVALID to a phone: nothing would ever be tapped, and no screen change. Where a test
needs a run with life in it, though nothing is to be learned, a hundred gradient steps on random actions do.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.policy import pad
from distrl.policy.autoui.tokenizer import PAD, WordTokenizer
from distrl.tasks.oracle import random_action
from distrl.types import Action, ActionKind
from simphone import words
from torch.nn import functional as F

CODEC = WordTokenizer(words.ALL)
STEPS = 120
BATCH = 64
TYPED = tuple(" ".join(pair) for pair in words.pairs(words.COLOURS, words.NOUNS))
STOP_SHARE = 0.08
"""Of actions that say COMPLETE, which the random hand never does: episodes of a dozen steps."""


def save_babbling(directory: Path, width: int, height: int, tower: tuple[int, ...]) -> None:
    """A base model of screens of that size (px), with every word of the phone. Always the same."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # layers this small are faster so, and many times faster where processors are busy
    torch.manual_seed(0)
    rng = random.Random(0)
    model = AutoUIModel(Shape(len(CODEC.tokens), width, height, tower, d_model=32, d_ff=64, heads=2))
    optimiser = torch.optim.AdamW(model.t5.parameters(), lr=1e-2)
    features = model.features(torch.randint(0, 256, (BATCH, 3, height, width), dtype=torch.uint8))
    prompts = pad([CODEC.encode_prompt("open settings", ())] * BATCH)
    for _ in range(STEPS):
        actions = pad([CODEC.encode_action(_babble(rng)) for _ in range(BATCH)])
        logits = model.logits(*model.encode(features, prompts), actions)
        loss = F.cross_entropy(logits.flatten(0, 1), actions.flatten(), ignore_index=PAD)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    torch.set_num_threads(threads)
    save_base(directory, model, CODEC, {"how": "it babbles: alike is what matters here"})


def _babble(rng: random.Random) -> Action:
    return Action(ActionKind.COMPLETE) if rng.random() < STOP_SHARE else random_action(rng, TYPED)
