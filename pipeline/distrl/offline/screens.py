"""Screenshots for an export: from the store, each fetched once while steps follow each other, and checked."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from distrl.images import ImageError, size
from distrl.store.objects import CorruptObjectError, MissingObjectError, is_reference
from distrl.types import ObjectRef

CACHED: Final = 64
"""Screenshots that are kept: a step often sees the screen of the one before it."""

Fetch = Callable[[ObjectRef], bytes]
"""The verified bytes of an object (`ObjectStore.get`)."""


class Screens:
    """The screenshots of one export. Raises StoreError where the store does not answer."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._cached: OrderedDict[ObjectRef, bytes | None] = OrderedDict()
        self.absent: set[str] = set()
        """Keys of those asked for that the store has no more, that are no PNG, or whose reference names no object."""

    def png(self, ref: ObjectRef) -> bytes | None:
        """Its bytes; None for one that is absent."""
        if ref not in self._cached:  # by the whole reference: one with a wrong size says nothing of another
            self._cached[ref] = self._read(ref)
            if len(self._cached) > CACHED:
                self._cached.popitem(last=False)
        return self._cached[ref]

    def _read(self, ref: ObjectRef) -> bytes | None:
        if not is_reference(ref):  # the store would refuse it, and with it the export of every range that has it
            self.absent.add(ref.key)
            return None
        try:
            png = self._fetch(ref)
            size(png)
        except (MissingObjectError, CorruptObjectError, ImageError):
            self.absent.add(ref.key)
            return None
        return png

    @property
    def summary(self) -> str:
        """How many are absent, for people; empty if none is."""
        return f"; {len(self.absent)} screenshots are not in the store, or no images" if self.absent else ""
