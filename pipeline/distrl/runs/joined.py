"""The settings that a process goes by: those that it was given, over those of its run's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distrl.config import Config
from distrl.runs.recorded import RecordedSettings, base_tree, recorded
from distrl.stack.local import connect
from distrl.stack.phones import Share

Given = Callable[[Mapping[str, Any]], Config]
"""The settings that a process was given, over a tree of others. Raises ConfigError."""


def over_recorded(here: Config, given: Given, share: Share = "all") -> tuple[Config, RecordedSettings | None]:
    """`given` over the settings that the run's log has, and these; `here` and None where it has none.

    here: any settings of this version with the run, and with a broker that answers. Raises BrokerError, WireError, and
    ConfigError where the two do not go together.
    """
    found = recorded(here)
    if found is None:
        return here, None
    return connect(given(base_tree(found, here)), share), found
