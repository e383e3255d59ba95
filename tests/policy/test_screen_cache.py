from __future__ import annotations

import torch
from distrl.policy.protocol import ImageFeatures
from distrl.policy.screen_cache import ScreenCache
from distrl.types import ScreenSize

TOKENS = 100
"""Bytes of each screenshot's."""


class Looked:
    def __init__(self) -> None:
        self.at: list[bytes] = []

    def __call__(self, png: bytes) -> ImageFeatures:
        self.at.append(png)
        return ImageFeatures(torch.zeros(TOKENS, dtype=torch.uint8), ScreenSize(1, 1))


def test_a_screen_is_looked_at_once_while_it_is_kept() -> None:
    cache, look = ScreenCache(2, 10 * TOKENS), Looked()
    first = cache.get(b"a", look)
    cache.get(b"b", look)
    assert cache.get(b"a", look) is first
    cache.get(b"c", look)  # b goes, which was used longer ago
    cache.get(b"a", look)
    cache.get(b"b", look)
    assert look.at == [b"a", b"b", b"c", b"b"]


def test_no_more_bytes_are_kept_than_it_may_but_for_the_newest() -> None:
    cache, look = ScreenCache(100, 3 * TOKENS), Looked()
    for number in range(50):
        cache.get(str(number).encode(), look)
        assert len(cache) * TOKENS == cache.nbytes <= 3 * TOKENS
    small = ScreenCache(100, TOKENS - 1)
    for name in (b"a", b"b"):
        small.get(name, look)
    assert len(small) == 1
