from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from distrl.clock import Clock
from distrl.errors import PolicyError, StoreError
from distrl.rollout.decider import PolicyClosedError, PolicyEndedError
from distrl.rollout.reload import WAIT_S, Reloader, wait_first
from distrl.store.objects import CorruptObjectError
from distrl.telemetry.monitor import Monitor
from distrl.types import ObjectRef, Version

from rollout.world import version


@dataclass
class Announced:
    """Versions that come one per look; then `then` is called."""

    coming: list[Version]
    then: Callable[[], None] = lambda: None
    asked: list[int | None] = field(default_factory=list)

    def latest(self) -> Version | None:
        return None

    def wait_newer(self, than: int | None, timeout_s: float) -> Version | None:
        self.asked.append(than)
        if not self.coming:
            self.then()
            return None
        return self.coming.pop(0)


@dataclass
class Loaded:
    refuses: Sequence[int] = ()
    loaded: Version | None = None
    adapters: list[bytes] = field(default_factory=list)

    def swap(self, version: Version, adapter: bytes) -> None:
        if version.version in self.refuses:
            raise PolicyError("adapter", "does not fit", "use another")
        self.loaded = version
        self.adapters.append(adapter)


def at(seconds: float) -> Clock:
    return Clock(lambda: seconds, lambda: seconds)


def reloader(policy: Loaded, fetch: Callable[[ObjectRef], bytes] = lambda ref: b"bytes") -> Reloader:
    return Reloader(Announced([]), fetch, "base", policy, at(12.5))


def test_a_version_is_fetched_by_its_hash_and_its_delay_measured() -> None:
    policy, fetched = Loaded(loaded=version(2)), []
    subject = reloader(policy, lambda ref: fetched.append(ref) or b"bytes")  # type: ignore[func-returns-value]
    assert subject.load(version(3, published_at=12_000))
    assert fetched == [version(3).adapter]
    assert policy.adapters == [b"bytes"]
    assert (subject.state.reloads, subject.state.alerts, subject.state.seconds) == (1, 0, 0.5)


def test_what_a_worker_begins_with_is_no_reload_however_old_it_is() -> None:
    """`distrl status` showed minutes after each start of a worker, though nobody had waited for weights."""
    subject = reloader(Loaded())
    assert subject.load(version(3, published_at=0))
    assert (subject.state.reloads, subject.state.seconds) == (1, 0.0)


def test_weights_for_another_base_model_are_never_loaded() -> None:
    policy = Loaded(loaded=version(1))
    subject = reloader(policy)
    assert subject.load(version(2, base="other"))
    assert policy.loaded == version(1)
    assert subject.state.alerts == 1
    assert subject.refused(2)
    assert not subject.refused(3)


def test_an_object_with_another_hash_is_refused_for_good() -> None:
    def corrupt(ref: ObjectRef) -> bytes:
        raise CorruptObjectError(ref.key, "hashes to something else", "restore it")

    policy = Loaded(loaded=version(1))
    subject = reloader(policy, corrupt)
    assert subject.load(version(2))
    assert (policy.loaded, subject.state.alerts, subject.refused(2)) == (version(1), 1, True)


def test_a_store_that_is_away_is_asked_again_and_is_no_alert() -> None:
    answers = [StoreError("store", "cannot be reached", "start it")] * 2

    def fetch(ref: ObjectRef) -> bytes:
        if answers:
            raise answers.pop()
        return b"bytes"

    policy = Loaded()
    subject = reloader(policy, fetch)
    assert [subject.load(version(2)) for _ in range(3)] == [False, False, True]
    assert (subject.state.alerts, subject.state.reloads) == (0, 1)
    assert not subject.refused(2)


@pytest.mark.parametrize("error", [PolicyClosedError, PolicyEndedError])
def test_a_policy_that_is_closed_or_has_failed_refuses_no_version(error: type[PolicyError]) -> None:
    class Closed(Loaded):
        def swap(self, version: Version, adapter: bytes) -> None:
            raise error("worker", "the policy has stopped", "start the worker again")

    subject = reloader(Closed())
    assert not subject.load(version(2))
    assert subject.state.alerts == 0
    assert not subject.refused(2)


def test_the_longer_a_version_cannot_be_loaded_the_longer_are_the_pauses_until_the_next() -> None:
    paused: list[float] = []

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            paused.append(timeout or 0.0)
            if len(paused) == 7:
                self.set()
            return self.is_set()

    def gone(ref: ObjectRef) -> bytes:
        raise StoreError("store", "has no such object", "restore it")

    coming = [*[version(1)] * 5, *[version(2)] * 2]
    Reloader(Announced(coming), gone, "base", Loaded(), at(0)).run(Stop())
    assert paused == [1.0, 2.0, 4.0, 8.0, 10.0, 1.0, 2.0]


def test_after_a_refusal_only_a_newer_version_is_waited_for() -> None:
    stop = threading.Event()
    versions = Announced([version(1), version(2), version(3)], stop.set)
    policy = Loaded(refuses=[2, 3])
    Reloader(versions, lambda ref: b"", "base", policy, at(0)).run(stop)
    assert versions.asked == [None, 1, 2, 3]
    assert policy.loaded == version(1)


def test_waiting_for_the_first_version_ends_with_it_or_with_the_stop() -> None:
    assert wait_first(Announced([version(0)]), threading.Event(), Monitor()) == version(0)
    stop, monitor = threading.Event(), Monitor()
    assert wait_first(Announced([], stop.set), stop, monitor) is None
    assert monitor.liveness(60.0).ok, "a process that waits is alive"
    assert monitor.readiness().why.startswith("waiting for version 0")


def test_a_long_wait_for_the_first_version_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The looks wait for nothing here: minutes are counted by them."""
    versions = Announced([])
    stop = threading.Event()
    looks = int(150 / WAIT_S)
    versions.then = lambda: stop.set() if len(versions.asked) == looks else None
    with caplog.at_level(logging.INFO):
        assert wait_first(versions, stop, Monitor()) is None
    assert [record.message for record in caplog.records if "waiting for version 0" in record.message] == [
        "waiting for version 0: the learner publishes it after the warm-up on demonstrations"
    ] * 3  # after 10, 70 and 130 seconds
