"""Screenshots for an export: from the store, each fetched once while steps follow each other, and checked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from distrl.images import ImageError, size
from distrl.store.objects import CorruptObjectError, MissingObjectError
from distrl.types import ObjectRef

CACHED: Final = 64
"""Screenshots that are kept: a step often sees the screen of the one before it."""

Fetch = Callable[[ObjectRef], bytes]
"""The verified bytes of an object (`ObjectStore.get`)."""


class Screens:
    """Raises StoreError where the store does not answer."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._cached: OrderedDict[str, bytes | None] = OrderedDict()
        self.absent: set[str] = set()
        """Keys of those that were asked for, and that the store has no more or that are no PNG."""

    def png(self, ref: ObjectRef) -> bytes | None:
        """Its bytes; None for one that is absent."""
        if ref.sha256 not in self._cached:
            self._cached[ref.sha256] = self._read(ref)
            if len(self._cached) > CACHED:
                self._cached.popitem(last=False)
        return self._cached[ref.sha256]

    def _read(self, ref: ObjectRef) -> bytes | None:
        try:
            png = self._fetch(ref)
            size(png)
        except (MissingObjectError, CorruptObjectError, ImageError):
            self.absent.add(ref.key)
            return None
        return png

    @property
    def told(self) -> str:
        """How many are absent, for people; empty if none is."""
        return f"; {len(self.absent)} screenshots are not in the store, or no images" if self.absent else ""
