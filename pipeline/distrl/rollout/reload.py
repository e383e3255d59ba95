"""Hot reload: newer weights are fetched, verified and handed to the batcher while episodes go on.

One thread executes `run`. It ends within WAIT_S of the stop event, or when the running fetch ends, or, once the policy
is closed, when the running request to a model server ends. Weights whose hash differs from the version record, or which
belong to another base model, are never loaded: the old weights stay, an alert is counted, and the next version is
tried.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from distrl.clock import Clock
from distrl.errors import ChatError, PolicyError, StoreError
from distrl.rollout.decider import PolicyClosedError, PolicyEndedError
from distrl.store.objects import CorruptObjectError
from distrl.telemetry.logs import about
from distrl.telemetry.monitor import Monitor
from distrl.types import ObjectRef, Version

log = logging.getLogger(__name__)

WAIT_S = 0.5
"""Longest wait for a newer version before the stop event is checked."""
RETRY_S, LONGEST_RETRY_S = 1.0, 10.0
"""First and longest pause before an adapter is loaded again after the store or a model server has failed; the pause
doubles each time."""
WAITING_LOG_S = 10.0
WAITING_AGAIN_S = 60.0
"""When it is first logged that there is no version yet, and the interval after that: a warm-up takes minutes."""


class Versions(Protocol):
    def latest(self) -> Version | None: ...
    def wait_newer(self, than: int | None, timeout_s: float) -> Version | None: ...


class Swapping(Protocol):
    @property
    def loaded(self) -> Version | None: ...
    def swap(self, version: Version, adapter: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class ReloadState:
    """Counters since the start."""

    reloads: int = 0
    alerts: int = 0
    """Versions that were refused."""
    seconds: float = 0.0
    """Time from publication to swap of the last reload; 0 before the first. The first load of a process does not count,
    as its version may be days old."""


class Reloader:
    """Follows the versions. fetch: returns the adapter's bytes, verified against the reference's sha256."""

    def __init__(
        self,
        versions: Versions,
        fetch: Callable[[ObjectRef], bytes],
        base_model_sha256: str,
        policy: Swapping,
        clock: Clock,
    ) -> None:
        self._versions = versions
        self._fetch = fetch
        self._base = base_model_sha256
        self._policy = policy
        self._clock = clock
        self._refused: int | None = None
        self.state = ReloadState()

    def run(self, stop: threading.Event) -> None:
        """Load each newer version until `stop`."""
        pause_s, tried = RETRY_S, -1
        while not stop.is_set():
            version = self._versions.wait_newer(self._handled(), WAIT_S)
            if version is None or stop.is_set():
                continue
            if version.version != tried:
                pause_s, tried = RETRY_S, version.version
            if not self.load(version):
                stop.wait(pause_s)
                pause_s = min(2 * pause_s, LONGEST_RETRY_S)

    def load(self, version: Version) -> bool:
        """Verify a version and swap to it. Returns False where the store or a model server failed, so that it must be
        tried again, and once the policy is closed."""
        with about(version=version.version):
            return self._load(version)

    def _load(self, version: Version) -> bool:
        if version.base_model_sha256 != self._base:
            self._alert(version, f"belongs to base model {version.base_model_sha256[:12]}, not {self._base[:12]}")
            self._refused = version.version
            return True
        first = self._policy.loaded is None
        try:
            self._policy.swap(version, self._fetch(version.adapter))
        except (PolicyClosedError, PolicyEndedError) as error:
            log.info("version %d is not loaded any more: %s", version.version, error.what)
            return False
        except (CorruptObjectError, PolicyError) as error:
            self._alert(version, error.what)
            self._refused = version.version
            return True
        except (StoreError, ChatError) as error:
            log.warning("version %d cannot be loaded yet, %s: %s", version.version, self._kept, error.what)
            return False
        seconds = max(0.0, self._clock.now() - version.published_at / 1000)
        log.info("version %d loaded %.3f s after its publication", version.version, seconds)
        loads = self.state.reloads + 1
        self.state = replace(self.state, reloads=loads, seconds=self.state.seconds if first else seconds)
        return True

    def refused(self, version: int) -> bool:
        """Whether `version` or a newer one was refused for good: it will never be loaded."""
        return self._refused is not None and self._refused >= version

    def _handled(self) -> int | None:
        loaded = self._policy.loaded
        known = [number for number in (loaded.version if loaded else None, self._refused) if number is not None]
        return max(known, default=None)

    @property
    def _kept(self) -> str:
        return "none is loaded" if self._policy.loaded is None else "the old weights stay"

    def _alert(self, version: Version, what: str) -> None:
        self.state = replace(self.state, alerts=self.state.alerts + 1)
        log.error("version %d is refused, %s: %s", version.version, self._kept, what)


def wait_first(versions: Versions, stop: threading.Event, monitor: Monitor) -> Version | None:
    """The newest version once there is one; None where stopped before. Logs from time to time what it waits for."""
    waited, next_log = 0.0, WAITING_LOG_S
    monitor.waits_for("version 0, which the learner publishes after the warm-up")
    while not stop.is_set():
        monitor.progress()
        found = versions.latest() or versions.wait_newer(None, WAIT_S)
        if found is not None:
            return found
        waited += WAIT_S
        if waited >= next_log:
            log.info("waiting for version 0: the learner publishes it after the warm-up on demonstrations")
            next_log += WAITING_AGAIN_S
    return None
