"""Where a role kills itself: its edges (store, producer, journal) wrapped from outside, with SIGKILL inside.

Used by launch.py in the child that is to die. Each point takes `nth`: at which time of being there.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from distrl.broker import fenced
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.errors import StoreError
from distrl.learner import loop
from distrl.rollout.episode import SYSTEM_CLOCK
from distrl.store.directory import DirectoryStore
from distrl.store.s3 import S3Store
from urllib3.connection import HTTPConnection

Arguments = tuple[Any, ...]

BESIDE_S = 60.0
"""Within which a learner that waits for nothing begins its next update."""


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def nth_time(nth: int, act: Callable[[], None]) -> Callable[[], None]:
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == nth:
            act()

    return count


def before(owner: type, name: str, here: Callable[[], None], when: Callable[..., bool]) -> None:
    original = getattr(owner, name)

    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        if when(*arguments):
            here()
        return original(self, *arguments, **named)

    setattr(owner, name, wrapped)


def after(owner: type, name: str, here: Callable[[], None], when: Callable[..., bool]) -> None:
    original = getattr(owner, name)

    def wrapped(self: Any, *arguments: Any, **named: Any) -> Any:
        result = original(self, *arguments, **named)
        if when(*arguments):
            here()
        return result

    setattr(owner, name, wrapped)


def at_store(wrap: Callable[..., None], name: str, here: Callable[[], None], when: Callable[..., bool]) -> None:
    """Whichever store the run has."""
    for store in (S3Store, DirectoryStore):
        wrap(store, name, here, when)


def always(*_: Any) -> bool:
    return True


def kind_is(segment: str) -> Callable[..., bool]:
    return lambda kind, *_: segment in str(kind).split("/")


def is_manifest(key: object, *_: Any) -> bool:
    return "/checkpoints/" in str(key)


# The learner: journal, fold, adapter, version record, checkpoint's tensors, its manifest.


def update_journalled(nth: int) -> None:
    after(Journal, "append", nth_time(nth, die), always)


def adapter_stored(nth: int) -> None:
    """The weights are in the store, the version that names them is not in the log."""
    at_store(after, "put", nth_time(nth, die), kind_is("adapters"))


def version_published(nth: int) -> None:
    """The version is in the log, the checkpoint after it is not in the store."""
    after(Journal, "publish_version", nth_time(nth, die), always)


def tensors_stored(nth: int) -> None:
    """A checkpoint's tensors are there, the manifest that names them is not."""
    at_store(after, "put", nth_time(nth, die), kind_is("tensors"))


def manifest_stored(nth: int) -> None:
    """A checkpoint is whole, and what is older is not pruned yet."""
    at_store(after, "put_named", nth_time(nth, die), is_manifest)


def pruned_one(nth: int) -> None:
    at_store(after, "delete", nth_time(nth, die), always)


def adapter_pruned(nth: int) -> None:
    at_store(after, "delete", nth_time(nth, die), lambda key, *_: str(key).startswith("adapters/"))


def checkpoint_before_its_version(nth: int) -> None:
    """The nth adapter cannot be stored, the learner is asked to stop and saves a checkpoint whose version is missing.

    Killed once that checkpoint is whole.
    """
    refused = False

    def refuse() -> None:
        nonlocal refused
        refused = True
        os.kill(os.getpid(), signal.SIGTERM)
        raise StoreError("store.url", "the adapter is refused by this test", "nothing")

    at_store(before, "put", nth_time(nth, refuse), kind_is("adapters"))
    at_store(after, "put_named", nth_time(1, die), lambda key, *_: refused and is_manifest(key))


def uploading_beside_an_update(nth: int) -> None:
    """A checkpoint's tensors wait for the store, and the update after it is journalled, and then the next."""
    journalled = threading.Semaphore(0)

    def wait_and_die() -> None:
        while journalled.acquire(blocking=False):
            pass  # those of before
        if journalled.acquire(timeout=BESIDE_S) and journalled.acquire(timeout=BESIDE_S):
            die()

    after(Journal, "append", journalled.release, always)
    at_store(before, "put", nth_time(nth, wait_and_die), kind_is("tensors"))


def half_an_upload(nth: int) -> None:
    """Half of the nth checkpoint file's bytes are on the wire."""
    urls: dict[int, str] = {}
    putrequest, send = HTTPConnection.putrequest, HTTPConnection.send
    here = nth_time(nth, die)

    def noting(self: Any, method: str, url: str, *arguments: Any, **named: Any) -> Any:
        urls[id(self)] = f"{method} {url}"
        return putrequest(self, method, url, *arguments, **named)

    def sending(self: Any, data: Any) -> Any:
        asked = urls.get(id(self), "")
        if asked.startswith("PUT ") and "/tensors/" in asked and not bytes(data).startswith(b"PUT "):
            send(self, bytes(data)[: len(data) // 2])
            here()
            return send(self, bytes(data)[len(data) // 2 :])
        return send(self, data)

    HTTPConnection.putrequest, HTTPConnection.send = noting, sending  # type: ignore[method-assign]


def stands_still_at_update(nth: int) -> None:
    """No place to die at: the learner stops itself once an update is journalled, until somebody lets it go on."""
    after(Journal, "append", nth_time(nth, lambda: os.kill(os.getpid(), signal.SIGSTOP)), always)


def reads_few_ahead(nth: int) -> None:
    """No place to die at: the learner stops reading with `nth` pending records, of which it takes thousands."""
    loop.READ_AHEAD = nth


# The worker: screenshots, record, acknowledgement, commit.


def screenshot_stored(nth: int) -> None:
    """In the middle of an episode."""
    at_store(after, "put", nth_time(nth, die), kind_is("screenshots"))


def letter_written(nth: int) -> None:
    """A record's dead letter is acknowledged, and nothing past the record is journalled."""
    _acknowledged("publish_bytes", lambda topic: topic.endswith(".dlq"), nth)


def before_record(nth: int) -> None:
    """Every screenshot of an episode is in the store, its record was not handed to the producer."""
    before(RecordProducer, "publish", nth_time(nth, die), lambda topic, *_: topic == "trajectories")


def after_record(nth: int) -> None:
    """A trajectory's record is acknowledged, its task is not committed."""
    _acknowledged("publish", lambda topic: topic == "trajectories", nth)


def evaluation_recorded(nth: int) -> None:
    """An evaluation's record is acknowledged, and nobody has heard of it."""
    _acknowledged("publish", lambda topic: topic == "evaluations", nth)


def _acknowledged(name: str, when: Callable[[str], bool], nth: int) -> None:
    original = getattr(RecordProducer, name)
    here = nth_time(nth, die)

    def wrapped(self: RecordProducer, topic: str, *arguments: Any, **named: Any) -> Any:
        future = original(self, topic, *arguments, **named)
        if when(topic):
            future.result(60.0)
            here()
        return future

    setattr(RecordProducer, name, wrapped)


# Clocks: this process's own, as the machine's cannot be set.


def shift_clock(file: Path) -> None:
    """time.time() and the clock of episodes are ahead by as many seconds as `file` says, looked up each time."""
    real = time.time

    def shifted() -> float:
        return real() + float(file.read_text())

    time.time = shifted
    object.__setattr__(SYSTEM_CLOCK, "now", shifted)


def tasks_published(nth: int) -> None:
    """The tasks of a batch stand in the log, and its transaction is open."""
    here = nth_time(nth, die)

    class Dying(fenced.Producer):
        def commit_transaction(self, *arguments: Any) -> None:
            self.flush()
            here()
            super().commit_transaction(*arguments)

    fenced.Producer = Dying


POINTS: dict[str, Callable[[int], None]] = {
    point.__name__: point
    for point in (
        update_journalled,
        adapter_stored,
        version_published,
        tensors_stored,
        manifest_stored,
        pruned_one,
        adapter_pruned,
        checkpoint_before_its_version,
        uploading_beside_an_update,
        half_an_upload,
        stands_still_at_update,
        reads_few_ahead,
        letter_written,
        screenshot_stored,
        before_record,
        after_record,
        evaluation_recorded,
        tasks_published,
    )
}
