"""The judges' verdicts of an episode, stored under its position in the log. `distrl judge` writes them, the view's
pages read them.

Each judge has an object there, beside the cache of answers, whose names follow from the questions alone. Nothing is
learned from these verdicts.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from distrl.judge.question import Verdict
from distrl.text import encodable
from distrl.types import Outcome

NAME: Final = re.compile(r"[0-9a-f]{64}\.json")
"""Of a verdict in its episode's folder."""
MOST_JUDGES: Final = 50
"""Most objects of one episode's folder that are looked at."""
MOST_LETTERS: Final = 2_000
"""Most characters of a source or a reason that are read."""


class Shelf(Protocol):
    """An object store implements it."""

    def put_named(self, key: str, data: bytes) -> None: ...
    def get_named(self, key: str) -> bytes | None: ...
    def list(self, prefix: str) -> Iterator[str]: ...


@dataclass(frozen=True, slots=True)
class Episode:
    """The place of an episode's verdicts. folder: the one of all verdicts of its run. The other fields are its position
    in the log."""

    folder: str
    topic: str
    partition: int
    offset: int

    @property
    def prefix(self) -> str:
        return f"{self.folder}/episodes/{self.topic}/{self.partition}/{self.offset}/"


@dataclass(frozen=True, slots=True)
class Said:
    """A verdict and its judge. source: as in records, `vlm:MODEL`."""

    source: str
    verdict: Verdict


def put(shelf: Shelf, episode: Episode, said: Said) -> None:
    """Write a verdict over an earlier one of the same source; not if it is UNKNOWN, since the judge may have given no
    answer. Raises StoreError."""
    name = hashlib.sha256(said.source.encode(errors="surrogatepass")).hexdigest()
    key = f"{episode.prefix}{name}.json"
    if said.verdict.outcome is Outcome.UNKNOWN and shelf.get_named(key) is not None:
        return
    text = {"source": said.source, "outcome": said.verdict.outcome.value, "reason": said.verdict.reason}
    shelf.put_named(key, json.dumps(text).encode())


def said_of(shelf: Shelf, episode: Episode) -> tuple[list[Said], int]:
    """The verdicts of an episode, by source, and how many objects of its folder are not verdicts. Raises StoreError."""
    keys = list(itertools.islice(shelf.list(episode.prefix), MOST_JUDGES))
    named = [key for key in keys if NAME.fullmatch(key.removeprefix(episode.prefix))]  # a store refuses other keys
    read = [_read(data) for key in named if (data := shelf.get_named(key)) is not None]
    found = [each for each in read if each is not None]
    return sorted(found, key=lambda each: each.source), len(keys) - len(named) + len(read) - len(found)


def _read(data: bytes) -> Said | None:
    try:
        found = json.loads(data)
        return Said(_text(found["source"]), Verdict(Outcome(found["outcome"]), _text(found["reason"])))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _text(value: object) -> str:
    return encodable(str(value)[:MOST_LETTERS])
