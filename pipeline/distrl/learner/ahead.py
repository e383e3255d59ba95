"""Screenshots looked at before the fold asks for their features, on one thread beside that of the gradient steps.

    Screens ─▶ came ─▶ queue ─▶ one thread ─▶ Features.look_ahead ─▶ the fold finds them

A screenshot is looked at alone and on `learner.torch_threads` threads, there as in the fold, so its features have the
same bits and it does not matter which were ready. The fold asks again for what cannot be fetched, and skips what is no
image, as it does without this.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from distrl.learner.screens import Screens
from distrl.policy.features import Features, Images
from distrl.types import ObjectRef


class LookAhead:
    """Owns `screens` and a thread. Used by one thread, the learner's; after `close` nothing more is begun."""

    def __init__(self, images: Images) -> None:
        """images: of the store; called from several threads."""
        self.screens = Screens(images, came=self._came)
        self._pool = ThreadPoolExecutor(1, "look")
        self._features: Features | None = None

    def look_for(self, features: Features | None) -> None:
        """From now on, look at what comes for `features`; None: leave it to who loads it."""
        self._features = features

    def close(self) -> None:
        """End the threads, each when its request or its look has ended."""
        self.screens.close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _came(self, ref: ObjectRef) -> None:
        with suppress(RuntimeError):  # it is closed
            self._pool.submit(self._look, ref)

    def _look(self, ref: ObjectRef) -> None:
        if self._features is not None:
            self._features.look_ahead(ref, lambda: self.screens.peek(ref))
