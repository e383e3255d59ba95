"""How long a demo run has trained so far: its only state that is not in the log. A kill leaves the old numbers."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from distrl.errors import ConfigError
from distrl.files import make_folder, write


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """Durations over all invocations of the demo."""

    setup_seconds: float = 0.0
    """Of the first set-up, including the installation."""
    train_seconds: float = 0.0
    began: int = 0
    """When the run's first settings were recorded, ms since the epoch; 0: not yet, when this was saved."""

    def of(self, began: int | None) -> DemoProgress:
        """The progress of the run that began then; None: its log has no settings. Without durations where these are of
        another run of this name, as after that one was removed.
        """
        if began is None:
            return DemoProgress()
        return replace(self, began=began) if self.began in (0, began) else DemoProgress(began=began)

    def save(self, path: Path) -> None:
        """Raises ConfigError where it cannot be written."""
        make_folder(path.parent)
        write(path, json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, path: Path) -> DemoProgress:
        """The numbers of earlier invocations, else zeros. Raises ConfigError on an unreadable file."""
        try:
            found = cls(**msgspec.json.decode(path.read_bytes()))  # refuses unknown names, which convert does not
            return msgspec.convert(asdict(found), cls)
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError) as error:  # msgspec's own errors are ValueErrors
            raise ConfigError(str(path), f"is not a demo's progress ({error})", f"remove it: rm {path}") from None
