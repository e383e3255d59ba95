"""Waiting for what another thread, process or server does: until it is so, never for a time that is hoped to be long
enough."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

WITHIN_S = 60.0
"""Far longer than anything takes on a busy machine."""


def until(
    come: Callable[[], T],
    what: str | Callable[[], str] = "it has come",
    within_s: float = WITHIN_S,
    every_s: float = 0.02,
) -> T:
    """What `come` returns once it is true; the test fails after `within_s`.

    what: is so then, for people; a function is called where it is not. every_s: pause between two looks, which may
    cost a server.
    """
    deadline = time.monotonic() + within_s
    while not (found := come()):
        assert time.monotonic() < deadline, f"after {within_s:g} s not yet: {what() if callable(what) else what}"
        time.sleep(every_s)
    return found
