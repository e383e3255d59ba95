"""What the real servers are made of: fetched once per user, before the first test.

No test's own time limit may pay for it, and a test session says what its objects go to.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from distrl.config import load
from distrl.errors import DistrlError
from distrl.stack import jars, minio

Say = Callable[[str], None]


def cache() -> Path:
    """The user's cache, which is shared with `make demo`."""
    return load().stack.cache.expanduser().absolute()


def fetch_servers(say: Say) -> None:
    """Have the jars of Kafka and S3Proxy, side by side. Safe in several processes at once."""
    say(f"objects: {objects()}")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: _fetch(each, say), (jars.KAFKA, jars.S3PROXY)))


def objects() -> str:
    """What the object store of the tests is."""
    way = minio.way(cache())
    return f"real MinIO ({way.why})" if way.runs else f"S3Proxy {jars.S3PROXY.version} ({way.why})"


def _fetch(server: jars.Jars, say: Say) -> None:
    if server.present(cache()):
        return
    say(f"fetching {server.name} ({server.megabytes} MB, once)")
    try:
        server.class_path(cache())
    except DistrlError as error:
        say(str(error))  # the tests that need it fail with the same words
