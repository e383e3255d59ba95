"""The episodes of a folder of gzip'd TFRecord files, one after another; a folder may be larger than the memory.

A damaged episode is skipped with the reason, and so is the rest of a file after a damaged place. All others are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from distrl.errors import ConfigError
from distrl.recordings import aitw, android_control
from distrl.recordings.episode import EPISODE_ID, RECORDS, RESTS, Dataset, RecordedEpisode, Unreadable
from distrl.recordings.example import Features
from distrl.recordings.tfrecord import is_gzip, records

MARKS = {Dataset.ANDROID_CONTROL: android_control.MARK, Dataset.AITW: aitw.MARK}
ONE_A_LINE: Final = "name a text file with the id of an episode on each line"
Found = RecordedEpisode | Unreadable
_Example = tuple[str, Features]
"""File and record, and what the record holds."""


def files_of(folder: Path) -> list[Path]:
    """Its gzip files by name; splits and other files are left alone. Raises ConfigError where there is none."""
    try:
        found = sorted(path for path in folder.iterdir() if path.is_file() and is_gzip(path))
    except OSError as error:
        raise ConfigError(
            "--episodes",
            f"{error.filename or folder}: {error.strerror}",
            "name the folder that holds the data set's files, all of which can be read",
        ) from None
    if not found:
        raise ConfigError(
            "--episodes",
            f"{folder} has no gzip'd TFRecord file",
            "name the folder with files like android_control-00000-of-00020, as they are published",
        )
    return found


def ids_in(path: Path) -> frozenset[str]:
    """The episode ids of a text file, one a line; empty lines count for nothing. Raises ConfigError for a file without
    one or that cannot be read, and for a line that is no id."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError("--without", f"{path}: {why}", ONE_A_LINE) from None
    found = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    for number, each in found.items():
        if not EPISODE_ID.fullmatch(each):
            raise ConfigError("--without", f"{path}, line {number}: {each!r:.80} is no id of an episode", ONE_A_LINE)
    if not found:
        raise ConfigError("--without", f"{path} names no episode", ONE_A_LINE)
    return frozenset(found.values())


def dataset_of(files: list[Path]) -> Dataset:
    """Which data set the first record that can be read is of. Raises ConfigError where that is not known."""
    why = "their records are of no data set known here"
    for path in files:
        for each in _examples(path):
            if isinstance(each, Unreadable):
                why = str(each)
                break
            for dataset, mark in MARKS.items():
                if mark in each[1]:
                    return dataset
            break
    raise ConfigError(
        "--episodes",
        f"the format of {files[0].parent} is not known: {why}",
        f"name it with --format, one of {', '.join(Dataset)}, or fetch the files again",
    )


def episodes(
    files: list[Path], dataset: Dataset, begun: Callable[[Path], object] = lambda path: None
) -> Iterator[Found]:
    """The episodes of `files`, in their order. begun: called with each file before it is read."""

    def examples() -> Iterator[_Example | Unreadable]:
        for path in files:
            begun(path)
            yield from _examples(path)

    return _each(examples()) if dataset is Dataset.ANDROID_CONTROL else _grouped(examples())


def _examples(path: Path) -> Iterator[_Example | Unreadable]:
    number = 0
    try:
        for number, data in enumerate(records(path), 1):
            where = f"{path.name}, record {number - 1}"
            try:
                yield where, Features(data)
            except ValueError as error:
                yield Unreadable(where, str(error), RECORDS)
    except (ValueError, OSError) as error:
        why = f"{error}; the rest of the file is not read: fetch it again"
        yield Unreadable(f"{path.name}, record {number}", why, RESTS)


def _each(examples: Iterator[_Example | Unreadable]) -> Iterator[Found]:
    for each in examples:
        if isinstance(each, Unreadable):
            yield each
            continue
        where, features = each
        try:
            yield android_control.episode_of(features, where)
        except ValueError as error:
            yield Unreadable(where, str(error))


def _grouped(examples: Iterator[_Example | Unreadable]) -> Iterator[Found]:
    """Steps that follow each other with one id are an episode. Another file may go on with it."""
    group: _Group | None = None
    for each in examples:
        if isinstance(each, Unreadable):
            yield each
            continue
        where, features = each
        try:
            episode_id = aitw.id_of(features)
        except ValueError as error:
            yield Unreadable(where, str(error), RECORDS)
            continue
        if group is None or group.episode_id != episode_id:
            if group is not None:
                yield group.ended()
            group = _Group(episode_id, where)
        group.add(features)
    if group is not None:
        yield group.ended()


class _Group:
    """The steps of one episode so far. Once one is spoilt no further one is kept."""

    def __init__(self, episode_id: str, where: str) -> None:
        self.episode_id = episode_id
        self._where = where
        self._parts: list[aitw.Part] = []
        self._spoilt = ""

    def add(self, features: Features) -> None:
        try:
            if not self._spoilt:
                self._parts.append(aitw.part_of(features))
                if len(self._parts) > self._parts[0].length:
                    raise ValueError("it has more steps than its length")
        except ValueError as error:
            self._spoilt, self._parts = str(error), []

    def ended(self) -> Found:
        try:
            if self._spoilt:
                raise ValueError(self._spoilt)
            return aitw.assembled(self.episode_id, self._parts, self._where)
        except ValueError as error:
            return Unreadable(self._where, f"episode {self.episode_id}: {error}")
