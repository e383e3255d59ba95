"""Valid names of Android packages and devices. They come from people, tasks, models and phones, and go into
commands."""

from __future__ import annotations

import re
from typing import Final

PACKAGE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
"""One package: two words or more, with dots between."""
DEVICE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""A virtual device or a snapshot, as avdmanager accepts them: one word that does not begin like an option, so that a
name cannot inject a command."""
