"""How long a demo run has trained so far: its only state that is not in the log.

Written to a temporary file and renamed, so that a kill leaves the old numbers.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from distrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """Durations over all invocations of the demo."""

    setup_seconds: float = 0.0
    """Of the first set-up, including the installation."""
    train_seconds: float = 0.0

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        with fresh.open("w") as file:
            file.write(json.dumps(asdict(self)))
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave an empty file under the name
        os.replace(fresh, path)

    @classmethod
    def load(cls, path: Path) -> DemoProgress:
        """The numbers of earlier invocations, else zeros. Raises ConfigError on an unreadable file."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return cls()
        except (ValueError, TypeError) as error:
            raise ConfigError(str(path), f"is not a demo's progress ({error})", f"remove it: rm {path}") from None
