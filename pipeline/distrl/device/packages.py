"""Names of Android packages: what one is, and which ones a person allows."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

PACKAGE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)+")
"""A task, a model or a phone names them, so each is looked at before it goes into a command."""


def allowed(package: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern of devices.allowed_packages covers `package`: its name, or `com.example.*` for all below."""
    return any(package == each or (each.endswith(".*") and package.startswith(each[:-1])) for each in patterns)
