"""A folder that is written whole or not at all: under a temporary name beside its place, and then renamed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from distrl.errors import ConfigError, StoreError

MANIFEST: Final = "manifest.json"
"""What is in it, by which it is known for one of ours; its "format" names who wrote it."""


class NewFolder:
    """A context manager: without `commit` nothing is left behind.

    Raises ConfigError, before anything is written, as `refuse_folder`, and where the folder cannot be made.
    """

    def __init__(self, place: Path, form: str, force: bool) -> None:
        refuse_folder(place, form, force)
        self.place, self._form = place, form
        self.partial = place.with_name(f".{place.name}.{os.getpid()}.partial")
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
        """Write the manifest and give the folder its name. Raises OSError."""
        text = json.dumps({"format": self._form, **manifest}, indent=2, sort_keys=True)
        (self.partial / MANIFEST).write_text(text + "\n", encoding="utf-8")
        if self.place.exists():
            shutil.rmtree(self.place)
        self.partial.replace(self.place)

    def not_written(self, error: OSError) -> StoreError:
        return StoreError(
            str(self.place),
            f"could not be written ({error.strerror}); nothing is left of it",
            "make room on the disk, or name a folder elsewhere",
        )


def refuse_folder(place: Path, form: str, force: bool) -> None:
    """Raises ConfigError for a path that exists, unless `force` and it is a folder of that format."""
    if not place.exists():
        return
    try:
        ours = json.loads((place / MANIFEST).read_bytes()).get("format") == form
    except (OSError, ValueError, AttributeError):
        ours = False
    if not ours:
        raise ConfigError(str(place), f"exists already, and is no {form}", "name a folder that is not there")
    if not force:
        raise ConfigError(str(place), "exists already", "name another folder, or give --force to write over it")
