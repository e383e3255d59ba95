"""Synthetic screens that no update has seen before, drawn in a process of their own while others are learned from."""

from __future__ import annotations

import multiprocessing
import random
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from typing import Final

from simphone.words import Words

from distrl.policy.autoui.pretraining.examples import Pair, TrainingScreen
from distrl.policy.autoui.pretraining.screens import draw_screens

CHUNK: Final = 512
"""Screens that are drawn at a time: 50 MB of pixels, a second of work."""
AHEAD: Final = 2
"""Chunks that are drawn before they are asked for."""


def fresh_screens(
    name: str, count: int, forbidden: frozenset[Pair], free: float, more: Words = ()
) -> Iterator[TrainingScreen]:
    """`count` screens, which depend on the arguments alone. name: of the stream, in place of a seed."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        drawn: deque[Future[list[TrainingScreen]]] = deque()
        for number, first in enumerate(range(0, count, CHUNK)):
            size = min(CHUNK, count - first)
            drawn.append(process.submit(_chunk, f"{name} {number}", size, forbidden, free, more))
            if len(drawn) > AHEAD:
                yield from drawn.popleft().result()
        while drawn:
            yield from drawn.popleft().result()


def _chunk(name: str, size: int, forbidden: frozenset[Pair], free: float, more: Words) -> list[TrainingScreen]:
    return draw_screens(size, random.Random(name), forbidden, free, more)
