"""Where the screenshots of drawn steps lie among the features in memory."""

from __future__ import annotations

import numpy as np

from distrl.policy.feature_rows import Handles
from distrl.policy.feature_store import FeatureStore
from distrl.replay.circular import CircularBuffer, Rows


def screens_of(rows: Rows, buffer: CircularBuffer, store: FeatureStore) -> Handles:
    """(B,) the handles of their features; NOWHERE for what is not in memory.

    Each transition's name is looked up once, and again where the handle that the buffer has of it no longer holds.
    """
    slots = rows.slots
    known: Handles = buffer.screens[slots]
    stale = np.flatnonzero(~store.holds(known))
    if len(stale):
        unknown = Rows(rows.layout, rows.owner[stale], rows.steps[stale])
        known[stale] = store.handles(entry.steps[step].screenshot.sha256 for entry, step in unknown)
        buffer.screens[slots[stale]] = known[stale]
    return known
