"""The settings with which a tiny base model that has its words learns a built-in suite. Pure."""

from __future__ import annotations

from typing import Final

CLONED: Final = 24
"""Updates of cloning for suites of many families or long ways. After the 12 of `home` their demonstrations are hardly
learned: docs/learning.md, "Other suites"."""
LONGER: Final = ("general", "webshop", "install", "googleapps")


def sets_of(suite: str) -> tuple[str, ...]:
    """As path=value; a later one of the same path counts."""
    return (f"feeder.suite={suite}", *([f"warmup.updates={CLONED}"] if suite in LONGER else []))
