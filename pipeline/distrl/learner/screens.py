"""Screenshots fetched from the store before the fold asks for them, several at once.

    wanted ─▶ queue ─▶ AT_ONCE threads ─▶ memory, MOST_BYTES at most ─▶ asked for

Only verified bytes are fetched early, so the time at which they arrive changes no result.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Final

from distrl.policy.features import Images
from distrl.types import ObjectRef

AT_ONCE: Final = 16
"""Requests to the store at the same time: about half of the connections that it keeps open."""

MOST_BYTES: Final = 128 << 20
"""Most bytes of screenshots that are fetched and not asked for yet. A screenshot larger than this is fetched only when
it is asked for."""


class Screens:
    """Reads screenshots; those that were wanted beforehand are ready sooner. Used by one thread; owns its threads."""

    def __init__(
        self,
        fetch: Images,
        at_once: int = AT_ONCE,
        most_bytes: int = MOST_BYTES,
        came: Callable[[ObjectRef], object] = lambda ref: None,
    ) -> None:
        """fetch: reads from the store; called from several threads. came: called by one of these threads once a
        screenshot has arrived or failed."""
        self._fetch, self._most_bytes, self._came = fetch, most_bytes, came
        self._pool = ThreadPoolExecutor(at_once, "screens")
        self._queue: OrderedDict[ObjectRef, None] = OrderedDict()
        self._coming: dict[ObjectRef, Future[bytes]] = {}
        self._bytes = 0
        """Sum of the sizes in `_coming`, as the references state them."""

    def want(self, refs: Iterable[ObjectRef]) -> None:
        """Fetch these as soon as possible, in this order, after those wanted before. A fetch that failed is retried."""
        for ref in refs:
            if (found := self._coming.get(ref)) is not None and _has_failed(found):
                self._take(ref)
            if ref not in self._coming:
                self._queue[ref] = None
        self._fill()

    def __call__(self, ref: ObjectRef) -> bytes:
        """The verified bytes. Raises StoreError only for a request that is running or made now. If an earlier request
        failed, a new one is made: the store may work again, and each error costs the caller a pause."""
        found = self._take(ref)
        self._fill()
        return self._fetch(ref) if found is None or _has_failed(found) else found.result()

    def arrived(self, most: int) -> list[ObjectRef]:
        """Screenshots whose fetch has ended, with success or not, and that were not asked for yet: at most `most`, in
        the order they were wanted."""
        return list(islice((ref for ref, found in self._coming.items() if found.done()), most))

    def __contains__(self, ref: ObjectRef) -> bool:
        """Whether it was wanted here, and neither asked for nor forgotten since."""
        return ref in self._queue or ref in self._coming

    def is_coming(self, ref: ObjectRef) -> bool:
        """Whether its request is under way."""
        found = self._coming.get(ref)
        return found is not None and not found.done()

    def peek(self, ref: ObjectRef) -> bytes | None:
        """The bytes of a screenshot that has arrived and was not asked for or forgotten, else None. It stays here. Any
        thread may call this."""
        found = self._coming.get(ref)
        return None if found is None or not found.done() or _has_failed(found) else found.result()

    def forget(self, refs: Iterable[ObjectRef]) -> None:
        """Drop these: nobody will ask for them."""
        for ref in refs:
            self._take(ref)
        self._fill()

    def keep(self, refs: Iterable[ObjectRef]) -> None:
        """Forget all but these."""
        self.forget({*self._queue, *self._coming}.difference(refs))

    def close(self) -> None:
        """End the threads, each once its current request has ended."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _take(self, ref: ObjectRef) -> Future[bytes] | None:
        self._queue.pop(ref, None)
        found = self._coming.pop(ref, None)
        if found is not None:
            self._bytes -= ref.size
            if found.cancel():  # it had not started: the caller fetches it
                return None
        return found

    def _fill(self) -> None:
        while self._queue:
            ref = next(iter(self._queue))
            if self._bytes + ref.size > self._most_bytes >= ref.size:
                return
            del self._queue[ref]
            if ref.size <= self._most_bytes:
                self._bytes += ref.size
                self._coming[ref] = coming = self._pool.submit(self._fetch, ref)
                coming.add_done_callback(partial(self._ended, ref))

    def _ended(self, ref: ObjectRef, _: Future[bytes]) -> None:
        self._came(ref)


def _has_failed(found: Future[bytes]) -> bool:
    return found.done() and (found.cancelled() or found.exception() is not None)
