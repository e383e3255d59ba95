"""What a policy has made of its last screenshots: a phone that waits shows the same one for many steps."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from distrl.policy.protocol import ImageFeatures


class ScreenCache:
    """Features by their screenshot's bytes, the last used `most` of them and no more than `most_bytes` of tokens, but
    always the newest. Used by one thread."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._known: OrderedDict[bytes, ImageFeatures] = OrderedDict()
        """By sha256; the least recently used first."""
        self.nbytes = 0
        """Of the tokens that are kept."""

    def __len__(self) -> int:
        return len(self._known)

    def get(self, png: bytes, look: Callable[[bytes], ImageFeatures]) -> ImageFeatures:
        """The features of `png`, by `look` where they are not known."""
        name = hashlib.sha256(png).digest()
        if (known := self._known.get(name)) is not None:
            self._known.move_to_end(name)
            return known
        found = self._known[name] = look(png)
        self.nbytes += found.tokens.nbytes
        while len(self._known) > 1 and (len(self._known) > self._most or self.nbytes > self._most_bytes):
            _, oldest = self._known.popitem(last=False)
            self.nbytes -= oldest.tokens.nbytes
        return found
