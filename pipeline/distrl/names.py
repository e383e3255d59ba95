"""What Android things may be called: a person, a task, a model or a phone names them, and they go into commands."""

from __future__ import annotations

import re
from typing import Final

PACKAGE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
"""One package: two words at least, with dots between."""
DEVICE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
"""A virtual device or a snapshot, as avdmanager takes them: one word, so that no name holds a second command, and none
begins like an option."""
