"""What all parts of the stack have in common: name, address, process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distrl.errors import StackError
from distrl.stack.processes import Child


class UnavailableError(StackError):
    """This machine cannot provide the server that is asked for."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part that is up."""

    name: str
    where: str
    """Its address for clients (host:port, a URL, a range of ports)."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What it was started with (JSON-able); a part with other settings than wanted is restarted."""
    child: Child | None = None
    """None if it needs no process of ours (the directory store, somebody else's adb server)."""
    started_by: str = ""
    """LocalStack's `owner`; "" for `distrl up`."""

    def lives(self) -> bool:
        return self.child is None or self.child.lives()


@dataclass(frozen=True, slots=True)
class Site:
    """Where the parts are started: both folders are absolute."""

    directory: Path
    """Data, logs and pid files of this stack."""
    cache: Path
    """What is fetched or built once per user."""
    cancelled: threading.Event
    """Set when another part has failed or a person has pressed Ctrl-C; ends every wait."""
    report: Callable[[str], None]
    """Receives short progress messages."""
