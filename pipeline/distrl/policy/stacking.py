"""Features of several screenshots in one tensor, each alone or with those before it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from distrl.policy.protocol import ImageFeatures
from distrl.types import ScreenSize


class StackedFeatures(Sequence[ImageFeatures]):
    """The features of B screenshots, of one shape, which were gathered in one tensor."""

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


def stacked_frames(features: Sequence[ImageFeatures], most: int) -> tuple[Tensor, Tensor]:
    """(B, F N, w) the tokens of each row's screenshots, oldest first, and (B, F N) which of them are there.

    F = 1 + most. All are of one shape. A row with fewer than `most` earlier ones begins with zeros. Raises ValueError
    for one with more.
    """
    rows = [torch.stack([*(each.tokens for each in row.earlier), row.tokens]) for row in features]
    if max(map(len, rows)) > 1 + most:
        raise ValueError(f"{max(map(len, rows)) - 1} earlier screenshots, {most} are read")
    frames = rows[0].new_zeros((len(rows), 1 + most, *rows[0].shape[1:]))
    shown = torch.zeros(frames.shape[:3], dtype=torch.bool)
    for place, row in enumerate(rows):
        frames[place, -len(row) :] = row
        shown[place, -len(row) :] = True
    return frames.flatten(1, 2), shown.flatten(1)
