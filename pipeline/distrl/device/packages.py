"""Matches packages against devices.allowed_packages."""

from __future__ import annotations

from collections.abc import Iterable


def allowed(package: str, patterns: Iterable[str]) -> bool:
    """Whether a pattern of devices.allowed_packages covers `package`: its name, or `com.example.*` for all below."""
    return any(package == each or (each.endswith(".*") and package.startswith(each[:-1])) for each in patterns)
