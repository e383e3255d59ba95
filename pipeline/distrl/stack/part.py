"""What every part of the stack has in common: the name it goes by, where it is reached, the process behind it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distrl.stack.processes import Child


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is up.

    where: how a client reaches it (host:port, a URL, a range of ports).
    settings: what it was started with (JSON-able); a part with other settings than wanted is started again.
    child: None for what needs no process (the directory store, somebody else's adb server).
    started_by: who started it, as LocalStack's `owner` says; "" for `distrl up`.
    """

    name: str
    where: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    child: Child | None = None
    started_by: str = ""

    def lives(self) -> bool:
        return self.child is None or self.child.lives()


@dataclass(frozen=True, slots=True)
class Site:
    """Where the parts are started: both folders are absolute.

    directory: data, logs and pid files of this stack. cache: what is fetched or built once per user.
    cancelled: set when the others have failed or a person has pressed Ctrl-C; every wait looks at it.
    say: told in a few words what takes long.
    """

    directory: Path
    cache: Path
    cancelled: threading.Event
    say: Callable[[str], None]
