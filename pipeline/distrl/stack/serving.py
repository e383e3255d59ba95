"""Waits until a child serves at its ports, and starts it at others where another process has taken one first.

A port that was free when it was chosen may be another process's before the child listens: two stacks that start in the
same second choose the same one. The child then ends, and is started again at another port, unless a person has set it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from distrl.errors import StackError
from distrl.stack.part import Part, Site
from distrl.stack.ports import HOST, holder, is_free
from distrl.stack.processes import CancelledError, Child, stop_all, wait_ready

P = TypeVar("P")

TRIES = 5


class PortTakenError(StackError):
    """A port that was free when it was chosen is another process's."""


def serve(
    child: Child,
    ports: Sequence[int],
    ready: Callable[[], bool],
    site: Site,
    *,
    ready_s: float,
    stop_s: float,
    hint: str,
) -> None:
    """Wait until `child` is ready. It is stopped on any error: StackError as of `wait_ready`, or PortTakenError."""
    try:
        wait_ready(child, ready, ready_s, site.cancelled, hint)
    except BaseException as error:
        stop_all([child], stop_s)
        taken = [port for port in ports if not is_free(port)]
        if taken and isinstance(error, StackError) and not isinstance(error, CancelledError):
            raise PortTakenError(
                child.name, f"port {taken[0]} of {HOST} was taken{holder(taken[0])} while it started", hint
            ) from error
        raise


def started_where_free(site: Site, choose: Callable[[], P], start: Callable[[P], Part]) -> Callable[[], Part]:
    """A function that starts a part at the ports that are chosen now, or at others where one is taken meanwhile.

    choose: raises StackError where no other port may be used.
    """
    first = choose()

    def started() -> Part:
        found = first
        for _ in range(TRIES - 1):
            try:
                return start(found)
            except PortTakenError as error:
                found = choose()
                site.report(f"{error.where}: {error.what}; starting it again at another port")
        return start(found)

    return started
