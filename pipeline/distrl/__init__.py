"""DistRL on Kafka: asynchronous distributed reinforcement learning for phone agents (arXiv 2410.14803)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distrl.offline.runs import open_run as open_run

__all__ = ["open_run"]


def __getattr__(name: str) -> Any:
    """`distrl.open_run`, imported when it is asked for: importing distrl alone imports nothing."""
    if name == "open_run":
        from distrl.offline.runs import open_run

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
