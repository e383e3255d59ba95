"""A drawn step's features are found by a handle that is looked up once, and never another screenshot's."""

from __future__ import annotations

import numpy as np
import torch
from distrl.algorithms.screens import screens_of
from distrl.policy.feature_rows import NOWHERE
from distrl.policy.feature_store import FeatureStore
from distrl.policy.features import Features
from distrl.policy.protocol import ImageFeatures, TrajectoryStep
from distrl.replay.circular import CircularBuffer, Rows
from distrl.types import LoggedTrajectory, LogPosition, ObjectRef, ScreenSize
from factories import step, trajectory
from hypothesis import given
from hypothesis import strategies as st

STEPS = st.lists(st.integers(0, 5), min_size=1, max_size=4)
"""The screenshots of an episode, by number: some come again."""


def ref(number: int) -> ObjectRef:
    return ObjectRef(f"screenshots/{number:064x}.png", f"{number:064x}", 1)


def record(offset: int, screens: list[int]) -> LoggedTrajectory:
    made = trajectory(f"t{offset}", [step(screenshot=ref(number), at=at) for at, number in enumerate(screens)])
    return LoggedTrajectory(LogPosition("trajectories", 0, offset), made)


def embed(png: bytes) -> ImageFeatures:
    return ImageFeatures(torch.full((3, 2), float(png.decode())), ScreenSize(4, 4))


def image(screenshot: ObjectRef) -> bytes:
    return str(int(screenshot.sha256, 16)).encode()


def features(most_bytes: int = 1 << 20) -> Features:
    return Features(embed, 1, FeatureStore(most_bytes))


def every(buffer: CircularBuffer) -> Rows:
    layout = buffer.layout
    return Rows(layout, layout.owner, np.arange(len(buffer)) - layout.begins[layout.owner])


def assert_found(buffer: CircularBuffer, held: Features) -> None:
    rows = every(buffer)
    steps = [TrajectoryStep(entry.steps, index) for entry, index in rows]
    handles = screens_of(rows, buffer, held.store)
    for one, other in zip(held.at(handles, steps), held.of(steps), strict=True):
        assert torch.equal(one.tokens, other.tokens)
        assert one.size == other.size


@given(st.lists(STEPS, min_size=1, max_size=12), st.sampled_from([0, 24, 72, 1 << 20]))
def test_handles_find_what_names_find_as_screens_come_and_go(episodes: list[list[int]], most: int) -> None:
    buffer, held = CircularBuffer(6), features(most)
    for offset, screens in enumerate(episodes):
        item = record(offset, screens)
        held.load((each.screenshot for each in item.trajectory.steps), image)
        buffer.add(item)
        assert_found(buffer, held)
        held.keep({each.screenshot.sha256 for entry in buffer.entries for each in entry.steps})


def test_features_of_another_store_are_looked_up_anew() -> None:
    buffer = CircularBuffer(6)
    buffer.add(record(0, [1, 2]))
    for order in ([1, 2], [2, 1]):
        held = features()
        held.load(map(ref, order), image)
        assert_found(buffer, held)
        assert held.store.holds(buffer.screens[:2]).all()


def test_what_is_not_in_memory_has_no_handle() -> None:
    buffer, held = CircularBuffer(6), features(24)
    buffer.add(record(0, [1, 2]))
    held.load([ref(1), ref(2)], image)
    assert [handle == NOWHERE for handle in screens_of(every(buffer), buffer, held.store)] == [False, True]
