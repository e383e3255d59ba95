"""What a search finds: names that share words with what was typed, the likest first."""

from __future__ import annotations

from collections.abc import Sequence


def matches(query: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names that share a word with the query; of equally like ones the order stays."""
    return tuple(name for name in likest(query, names) if shared(query, name))


def likest(query: str, names: Sequence[str]) -> tuple[str, ...]:
    """All names, those that share most words with the query first; of equally like ones the order stays."""
    return tuple(sorted(names, key=lambda name: -shared(query, name)))


def shared(query: str, name: str) -> int:
    return len(set(query.lower().split()) & set(name.split()))
