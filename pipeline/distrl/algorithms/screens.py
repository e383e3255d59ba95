"""Handles of the features that drawn steps read, cached in the replay buffer."""

from __future__ import annotations

import numpy as np

from distrl.policy.feature_rows import Handles
from distrl.policy.feature_store import FeatureStore
from distrl.replay.circular import CircularBuffer, Rows


def screens_of(rows: Rows, buffer: CircularBuffer, store: FeatureStore) -> Handles:
    """(B,) the handles of the features of each row's screenshot; NOWHERE for features that are not in memory.

    A screenshot is looked up by name only where the buffer has no valid handle of it.
    """
    slots = rows.slots
    known: Handles = buffer.screens[slots]
    stale = np.flatnonzero(~store.holds(known))
    if len(stale):
        unknown = Rows(rows.layout, rows.owner[stale], rows.steps[stale])
        known[stale] = store.handles(entry.steps[step].screenshot.sha256 for entry, step in unknown)
        buffer.screens[slots[stale]] = known[stale]
    return known
