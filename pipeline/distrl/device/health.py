"""When a phone that failed may be tried again. Pure: it is told what happened and when, and owns no clock.

The first failure after a success is mended at once, by stopping the app in front or by a new connection. Each further
one in a row keeps the phone in quarantine twice as long as the one before, up to QUARANTINE_MAX_S.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

QUARANTINE_S = 1.0
QUARANTINE_MAX_S = 60.0
COUNTERS = (
    "leases", "retries", "interrupted", "app_recoveries", "reconnects", "restarts", "quarantines", "foreign_apps",
)  # fmt: skip
"""leases: how often it was lent. retries: broken screenshots taken again. interrupted: leases that ended in a failure.
app_recoveries: times after a failure that it was sent home and the app in front stopped. reconnects: new connections
made after a failure. restarts: of its emulator. quarantines: times it was put aside. foreign_apps: times it was brought
back from an app that is not allowed."""


@dataclass(frozen=True, slots=True)
class Health:
    """failures: in a row, leases that failed and connections that could not be made; a lease that failed after an
    episode that did not begins another row. due: not tried before then.
    connected: whether it was heard since it last failed; if not, it needs a connection before it is lent.
    """

    failures: int = 0
    due: float = 0.0
    connected: bool = False

    def failed(self, now: float) -> Health:
        failures = self.failures + 1
        return Health(failures, now + quarantine_s(failures))

    def mended(self) -> Health:
        """It answers again. Its failures count until a lease ends well: it may fail again at once."""
        return replace(self, connected=True)

    def succeeded(self) -> Health:
        return Health(connected=True)


def quarantine_s(failures: int) -> float:
    """Seconds to wait after that many failures in a row: 0, then 1, 2, 4, … up to QUARANTINE_MAX_S."""
    if failures <= 1:
        return 0.0
    return float(min(QUARANTINE_MAX_S, QUARANTINE_S * 2 ** min(failures - 2, 30)))
