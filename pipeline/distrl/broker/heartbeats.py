"""Periodic status of a process, for people. A failure to send one is only logged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

from distrl.broker.connect import BeyondUseError
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.errors import BrokerError
from distrl.types import DeviceHealth, Heartbeat, Version

log = logging.getLogger(__name__)

MOST_WAITING: Final = 8
"""Most unacknowledged heartbeats. Further ones are dropped, so that they never fill the producer's queue, which a
worker's trajectories share: a partition of `heartbeats` may be the only one that cannot be written."""


class HeartbeatSender:
    """Sends the heartbeats of one process; `due` says when the next one is. One thread.

    publish: queues a heartbeat and returns the future of its acknowledgement; `claims.send` for a role that one process
    of a run has.
    """

    def __init__(
        self,
        process: str,
        role: str,
        every_s: float,
        publish: Callable[[Heartbeat], object],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._process, self._role, self._every_s = process, role, every_s
        self._publish = publish
        self._clock = clock
        self._next = clock.ticks()
        self._waiting: list[Future[Any]] = []

    @property
    def due(self) -> bool:
        """Whether `every_s` has passed since the last one was sent; the first is due at once."""
        return self._clock.ticks() >= self._next

    def send(
        self,
        version: Version | None,
        metrics: Mapping[str, float],
        devices: Sequence[DeviceHealth] = (),
        partitions: Sequence[int] | None = None,
    ) -> None:
        """Send one now, unless MOST_WAITING are not acknowledged yet. version: the newest that this process uses.

        Raises BeyondUseError if the producer has failed for good.
        """
        self._next = self._clock.ticks() + self._every_s
        self._waiting = [each for each in self._waiting if not each.done()]
        if len(self._waiting) >= MOST_WAITING:
            return
        number, sha256 = (version.version, version.adapter.sha256) if version is not None else (None, None)
        beat = Heartbeat(
            self._process,
            self._role,
            self._clock.now_ms(),
            number,
            sha256,
            metrics,
            tuple(devices),
            None if partitions is None else tuple(partitions),
        )
        try:
            sent = self._publish(beat)
        except BeyondUseError:
            raise
        except BrokerError as error:
            log.warning("heartbeat not sent: %s", error.what)
        else:
            if isinstance(sent, Future):
                self._waiting.append(sent)
