"""What judges said of an episode, where its place in the log leads to it: `distrl judge` writes, pages read.

An object for each judge, beside the cache of answers, which is found by the question alone. Nothing is learned from it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from distrl.judge.question import Verdict
from distrl.text import encodable
from distrl.types import Outcome

MOST_JUDGES: Final = 50
"""Of one episode, whose verdicts are read."""
MOST_LETTERS: Final = 2_000
"""Of a source or a reason."""


class Shelf(Protocol):
    """An object store implements it."""

    def put_named(self, key: str, data: bytes) -> None: ...
    def get_named(self, key: str) -> bytes | None: ...
    def list(self, prefix: str) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class Episode:
    """Where the verdicts of an episode are. folder: of all verdicts of its run. The rest is its place in the log."""

    folder: str
    topic: str
    partition: int
    offset: int

    @property
    def prefix(self) -> str:
        return f"{self.folder}/episodes/{self.topic}/{self.partition}/{self.offset}/"


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict, and whose it is: source as in records, `vlm:MODEL`."""

    source: str
    verdict: Verdict


def put(shelf: Shelf, episode: Episode, said: Said) -> None:
    """Write it over an earlier one of the same source, unless it is UNKNOWN: that may be no answer at all. Raises
    StoreError."""
    name = hashlib.sha256(said.source.encode(errors="surrogatepass")).hexdigest()
    key = f"{episode.prefix}{name}.json"
    if said.verdict.outcome is Outcome.UNKNOWN and shelf.get_named(key) is not None:
        return
    text = {"source": said.source, "outcome": said.verdict.outcome.value, "reason": said.verdict.reason}
    shelf.put_named(key, json.dumps(text).encode())


def said_of(shelf: Shelf, episode: Episode) -> tuple[list[Said], int]:
    """What was said of an episode, by source, and how many objects of its folder are no verdict. Raises StoreError."""
    keys = itertools.islice(shelf.list(episode.prefix), MOST_JUDGES)
    read = [_read(data) for key in keys if (data := shelf.get_named(key)) is not None]
    found = [each for each in read if each is not None]
    return sorted(found, key=lambda each: each.source), len(read) - len(found)


def _read(data: bytes) -> Said | None:
    try:
        found = json.loads(data)
        return Said(_text(found["source"]), Verdict(Outcome(found["outcome"]), _text(found["reason"])))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _text(value: object) -> str:
    return encodable(str(value)[:MOST_LETTERS])
