"""A folder that is written whole or not at all: under a temporary name beside its place, and then renamed.

A folder that exists is replaced with `force` alone, and only where such an export made it and every file in it has a
name that its format uses.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from distrl.errors import ConfigError, StoreError
from distrl.store.directory import sync, sync_all

MANIFEST: Final = "manifest.json"
"""Describes what the folder holds. Its "format" tells folders that such an export made from others."""


@dataclass(frozen=True, slots=True)
class FolderFormat:
    """A kind of folder."""

    name: str
    """As the manifest has it."""
    files: re.Pattern[str]
    """Matches the whole path in the folder of each file that it can hold, beside the manifest."""


class NewFolder:
    """A context manager: without `commit` nothing is left behind.

    Raises ConfigError, before anything is written, as `refuse_folder`, and where the folder cannot be made.
    """

    def __init__(self, place: Path, form: FolderFormat, force: bool) -> None:
        refuse_folder(place, form, force)
        self.place, self._form, self._force = place, form, force
        self._at = place.resolve()  # `.` and `..` have no name; and the working directory may be what is replaced
        own = secrets.token_hex(8)  # not the process id: in containers all have the same
        self.partial = self._at.with_name(f".{self._at.name}.{own}.partial")
        self._old = self._at.with_name(f".{self._at.name}.{own}.old")
        try:
            self.partial.mkdir(parents=True)
        except OSError as error:
            raise ConfigError(str(place), f"cannot be written ({error.strerror})", "name one elsewhere") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        shutil.rmtree(self.partial, ignore_errors=True)

    def commit(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest and give the folder its name.

        Raises OSError, and ConfigError as `refuse_folder`; what was there is then there again.
        """
        text = json.dumps({"format": self._form.name, **manifest}, indent=2, sort_keys=True)
        (self.partial / MANIFEST).write_text(text + "\n", encoding="utf-8")
        sync_all(self.partial)  # before it has its name: a power cut would else leave empty files under it
        refuse_folder(self.place, self._form, self._force)  # again: an export takes long
        if not self._at.exists():
            self.partial.rename(self._at)  # fails where something has come to be there meanwhile
            sync(self._at.parent)
            return
        self._at.rename(self._old)
        try:
            self.partial.rename(self._at)
        except BaseException:
            self._old.rename(self._at)
            raise
        sync(self._at.parent)  # before the old one goes: a power cut leaves one of them
        shutil.rmtree(self._old, ignore_errors=True)

    def not_written(self, error: OSError) -> StoreError:
        return StoreError(
            str(self.place),
            f"could not be written ({error.strerror}); nothing is left of it",
            "make room on the disk, or name a folder elsewhere",
        )


def refuse_folder(place: Path, form: FolderFormat, force: bool) -> None:
    """Raises ConfigError for a path that exists, unless `force` and it is a folder of that format and holds nothing
    else; and for a link, also one that leads nowhere."""
    if place.is_symlink():
        raise ConfigError(str(place), "is a link", "name a folder that is none")
    if not place.exists():
        return
    try:
        ours = json.loads((place / MANIFEST).read_bytes()).get("format") == form.name
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise ConfigError(str(place), f"exists already, and is no {form.name}", "name a folder that is not there")
    if not force:
        raise ConfigError(str(place), "exists already", "name another folder, or give --force to write over it")
    if (other := _other(place, form)) is not None:
        raise ConfigError(
            str(place), f"holds {other!r}, which no {form.name} has", "move that elsewhere, or name another folder"
        )


def _other(place: Path, form: FolderFormat) -> str | None:
    """The path in `place` of something that no folder of that format holds; None if there is none."""
    unread: list[OSError] = []
    for base, folders, files in os.walk(place, onerror=unread.append):
        for path in (Path(base, name) for name in (*folders, *files)):
            inside = path.relative_to(place).as_posix()
            known = path.is_dir() or inside == MANIFEST or form.files.fullmatch(inside)
            if path.is_symlink() or not known:
                return inside
    return str(unread[0].filename) if unread else None
