"""Randomness of the fold: every number comes from a seed derived from (run, learner.seed, purpose, update)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from distrl.config import Config


def seed_of(config: Config, purpose: str, u: int = 0) -> int:
    """A seed in [0, 2^63): equal for equal (run, learner.seed, purpose, u), on every machine."""
    digest = hashlib.sha256(f"{config.run}\n{config.learner.seed}\n{purpose}\n{u}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def generator(config: Config, purpose: str, u: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed_of(config, purpose, u)))


@contextmanager
def torch_seed(seed: int) -> Iterator[None]:
    """Within, torch's draws (dropout, initial weights) follow from `seed`; the caller's generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
