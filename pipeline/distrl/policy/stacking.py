"""Features of several screenshots in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from distrl.policy.protocol import ImageFeatures
from distrl.types import ScreenSize


class StackedFeatures(Sequence[ImageFeatures]):
    """Those of B screenshots, of one shape, that were gathered at once."""

    def __init__(self, tokens: Tensor, sizes: Sequence[ScreenSize]) -> None:
        """tokens: (B, N, w). sizes: B, of the screenshots."""
        self.tokens, self.sizes = tokens, sizes

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> ImageFeatures: ...

    @overload
    def __getitem__(self, index: slice) -> StackedFeatures: ...

    def __getitem__(self, index: int | slice) -> ImageFeatures | StackedFeatures:
        if isinstance(index, slice):
            return StackedFeatures(self.tokens[index], self.sizes[index])
        return ImageFeatures(self.tokens[index], self.sizes[index])


def stacked(features: Sequence[ImageFeatures]) -> Tensor:
    """(B, N, w) the tokens of all, which are of one shape; those gathered at once are not copied again."""
    return features.tokens if isinstance(features, StackedFeatures) else torch.stack([each.tokens for each in features])
