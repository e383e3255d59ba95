"""Image tokens of screenshots, computed one image at a time and cached by sha256.

Only a cache: tokens are a pure function of an image's bytes, so its contents never change a result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from torch import Tensor

from distrl.compute import reproducible
from distrl.errors import PolicyError
from distrl.types import ObjectRef, Step, Trajectory

LOG = logging.getLogger("distrl.policy.features")

Images = Callable[[ObjectRef], bytes]
"""The bytes of a stored object, verified. Raises StoreError."""


class Features:
    """embed: PNG bytes -> tokens (N, d); raises PolicyError for bytes that are no image. threads: for torch."""

    def __init__(self, embed: Callable[[bytes], Tensor], threads: int) -> None:
        self._embed, self._threads = embed, threads
        self._tokens: dict[str, Tensor | None] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def load(self, refs: Iterable[ObjectRef], images: Images) -> None:
        """Load the tokens of all `refs`. Raises what `images` raises; those loaded before stay."""
        for ref in refs:
            if ref.sha256 in self._tokens:
                continue
            data = images(ref)
            try:
                with reproducible(self._threads):
                    self._tokens[ref.sha256] = self._embed(data)
            except PolicyError as error:  # the bytes are verified, so every process finds the same
                LOG.warning("%s is no readable screenshot: %s", ref.key, error)
                self._tokens[ref.sha256] = None

    def shows(self, ref: ObjectRef) -> bool:
        """Whether it is an image. It must be loaded."""
        return self._tokens[ref.sha256] is not None

    def readable(self, trajectory: Trajectory) -> bool:
        """Every step's screenshot is an image. They must be loaded."""
        return all(self.shows(step.screenshot) for step in trajectory.steps)

    def of(self, steps: Sequence[Step]) -> list[Tensor]:
        """The tokens of each step's screenshot, which must be loaded and readable."""
        found = [self._tokens[step.screenshot.sha256] for step in steps]
        return [tokens for tokens in found if tokens is not None]

    def keep(self, names: set[str]) -> None:
        """Forget every image whose sha256 is not in `names`."""
        self._tokens = {name: tokens for name, tokens in self._tokens.items() if name in names}
