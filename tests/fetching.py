"""What the real servers are made of: fetched and built once per user, before the first test.

No test's own time limit may pay for it, and a test session says what its objects go to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from distrl.config import load
from distrl.errors import DistrlError, StackError
from distrl.stack import jars, minio
from distrl.stack.minio import Kind

Say = Callable[[str], None]


def cache() -> Path:
    """The user's cache, which is shared with `make demo`."""
    return load().stack.cache.expanduser().absolute()


def fetch_servers(say: Say) -> None:
    """Have Kafka's jars and a MinIO, if there is a way to have one, side by side. Safe in several processes at once."""
    with ThreadPoolExecutor(2) as pool:
        fetched = pool.submit(_kafka, say)
        say(f"objects: {pool.submit(_objects, say).result()}")
        fetched.result()


def _kafka(say: Say) -> None:
    if jars.present(cache()):
        return
    say("fetching Apache Kafka (45 MB, once)")
    try:
        jars.class_path(cache())
    except DistrlError as error:
        say(str(error))  # the tests that need it fail with the same words


def _objects(say: Say) -> str:
    """Build MinIO if that is how it is had here. Returns what the object store of the tests is."""
    way = minio.way(cache())
    if way.kind is Kind.BUILD:
        try:
            minio.build(cache(), say, threading.Event())
        except StackError as error:
            return f"a directory ({error.what})"
        return "real MinIO, built just now"
    return f"a directory ({way.why})" if way.kind is Kind.NONE else f"real MinIO ({way.why})"
