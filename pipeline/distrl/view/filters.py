"""Which episodes a list shows, in which order: a request's parameters, checked, and the SQL that they mean. Pure.

Values go into a statement as parameters only; the column to sort by is one of a fixed list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from distrl.errors import ConfigError
from distrl.offline.find_episode import SEARCHED

MOST_ROWS: Final = 500
ROWS: Final = 100
LARGEST: Final = 2**53 - 1
"""What a browser's numbers hold; SQLite's hold more."""
EQUAL: Final = ("topic", "outcome", "suite", "family", "split", "device", "worker", "task_id", "mode")
"""Columns that a parameter of the same name compares with its value."""
NO_STEPS: Final = "no steps"
"""In place of a mode: a failure without steps has none."""
MODE: Final = f"coalesce(mode, iif(outcome = 'failure', '{NO_STEPS}', NULL))"
RANGES: Final = (
    ("from", "finished_at >="), ("to", "finished_at <"), ("from_offset", '"offset" >='), ("to_offset", '"offset" <'),
)  # fmt: skip
SORTED: Final = ("finished_at", "steps", "lag", "version_last", "outcome", "family", "instruction")
ORDERS: Final = {"asc": "ASC", "desc": "DESC"}
PAGE: Final = ("offset", "limit")
EPISODES: Final = (*EQUAL, "version", "text", *dict(RANGES), "sort", "order", "upto")
"""Parameters that choose and sort episodes."""
NULLS: Final = {"ASC": " NULLS LAST", "DESC": ""}
"""SQLite has nulls first."""


@dataclass(frozen=True, slots=True)
class Page:
    offset: int
    limit: int

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> Page:
        """Raises ConfigError."""
        offset, limit = number(asked, "offset"), number(asked, "limit")
        return cls(0 if offset is None else offset, ROWS if limit is None else min(limit, MOST_ROWS))


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """where: SQL, with a `?` for each of `values`. order: SQL.

    `upto` is the number of the last row that a list may show, so that its pages do not shift while records come.
    """

    where: str
    values: tuple[str | int, ...]
    order: str
    upto: int | None = None

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> EpisodeFilter:
        """Raises ConfigError for a parameter that is malformed."""
        terms: list[tuple[str, tuple[str | int, ...]]] = [
            (f"{MODE if name == 'mode' else name} = ?", (asked[name],)) for name in EQUAL if asked.get(name)
        ]
        if asked.get("topic"):
            one_of("topic", asked["topic"], SEARCHED)
        version = number(asked, "version", least=-2)
        if version is not None:
            terms.append(("coalesce(evaluated = ?, version_first <= ? AND version_last >= ?)", (version,) * 3))
        if asked.get("text"):
            wanted = f"%{_escaped(asked['text'])}%"
            terms.append(("(instruction LIKE ? ESCAPE '\\' OR task_id LIKE ? ESCAPE '\\')", (wanted, wanted)))
        for name, comparison in RANGES:
            bound = number(asked, name)
            if bound is not None:
                terms.append((f"{comparison} ?", (bound,)))
        upto = number(asked, "upto")
        if upto is not None:
            terms.append(("rowid <= ?", (upto,)))
        column = one_of("sort", asked.get("sort") or "finished_at", SORTED)
        order = ORDERS[one_of("order", asked.get("order") or "desc", tuple(ORDERS))]
        return cls(
            " AND ".join(term for term, _ in terms) or "1",
            tuple(value for _, values in terms for value in values),
            f"{column} {order}{NULLS[order]}, rowid {order}",
            upto,
        )


def only_known(asked: Iterable[str], known: tuple[str, ...]) -> None:
    """Raises ConfigError for the name of a parameter that is none of those."""
    for name in asked:
        if name not in known:
            hint = f"use one of: {', '.join(known)}" if known else "leave it out: this address takes none"
            raise ConfigError(name[:40], "is no parameter of this address", hint)


def number(asked: Mapping[str, str], name: str, least: int = 0) -> int | None:
    """The whole number of a parameter; None where it is not given. Raises ConfigError."""
    text = asked.get(name, "").strip()
    if not text:
        return None
    digits = text.removeprefix("-") if least < 0 else text
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 16 and least <= int(text) <= LARGEST):
        raise ConfigError(
            name, f"{text[:40]!r} is no whole number of {least} or more", f"write {name}=1, or leave it out"
        )
    return int(text)


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """`value`. Raises ConfigError where it is none of those."""
    if value not in allowed:
        raise ConfigError(name, f"{value[:40]!r} is not known", f"use one of: {', '.join(allowed)}")
    return value


def _escaped(text: str) -> str:
    """For LIKE: its own characters stand for themselves."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
