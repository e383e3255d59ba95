"""The settings that a process uses: those that it was given, over those in its run's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distrl.config import Config
from distrl.runs.recorded import RecordedSettings, base_tree, recorded
from distrl.stack.local import connect
from distrl.stack.phones import Share

Given = Callable[[Mapping[str, Any]], Config]
"""Returns the settings that a process was given over a tree of others. Raises ConfigError."""


def over_recorded(here: Config, given: Given, share: Share = "all") -> tuple[Config, RecordedSettings | None]:
    """(`given` over the settings in the run's log, those of the log); (`here`, None) where the log has none.

    here: any settings of this version that name the run and its broker. Raises BrokerError, WireError, and ConfigError
    where the two cannot be combined.
    """
    found = recorded(here)
    if found is None:
        return here, None
    return connect(given(base_tree(found, here)), share), found
