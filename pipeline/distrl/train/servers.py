"""The servers of a training that were started here: one that ends is started again, where the roles look for it."""

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
class Server:
    """One of them, since it has ended once."""

    restarts: Restarts
    started_s: float
    """By the clock's ticks."""
    again_s: float | None = None
    """When it is to be started again; None while it runs."""


@dataclass
class Servers:
    """Driven by one thread, that of the roles: they wait for a server that is away, so nothing is lost meanwhile."""

    stack: LocalStack
    """It is up."""
    tries: int = TRIES
    """As in Restarts."""
    clock: Clock = SYSTEM_CLOCK
    _servers: dict[str, Server] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._up_s = self.clock.ticks()

    @property
    def restarted(self) -> Mapping[str, int]:
        """Server -> how often it was started again, for those that were."""
        return {name: server.restarts.count for name, server in self._servers.items() if server.restarts.count}

    def check(self) -> None:
        """Start those again that have ended, when their time has come; returns once they serve.

        Raises StackError for one that ends again and again soon after its start, or that another command has stopped.
        """
        for part in self.stack.ended():
            now = self.clock.ticks()
            server = self._servers.setdefault(part.name, Server(Restarts(self.tries), self._up_s))
            if server.again_s is None:
                assert part.child is not None  # of those without one none ends
                self._wait(part, server, now - server.started_s, f"at {part.where} has ended; {part.child.ending()}")
            elif now >= server.again_s:
                self._start(part, server)

    def _start(self, part: Part, server: Server) -> None:
        try:
            self.stack.start_again(part)
        except TakenDownError:
            raise
        except StackError as error:
            self._wait(part, server, 0.0, f"does not start again: {error.where}: {error.what}")
        else:
            server.started_s, server.again_s = self.clock.ticks(), None
            LOG.warning("%s serves again at %s", part.name, part.where)

    def _wait(self, part: Part, server: Server, lived_s: float, what: str) -> None:
        pause_s = server.restarts.after(lived_s)
        if pause_s is None:
            raise StackError(part.name, what, "run the same command again: it restarts the part, and continues")
        server.again_s = self.clock.ticks() + pause_s
        LOG.warning("%s %s; it is started again in %g s", part.name, what, pause_s)
