"""The servers that were started for a training: one that ends is started again at the same address."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.errors import StackError
from distrl.stack.local import LocalStack, TakenDownError
from distrl.stack.part import Part
from distrl.train.restarts import TRIES, Restarts

LOG = logging.getLogger("distrl.train")


@dataclass
class Servers:
    """Restarts servers. Driven by the thread that drives the roles; roles wait for a server that does not answer, so
    nothing is lost meanwhile."""

    stack: LocalStack
    """It is up."""
    tries: int = TRIES
    """As in Restarts."""
    clock: Clock = SYSTEM_CLOCK
    _servers: dict[str, Restarts] = field(default_factory=dict)
    """Name -> restarts, of the servers that have ended at least once."""

    def __post_init__(self) -> None:
        self._up_s = self.clock.ticks()

    @property
    def restarted(self) -> Mapping[str, int]:
        """Server -> how often it was started again; only those that were."""
        return {name: restarts.count for name, restarts in self._servers.items() if restarts.count}

    def check(self) -> None:
        """Start ended servers again once their pauses are over; returns once they serve.

        Raises StackError for a server that keeps ending soon after its start, or that another command has stopped.
        """
        for part in self.stack.ended():
            restarts = self._servers.setdefault(part.name, Restarts(self.tries, self._up_s))
            if restarts.again_s is None:
                assert part.child is not None  # a part without a process cannot have ended
                self._wait(part, restarts, f"at {part.where} has ended; {part.child.ending()}")
            elif self.clock.ticks() >= restarts.again_s:
                self._start(part, restarts)

    def _start(self, part: Part, restarts: Restarts) -> None:
        try:
            self.stack.start_again(part)
        except TakenDownError:
            raise
        except StackError as error:
            restarts.started(self.clock.ticks())
            self._wait(part, restarts, f"does not start again: {error.where}: {error.what}")
        else:
            restarts.started(self.clock.ticks())
            LOG.warning("%s serves again at %s", part.name, part.where)

    def _wait(self, part: Part, restarts: Restarts, what: str) -> None:
        pause_s = restarts.ended(self.clock.ticks())
        if pause_s is None:
            raise StackError(part.name, what, "run the same command again: it restarts the part, and continues")
        LOG.warning("%s %s; it is started again in %g s", part.name, what, pause_s)
