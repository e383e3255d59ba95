"""Screenshots are looked at beside the updates: with equal bits, each once, and nothing fails in another way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from distrl.compute import reproducible
from distrl.config import Config
from distrl.errors import PolicyError, StoreError
from distrl.learner.ahead import LookAhead
from distrl.learner.fold import fold
from distrl.learner.ranks import Leader
from distrl.learner.state import LearnerState
from distrl.policy.feature_store import FeatureStore
from distrl.policy.features import Features, Images
from distrl.policy.protocol import ImageFeatures
from distrl.ranks.group import ALONE
from distrl.types import LoggedTrajectory, ObjectRef, ScreenSize
from policy.vlm.models import FAMILIES
from waiting import until

from learner.test_screens import PATIENCE_S, Away, Store, content, ref
from learner.test_vision_language import in_its_words
from learner.world import Screens, config, update_of, windows

Log = tuple[Config, list[list[LoggedTrajectory]]]

UPDATES = 6
"""Three of cloning, one of the critics alone, two of A-RIDE."""


class Eyes:
    """Looks at bytes, and counts; `blind` for some. A look waits until `free`."""

    def __init__(self, blind: ObjectRef | None = None) -> None:
        self.seen: list[bytes] = []
        self.free, self.begun = threading.Event(), threading.Semaphore(0)
        self.free.set()
        self._blind = None if blind is None else content(blind)

    def __call__(self, png: bytes) -> ImageFeatures:
        self.seen.append(png)
        self.begun.release()
        assert self.free.wait(PATIENCE_S)
        if png == self._blind:
            raise PolicyError("screenshot", "is no PNG image", "show it one")
        return ImageFeatures(torch.full((2, 3), float(png[0])), ScreenSize(1, 1))


def features_of(eyes: Eyes) -> Features:
    return Features(eyes, 1, FeatureStore(1 << 20))


@contextmanager
def looking(images: Images, features: Features) -> Iterator[LookAhead]:
    ahead = LookAhead(images)
    ahead.look_for(features)
    try:
        yield ahead
    finally:
        ahead.close()


@pytest.fixture(params=["autoui", *FAMILIES])
def log(request: pytest.FixtureRequest, settings: Config, screens: Screens, tmp_path: Path) -> Log:
    """Settings with a base model of a family, and the windows of its updates."""
    if request.param == "autoui":
        return settings, windows(screens, settings, UPDATES)
    FAMILIES[request.param](tmp_path)
    large = config(tmp_path, "policy.dialect=json", "policy.system_prompt=Act.", "policy.action_tokens=48")
    return large, in_its_words(large, screens, UPDATES)


def test_an_update_finds_features_that_were_computed_beside_the_one_before_with_equal_bits(
    log: Log, screens: Screens
) -> None:
    settings, made = log
    alone = LearnerState(settings)
    for u, window in enumerate(made):
        fold(alone, window, update_of(u, window, alone.watermarks, settings), screens, settings)
    state, looks = LearnerState(settings), list[bytes]()
    policy, fold_thread, threads = state.policy, threading.current_thread(), list[threading.Thread]()

    def look(png: bytes) -> ImageFeatures:
        looks.append(png)
        threads.append(threading.current_thread())
        return policy.image_features(png)

    state.features = Features(look, settings.learner.torch_threads, FeatureStore(1 << 20))
    leader = Leader(settings, ALONE, screens, threading.Event())
    leader.begin(state)
    leader.want(shown(made[0]))
    for u, window in enumerate(made):
        until(lambda due=window: {each.sha256 for each in shown(due)} <= ready(state.features))
        coming = made[u + 1 : u + 2]
        leader.want(each for later in coming for each in shown(later))  # its looks run beside this fold's steps
        leader.fold(window, update_of(u, window, state.watermarks, settings))
        leader.forget([logged for later in coming for logged in later])
    leader.close()
    assert state.digests() == alone.digests()
    assert sorted(looks) == sorted(screens.known[name] for name in {each.sha256 for w in made for each in shown(w)})
    assert fold_thread not in threads


def shown(window: list[LoggedTrajectory]) -> list[ObjectRef]:
    return [step.screenshot for logged in window for step in logged.trajectory.steps]


def ready(features: Features) -> set[str]:
    return features.store.names() | set(features._ahead)


def test_an_unreadable_screenshot_is_looked_at_once_and_who_loads_it_is_told(caplog: pytest.LogCaptureFixture) -> None:
    eyes = Eyes(blind=ref(1))
    features = features_of(eyes)
    with looking(Store().get, features) as ahead:
        ahead.screens.want([ref(n) for n in range(3)])
        until(lambda: len(ready(features)) == 3)
        assert not caplog.records, "it may never be loaded"
        features.load([ref(n) for n in range(3)], ahead.screens)
    assert [features.shows(ref(n)) for n in range(3)] == [True, False, True]
    assert len(eyes.seen) == 3
    assert [record.levelname for record in caplog.records if "no readable screenshot" in record.message] == ["WARNING"]


def test_a_store_that_is_away_is_an_error_of_who_loads_and_none_once_it_is_back() -> None:
    store, eyes = Away(), Eyes()
    features = features_of(eyes)
    with looking(store.get, features) as ahead:
        ahead.screens.want([ref(0)])
        until(lambda: ahead.screens.arrived(1))
        with pytest.raises(StoreError):
            features.load([ref(0)], ahead.screens)
        store.away = False
        features.load([ref(0)], ahead.screens)
    assert eyes.seen == [content(ref(0))]


def test_who_loads_waits_for_a_look_that_is_under_way_and_does_not_repeat_it() -> None:
    eyes = Eyes()
    eyes.free.clear()
    features = features_of(eyes)
    with looking(Store().get, features) as ahead:
        ahead.screens.want([ref(0)])
        assert eyes.begun.acquire(timeout=PATIENCE_S)
        loading = threading.Thread(target=lambda: features.load([ref(0)], ahead.screens))
        loading.start()
        eyes.free.set()
        loading.join(PATIENCE_S)
    assert features.shows(ref(0))
    assert eyes.seen == [content(ref(0))]


def test_what_is_forgotten_before_its_turn_is_not_looked_at_and_what_was_is_dropped() -> None:
    eyes = Eyes()
    eyes.free.clear()
    features = features_of(eyes)
    with looking(Store().get, features) as ahead:
        ahead.screens.want([ref(0), ref(1)])
        until(lambda: len(ahead.screens.arrived(2)) == 2)
        assert eyes.begun.acquire(timeout=PATIENCE_S)
        ahead.screens.keep(())
        eyes.free.set()
        until(lambda: ready(features))
        ahead._pool.submit(lambda: None).result(PATIENCE_S)  # behind the other one's turn
        assert len(eyes.seen) == 1
        features.keep(set())
        assert not ready(features)


def test_more_than_the_bound_is_left_to_who_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.policy.features.AHEAD_BYTES", 2 * 24)  # of two screens
    eyes = Eyes()
    features, store, four = features_of(eyes), Store(), [ref(n) for n in range(4)]
    for each in four:
        features.look_ahead(each, lambda each=each: content(each))
    assert len(ready(features)) == 2
    features.load(four, store.get)
    assert sorted(eyes.seen) == sorted(map(content, four))
    assert not features._ahead


def test_closing_waits_for_no_look_and_begins_none() -> None:
    eyes = Eyes()
    eyes.free.clear()
    with looking(Store().get, features_of(eyes)) as ahead:
        ahead.screens.want([ref(n) for n in range(5)])
        assert eyes.begun.acquire(timeout=PATIENCE_S)
        ahead.close()  # returns while the look is under way
        assert len(eyes.seen) == 1
    eyes.free.set()
    ahead._pool.shutdown(wait=True)
    assert len(eyes.seen) == 1


def test_kernels_stay_deterministic_until_the_last_thread_is_done_and_threads_are_each_ones_own() -> None:
    begun, go_on, found = threading.Event(), threading.Event(), list[tuple[bool, int]]()

    def other() -> None:
        with reproducible(2):
            begun.set()
            assert go_on.wait(PATIENCE_S)
            found.append((torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()))

    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    beside = threading.Thread(target=other)
    with reproducible(1):
        beside.start()
        assert begun.wait(PATIENCE_S)
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before[1]
    go_on.set()
    beside.join()
    assert found == [(True, 2)]
    assert (torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()) == before
