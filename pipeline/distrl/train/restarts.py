"""When a role or a server that has ended is started again. Pure: it owns no clock and no process."""

from __future__ import annotations

from dataclasses import dataclass

PAUSES_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Before each further start of a role that keeps ending soon; the last one repeats."""
SOON_S = 120.0
"""A role that ends sooner after its start has hardly worked. Longer than a role waits for a broker that is away, and
than its imports take on a busy machine: were they taken for work, wrong settings would be tried for ever."""
TRIES = 4
"""Starts of a role that has never lived for SOON_S. After them its settings are at fault, and people have to look."""


@dataclass
class Restarts:
    """The ends of one of them, and what follows from each."""

    tries: int = TRIES
    started_s: float = 0.0
    """When it was started last, by the ticks of the caller's clock."""
    again_s: float | None = None
    """When it is to be started again; None while it runs, or once it is done."""
    count: int = 0
    """Times that it was started again."""
    _soon: int = 0
    """Ends soon after the start, one after the other."""
    _has_lived: bool = False

    def started(self, now_s: float) -> None:
        self.started_s, self.again_s = now_s, None

    def ended(self, now_s: float) -> float | None:
        """As `after`; from then on `again_s` says when."""
        pause_s = self.after(now_s - self.started_s)
        if pause_s is not None:
            self.again_s = now_s + pause_s
        return pause_s

    def after(self, lived_s: float) -> float | None:
        """The pause before the next start of a role that ended after `lived_s`, in seconds; None: do not try again."""
        lasted = lived_s >= SOON_S
        self._has_lived |= lasted
        self._soon = 0 if lasted else self._soon + 1
        if not self._has_lived and self._soon >= self.tries:
            return None
        self.count += 1
        return PAUSES_S[min(max(self._soon - 1, 0), len(PAUSES_S) - 1)]
