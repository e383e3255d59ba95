"""Virtual time: actors run one at a time, in the order of the time that they wait for.

An actor is ordinary blocking code in a thread of its own, so that the episode loop runs as it is. It waits only in
`sleep` and `pause`, which hand the baton back; whoever has the baton is the only one that runs, so actors share objects
without locks. How long code really takes changes nothing: time moves only when every actor waits.

Events of one instant happen in a fixed order: callbacks of `after` in the order in which they were asked for, then
actors by their number.
"""

from __future__ import annotations

import heapq
import math
import threading
from collections.abc import Callable
from itertools import count
from typing import Final

CALLBACK: Final = -1
"""Place of callbacks among the actors of an instant: what arrives then is there before anyone acts."""


class StuckError(RuntimeError):
    """Every actor waits for another one: nothing will ever happen again."""


class _EndedError(BaseException):
    """Unwinds an actor whose run is over. No `except Exception` of the code that it runs holds it up."""


class Actor:
    """One thread of control, made by `VirtualTime.start`."""

    def __init__(self, number: int, name: str) -> None:
        self.number, self.name = number, name
        self.pausing = False
        self.turn = 0
        """Number of its next wake-up; an entry of the schedule with another number is outdated."""
        self.ended = False
        self.baton = threading.Lock()
        self.baton.acquire()
        self.thread: threading.Thread | None = None


class VirtualTime:
    """Life cycle: `start` some actors, then `run` once, in the thread that made it. Every thread has ended after it."""

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the start of the experiment."""
        self._schedule: list[tuple[float, int, int, Actor | Callable[[], object]]] = []
        self._order = count()
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._baton = threading.Lock()
        self._baton.acquire()
        self._over = False
        self._error: BaseException | None = None

    @property
    def current(self) -> Actor:
        """The actor that calls."""
        assert self._current is not None, "only actors wait"
        return self._current

    def start(self, name: str, body: Callable[[], object]) -> Actor:
        """An actor that begins now. Its number is how many were started before it."""
        actor = Actor(len(self._actors), name)
        actor.thread = threading.Thread(target=self._run_actor, args=(actor, body), name=name, daemon=True)
        self._actors.append(actor)
        self._resume(actor, self.now)
        return actor

    def sleep(self, seconds: float) -> None:
        """Wait. Raises ValueError for a time that is negative or not finite."""
        self._wait(self._checked(seconds))

    def pause(self, until: float = math.inf) -> None:
        """Wait until another actor or a callback calls `wake`, at most until that time. The caller must check its
        condition again: several actors may have been woken for one event."""
        actor = self.current
        actor.pausing = True
        if until < math.inf:
            self._resume(actor, max(until, self.now))
        self._hand_back(actor)
        actor.pausing = False

    def wake(self, actor: Actor) -> None:
        """Let an actor that pauses go on at this instant. No effect on one that does not."""
        if actor.pausing:
            actor.pausing = False
            self._resume(actor, self.now)

    def after(self, seconds: float, callback: Callable[[], object]) -> None:
        """Call back in so many seconds, before the actors of that instant. It must not wait. Raises as `sleep`."""
        at = self.now + self._checked(seconds)
        heapq.heappush(self._schedule, (at, CALLBACK, next(self._order), callback))

    def run(self, until: float = math.inf) -> None:
        """Let time pass until `until`, or until all actors have ended.

        Raises what an actor or a callback raised, and StuckError where nothing can happen before `until`.
        """
        try:
            while self._schedule and self._schedule[0][0] <= until:
                at, _, turn, what = heapq.heappop(self._schedule)
                if not isinstance(what, Actor):
                    self.now = at
                    what()
                elif not what.ended and turn == what.turn:
                    self.now = at
                    self._hand_to(what)
                if self._error is not None:
                    raise self._error
            waiting = [actor.name for actor in self._actors if not actor.ended]
            if waiting and not self._schedule:
                raise StuckError(f"at {self.now:g} s each of {', '.join(waiting)} waits for another")
            if until < math.inf:
                self.now = until
        finally:
            self._end()

    def _checked(self, seconds: float) -> float:
        if not 0 <= seconds < math.inf:
            raise ValueError(f"{seconds} s cannot be waited for")
        return seconds

    def _wait(self, seconds: float) -> None:
        actor = self.current
        self._resume(actor, self.now + seconds)
        self._hand_back(actor)

    def _resume(self, actor: Actor, at: float) -> None:
        """Put the actor's next turn into the schedule, and outdate those that are there."""
        actor.turn += 1
        heapq.heappush(self._schedule, (at, actor.number, actor.turn, actor))

    def _hand_to(self, actor: Actor) -> None:
        """Give the baton to an actor, and return when it is back."""
        assert actor.thread is not None
        self._current = actor
        if actor.thread.ident is None:
            actor.thread.start()
        else:
            actor.baton.release()
        self._baton.acquire()
        self._current = None

    def _hand_back(self, actor: Actor) -> None:
        self._baton.release()
        actor.baton.acquire()
        if self._over:
            raise _EndedError

    def _run_actor(self, actor: Actor, body: Callable[[], object]) -> None:
        try:
            body()
        except _EndedError:
            pass
        except BaseException as error:
            self._error = self._error or error
        finally:
            actor.ended = True
            self._baton.release()

    def _end(self) -> None:
        """End every actor that waits, whose clean-up may wait again."""
        if self._current is not None:  # interrupted while an actor had the baton
            self._baton.acquire()
        self._over = True
        for actor in self._actors:
            assert actor.thread is not None
            while actor.thread.ident is not None and not actor.ended:
                self._hand_to(actor)
            if actor.thread.ident is not None:
                actor.thread.join()
