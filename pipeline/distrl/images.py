"""The largest screenshot that any part of distrl takes: phones, policy, judges and offline tools share one limit."""

from __future__ import annotations

from typing import Final

MAX_PIXELS: Final = 32_000_000
"""Width times height. A header may claim a size whose decoding would take all memory; no phone's screen has a half of
this. One limit for all: a screenshot that a worker took and the policy refused would spoil every episode it is in."""
