"""Image tokens of screenshots, computed one image at a time and cached by sha256.

Only a cache: tokens are a pure function of an image's bytes, so neither its contents nor where they lie ever changes a
result. They lie in memory, and beyond its bound in the folder that is kept for the next start (feature_folder.py), or
where there is none in a file of this process (feature_store.py): what lies in the folder is not written again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from distrl.accelerator import looking
from distrl.compute import Compute, reproducible
from distrl.errors import PolicyError
from distrl.policy.feature_folder import SETTING, FeatureFolder
from distrl.policy.feature_rows import Handles
from distrl.policy.feature_store import FeatureFileError, FeatureStore
from distrl.policy.protocol import ImageFeatures, TrajectoryStep
from distrl.policy.stacking import StackedFeatures
from distrl.types import ObjectRef, ScreenSize, Trajectory

LOG = logging.getLogger("distrl.policy.features")

Images = Callable[[ObjectRef], bytes]
"""The bytes of a stored object, verified. Raises StoreError."""


AHEAD_BYTES: Final = 128 << 20
"""Most bytes of tokens that are computed ahead and not loaded yet. Beyond it, tokens are computed when they are
loaded."""


class Features:
    """Image tokens by screenshot. Used by one thread, but `look_ahead`."""

    def __init__(self, embed: Callable[[bytes], ImageFeatures], threads: int, store: FeatureStore) -> None:
        """embed: of a PNG; raises PolicyError for bytes that are no image. threads: for torch."""
        self._embed, self._threads, self.store = embed, threads, store
        self._sizes: dict[str, ScreenSize] = {}
        """By sha256, of all that are loaded. What the store does not have is read from the folder each time."""
        self._unreadable: set[str] = set()
        self._folder: FeatureFolder | None = None
        self._at_hand: Callable[[ObjectRef], bool] | None = None
        self._progress: Callable[[], object] = lambda: None
        self._looking = threading.Lock()
        """Held while a screenshot is looked at: a policy has one user at a time."""
        self._ahead: dict[str, ImageFeatures | PolicyError] = {}
        """By sha256: looked at ahead, and not loaded; an error for what is no image."""
        self._look_bytes = 0
        """Of the last one ahead; those of one model have about one size."""

    @property
    def is_kept(self) -> bool:
        """Whether they are kept in a folder that outlives this process."""
        return self._folder is not None

    def keep_in(self, folder: FeatureFolder) -> None:
        """From now on, read features from `folder` where it has them, and keep there those that are computed."""
        self._folder = folder

    def report_to(self, progress: Callable[[], object]) -> None:
        """From now on, call `progress` with each screenshot that is loaded."""
        self._progress = progress

    def assign_by(self, at_hand: Callable[[ObjectRef], bool]) -> None:
        """From now on, assign a screenshot to a rank whose `at_hand` is true for it: that rank has its bytes, or will
        have them first."""
        self._at_hand = at_hand

    def __len__(self) -> int:
        return len(self._sizes) + len(self._unreadable)

    def load(self, refs: Iterable[ObjectRef], images: Images, compute: Compute | None = None) -> None:
        """Load the tokens of all `refs`. Raises what `images` raises, StoreError where there is no room for them,
        ComputeError where memory is not enough, and ConfigError; those loaded before stay.

        compute: assigns those that any rank lacks to the ranks; every rank then calls `load` with the same `refs`.
        """
        missing = {ref.sha256: ref for ref in refs if not self.knows(ref)}.values()
        if self._folder is not None:
            self._folder.expect(ref.sha256 for ref in missing)
        if compute is None:
            for ref in missing:
                self._keep(ref, self._embedded(ref, images))
        else:
            lacking = compute.lacking(missing)
            compute.each(lacking, lambda ref: self._embedded(ref, images), self._keep, self._at_hand)

    def _embedded(self, ref: ObjectRef, images: Images) -> ImageFeatures | None:
        """None: it is no image."""
        found = self._found(ref, images)
        self._progress()
        return found

    def _found(self, ref: ObjectRef, images: Images) -> ImageFeatures | None:
        if self._folder is not None and (kept := self._folder.get(ref.sha256)) is not None:
            return kept
        try:
            found = self._looked(ref, images)
        except PolicyError as error:  # the bytes are verified, so every process finds the same
            LOG.warning("%s is no readable screenshot: %s", ref.key, error)
            return None
        if self._folder is not None:
            self._folder.put(ref.sha256, found)
        return found

    def _looked(self, ref: ObjectRef, images: Images) -> ImageFeatures:
        """The tokens, computed ahead or else now. Raises PolicyError for bytes that are not an image."""
        found = self._ahead.pop(ref.sha256, None)
        if found is None:
            data = images(ref)  # before the lock, so that look_ahead computes others while this one is fetched
            with self._looking:
                found = self._ahead.pop(ref.sha256, None) or self._look(data)
        if isinstance(found, PolicyError):
            raise found
        return found

    def look_ahead(self, ref: ObjectRef, image: Callable[[], bytes | None]) -> None:
        """Compute the tokens of a screenshot before it is loaded. Any thread may call it. If it is not an image, `load`
        reports that; after any other failure `load` computes the tokens itself.

        image: its bytes, verified; None where it is not wanted any more.
        """
        with self._looking:
            if self.knows(ref) or ref.sha256 in self._ahead or len(self._ahead) * self._look_bytes >= AHEAD_BYTES:
                return
            if (data := image()) is None:
                return
            try:
                self._ahead[ref.sha256] = found = self._look(data)
                self._look_bytes = found.tokens.nbytes
            except PolicyError as error:
                # a new error: the traceback of the one that was raised would keep the bytes in memory
                self._ahead[ref.sha256] = PolicyError(error.where, error.what, error.hint)
            except Exception as error:
                LOG.debug("%s is not looked at ahead: %s", ref.key, error)

    def _look(self, data: bytes) -> ImageFeatures:
        """The tokens of one screenshot, computed on the same number of torch threads by every caller, so that their
        bits are the same. Raises PolicyError for what is no image, ComputeError for too little memory."""
        with looking(), reproducible(self._threads):
            return self._embed(data)

    def _keep(self, ref: ObjectRef, found: ImageFeatures | None) -> None:
        if self.knows(ref):
            return
        if found is None:
            self._unreadable.add(ref.sha256)
            return
        if self._folder is not None and ref.sha256 in self._folder:
            self.store.hold(ref.sha256, found.tokens)
        else:
            self.store.put(ref.sha256, found.tokens)
        self._sizes[ref.sha256] = found.size

    def knows(self, ref: ObjectRef) -> bool:
        """Whether it is loaded."""
        return ref.sha256 in self._sizes or ref.sha256 in self._unreadable

    def needs_image(self, ref: ObjectRef) -> bool:
        """Whether `load` would ask for its bytes."""
        return not self.knows(ref) and (self._folder is None or ref.sha256 not in self._folder)

    def shows(self, ref: ObjectRef) -> bool:
        """Whether it is an image. It must be loaded."""
        if not self.knows(ref):
            raise KeyError(ref.sha256)
        return ref.sha256 in self._sizes

    def size(self, ref: ObjectRef) -> ScreenSize:
        """The size of a screenshot, which must be loaded and readable."""
        return self._sizes[ref.sha256]

    def readable(self, trajectory: Trajectory) -> bool:
        """Every step's screenshot is an image. They must be loaded."""
        return all(self.shows(step.screenshot) for step in trajectory.steps)

    def of(self, steps: Sequence[TrajectoryStep], earlier: int = 0) -> list[ImageFeatures]:
        """Those of each step's screenshot, with up to `earlier` screenshots before it; all must be loaded and readable.
        Raises FeatureFileError."""
        return [
            self._of(each.step.screenshot)._replace(earlier=tuple(map(self._of, each.earlier_screens(earlier))))
            for each in steps
        ]

    def at(self, handles: Handles, steps: Sequence[TrajectoryStep]) -> Sequence[ImageFeatures]:
        """Those of each step's screenshot, where the store found them before: what `of` gives, gathered at once where
        all are in memory."""
        tokens = self.store.gather(handles)
        if tokens is None:
            return self.of(steps)
        return StackedFeatures(tokens, [self.size(each.step.screenshot) for each in steps])

    def _of(self, ref: ObjectRef) -> ImageFeatures:
        size = self.size(ref)
        if ref.sha256 in self.store:
            return ImageFeatures(self.store.get(ref.sha256), size)
        if self._folder is None or (found := self._folder.get(ref.sha256)) is None:
            raise FeatureFileError(
                SETTING,
                f"features of {ref.key} that were there cannot be read back",
                f"start again: they are computed again, and nothing is lost. If it comes back, set {SETTING} to a "
                "folder on a sound disk that nothing else writes to",
            )
        return found

    def keep(self, names: set[str]) -> None:
        """Forget every image whose sha256 is not in `names`."""
        for name in self._sizes.keys() - names:
            if name in self.store:
                self.store.drop(name)
            del self._sizes[name]
        self._unreadable &= names
        for name in list(self._ahead):
            if name not in names or name in self._sizes:
                self._ahead.pop(name, None)
        if self._folder is not None:
            self._folder.keep(names)
