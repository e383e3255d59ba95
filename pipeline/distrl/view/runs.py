"""The runs that are shown: of each a follower, and the episodes that were opened last.

A run that was deleted and begun again is shown anew, and so is one whose settings were recorded or changed.

names: the runs to show now; of_run: the settings to read one with. Both may raise DistrlError.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final

from distrl.config import Config, with_run
from distrl.errors import DistrlError, StoreError
from distrl.offline.find_episode import Found, episode_at
from distrl.store.objects import ObjectStore, open_store
from distrl.view.answers import NotThereError
from distrl.view.follow import RunFollower, forget_unused, settings_records
from distrl.view.frugal import frugal
from distrl.view.index import CorruptIndexError, StaleIndexError, copied, delete, reading

LOG = logging.getLogger(__name__)

REFRESH_S: Final = 15.0
"""How old the list of runs may be."""
MOST_EPISODES: Final = 16
"""Opened episodes that are kept: the pictures of one are asked for one by one."""


class ShownRun:
    """One run: its follower, its store, and its episodes by their places. settings: how many records of settings
    `config` is certain to be read from; 0: perhaps none."""

    def __init__(self, config: Config, settings: int) -> None:
        self.config = config
        self.settings = settings
        self.follower = RunFollower(config)
        self.store: ObjectStore = open_store(config.store)
        self._episodes: OrderedDict[tuple[int, str, int, int], Found] = OrderedDict()
        self._turn = threading.Lock()
        self._index = self.follower.path

    @property
    def is_outdated(self) -> bool:
        """Whether the log may have other settings."""
        return self.follower.begun_again or not self.settings or self.follower.settings > self.settings

    def freeze(self, folder: Path) -> None:
        """Follow the run no further, and answer from a copy of its index in `folder`: for what shows one moment.

        Raises DistrlError where the index cannot be read, or the copy not be written.
        """
        self.follower.close()
        copy = folder / f"{self.config.run}.sqlite"
        try:
            with self.index() as source:
                copied(source, copy)
        except StaleIndexError as error:
            raise StoreError(str(self._index), f"the index is gone ({error})", "give the same command again") from error
        self._index = copy

    @contextmanager
    def index(self) -> Iterator[sqlite3.Connection]:
        """A connection to the index. Raises StaleIndexError where it is being made, DistrlError where it cannot be."""
        try:
            with reading(self._index) as connection:
                yield connection
        except CorruptIndexError:
            delete(self._index)
            raise
        except StaleIndexError:
            if self.follower.failure is not None:
                raise self.follower.failure from None
            raise

    def episode(self, topic: str, partition: int, offset: int) -> Found:
        """Read from the log. Raises NotThereError, WireError, BrokerError."""
        place = (self.follower.generation, topic, partition, offset)
        with self._turn:
            found = self._episodes.get(place)
            if found is None:
                found = self._episodes[place] = self._read(topic, partition, offset)
                if len(self._episodes) > MOST_EPISODES:
                    self._episodes.popitem(last=False)
            self._episodes.move_to_end(place)
            return found

    def _read(self, topic: str, partition: int, offset: int) -> Found:
        try:
            return episode_at(frugal(self.config), topic, partition, offset)
        except DistrlError as error:
            if error.where == f"{partition}:{offset}":  # nothing is there
                raise NotThereError(error.where, error.what, error.hint) from error
            raise


class Runs:
    """All of them. Leaving the block ends their followers."""

    def __init__(self, names: Callable[[], Sequence[str]], of_run: Callable[[str], Config]) -> None:
        self._names, self._of_run = names, of_run
        self._shown: dict[str, ShownRun] = {}
        self._failed: dict[str, DistrlError] = {}
        self._turn = threading.Lock()
        self._listed = -REFRESH_S

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for each in self._shown.values():
            each.follower.stop()
        for each in self._shown.values():
            each.follower.close()

    def all(self) -> tuple[list[ShownRun], dict[str, DistrlError]]:
        """Every run by name, and why some cannot be shown.

        Raises DistrlError where the broker cannot list them and none is known: else those are shown from their indexes.
        """
        if self._turn.acquire(blocking=not self._shown):  # one asks the broker, the others do not wait for it
            try:
                if time.monotonic() - self._listed >= REFRESH_S:
                    self._list()
            except DistrlError as error:
                if not self._shown:
                    raise
                self._listed = time.monotonic()
                LOG.warning("the runs cannot be listed: %s", error)
            finally:
                self._turn.release()
        shown = dict(self._shown)
        return [shown[name] for name in sorted(shown)], dict(self._failed)

    def _list(self) -> None:
        names = list(self._names())
        self._listed = time.monotonic()
        for gone in self._shown.keys() - set(names):
            self._shown.pop(gone).follower.close()
        self._failed = {}
        for name in names:
            try:
                self._show(name)
            except DistrlError as error:  # one run that cannot be read must not hide the others
                if name in self._shown:
                    LOG.warning("run %s: %s", name, error)
                else:
                    self._failed[name] = error
        forget_unused({each.follower.path for each in self._shown.values()})

    def _show(self, name: str) -> None:
        shown = self._shown.get(name)
        if shown is not None and not shown.is_outdated:
            return
        again = shown is not None and shown.follower.begun_again
        # Asked before they are read: those that are recorded in between are read the next time.
        other = shown or next(iter(self._shown.values()), None)
        settings = 0 if other is None else settings_records(with_run(other.config, name))
        if shown is not None and not settings and not again:
            return
        config = self._of_run(name)
        if shown is not None and config == shown.config and not again:
            shown.settings = settings
            return
        if shown is not None:
            shown.follower.close()
        self._shown[name] = ShownRun(config, settings)

    def narrow(self, shown: Collection[str], failed: Mapping[str, DistrlError]) -> None:
        """Show these runs from now on, with why others are not, and list no more: for what shows one moment."""
        with self._turn:
            for other in self._shown.keys() - set(shown):
                self._shown.pop(other).follower.close()
            self._failed, self._listed = dict(failed), math.inf

    def get(self, name: str) -> ShownRun:
        """The run, which is followed from now on. Raises NotThereError, and why it cannot be shown."""
        found = self._shown.get(name)
        if found is None or found.is_outdated:
            shown, failed = self.all()
            found = next((each for each in shown if each.config.run == name), None)
            if found is None:
                if name in failed:
                    raise failed[name]
                known = ", ".join(each.config.run for each in shown[:8]) or "none"
                raise NotThereError("run", f"no run {name[:80]!r} is shown here", f"shown are: {known}")
        found.follower.touch()
        return found
