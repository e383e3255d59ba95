"""Computes the features of screenshots before the fold needs them, on a thread beside the gradient steps.

    Screens ─▶ came ─▶ queue ─▶ one thread ─▶ Features.look_ahead ─▶ the fold finds them

Each screenshot is computed alone and on `learner.torch_threads` threads, here as in the fold. So its features have the
same bits, and results do not depend on which were ready. The fold itself handles what this cannot: it fetches again
what could not be fetched, and skips what is no image.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from distrl.learner.screens import Screens
from distrl.policy.features import Features, Images
from distrl.types import ObjectRef


class LookAhead:
    """Owns `screens` and a thread. Only the learner's thread calls it; after `close` nothing more is started."""

    def __init__(self, images: Images) -> None:
        """images: of the store; called from several threads."""
        self.screens = Screens(images, came=self._came)
        self._pool = ThreadPoolExecutor(1, "look")
        self._features: Features | None = None

    def look_for(self, features: Features | None) -> None:
        """From now on, compute features of arriving screenshots into `features`; None: compute none ahead."""
        self._features = features

    def close(self) -> None:
        """End the threads, each once its current request or computation has ended."""
        self.screens.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _came(self, ref: ObjectRef) -> None:
        with suppress(RuntimeError):  # the pool is shut down
            self._pool.submit(self._look, ref)

    def _look(self, ref: ObjectRef) -> None:
        if self._features is not None:
            self._features.look_ahead(ref, lambda: self.screens.peek(ref))
