"""Decides when a role or a server that has ended is started again. Pure: it owns no clock and no process."""

from __future__ import annotations

from dataclasses import dataclass

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Pauses before each further start of a role that keeps ending soon after its start; the last one repeats."""
SOON_S = 120.0
"""A role that ends sooner than this after its start counts as one that has not worked. It is longer than a role waits
for a broker that does not answer, and than its imports take on a busy machine: if these counted as work, a role with
wrong settings would be restarted for ever."""
TRIES = 4
"""Most starts of a role that has never run for SOON_S. After them a person has to look: its settings must be wrong."""


@dataclass
class Restarts:
    """The restarts of one role or server."""

    tries: int = TRIES
    started_s: float = 0.0
    """When it was last started, by the ticks of the caller's clock."""
    again_s: float | None = None
    """When it is to be started again; None while it runs, or once it is done."""
    count: int = 0
    """How often it was started again."""
    _soon: int = 0
    """How often in a row it ended within SOON_S."""
    _has_lived: bool = False
    """Whether it has ever run for SOON_S."""

    def started(self, now_s: float) -> None:
        self.started_s, self.again_s = now_s, None

    def ended(self, now_s: float) -> float | None:
        """As `after`, and sets `again_s`."""
        pause_s = self.after(now_s - self.started_s)
        if pause_s is not None:
            self.again_s = now_s + pause_s
        return pause_s

    def after(self, lived_s: float) -> float | None:
        """Seconds until the next start of a role that ended after `lived_s` seconds; None: do not start it again."""
        lasted = lived_s >= SOON_S
        self._has_lived |= lasted
        self._soon = 0 if lasted else self._soon + 1
        if not self._has_lived and self._soon >= self.tries:
            return None
        self.count += 1
        return PAUSES_S[min(max(self._soon - 1, 0), len(PAUSES_S) - 1)]
