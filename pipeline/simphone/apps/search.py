"""Search results: names that share words with the query, best match first."""

from __future__ import annotations

from collections.abc import Sequence


def matches(query: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names that share a word with the query, best match first; ties keep their order."""
    return tuple(name for name in likest(query, names) if shared(query, name))


def likest(query: str, names: Sequence[str]) -> tuple[str, ...]:
    """All names, those that share most words with the query first; ties keep their order."""
    return tuple(sorted(names, key=lambda name: -shared(query, name)))


def shared(query: str, name: str) -> int:
    return len(set(query.lower().split()) & set(name.split()))
