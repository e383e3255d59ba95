"""An export of episodes with their screenshots as a folder: what every form of it shares."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from distrl.broker.topics import TOPICS
from distrl.errors import ConfigError
from distrl.offline.export import Digest
from distrl.offline.new_folder import FolderFormat, NewFolder
from distrl.offline.replay import Item
from distrl.offline.screens import Fetch, Screens
from distrl.offline.topic_range import TopicRange
from distrl.types import Evaluation, Trajectory


class EpisodeFolder(ABC):
    """One folder being written. A context manager: without `finish` nothing is left behind.

    Raises ConfigError, before anything is read, for a topic without episodes, a folder that exists (unless `force`, and
    it is one of this form), and one that cannot be written.
    """

    form: ClassVar[FolderFormat]

    def __init__(self, topic_range: TopicRange, folder: Path, fetch: Fetch, force: bool = False) -> None:
        if TOPICS[topic_range.topic].record not in (Trajectory, Evaluation):
            raise ConfigError(
                topic_range.topic, "has no screenshots", "name trajectories, demonstrations or evaluations with --topic"
            )
        self._range, self._screens, self._digest = topic_range, Screens(fetch), Digest()
        self._folder = NewFolder(folder, self.form, force)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.__exit__(kind, error, trace)

    def put(self, item: Item) -> None:
        """Add the next record; one that cannot be decoded goes into the manifest only. Raises StoreError."""
        self._digest.put(item)
        try:
            self._put(item)
        except OSError as error:
            raise self._folder.not_written(error) from None

    def finish(self) -> str:
        """Write the manifest, rename the folder; returns a line for people. Raises StoreError where it fails, and
        ConfigError where something has come to be at its place."""
        try:
            own = self._finish()
            self._folder.commit(
                {
                    **self._range.to_dict(),
                    **self._digest.summary(),
                    **own,
                    "absent_screenshots": sorted(self._screens.absent),
                }
            )
        except OSError as error:
            raise self._folder.not_written(error) from None
        return f"{self._folder.place}: {self._summary()}{self._screens.summary}"

    @abstractmethod
    def _put(self, item: Item) -> None:
        """Write what the form has of a record. May raise OSError."""

    @abstractmethod
    def _finish(self) -> dict[str, Any]:
        """Write what is left; returns what the manifest says beside the range, its records and what is absent."""

    @abstractmethod
    def _summary(self) -> str:
        """What was written, for people."""
