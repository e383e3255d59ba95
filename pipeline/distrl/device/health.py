"""When a phone that failed may be tried again. Pure: times are arguments.

After a first failure the phone is recovered at once, by stopping the app in front or by a new connection. Each further
failure in a row quarantines it twice as long as the one before, up to QUARANTINE_MAX_S.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

QUARANTINE_S = 1.0
QUARANTINE_MAX_S = 60.0
COUNTERS = (
    "leases", "retries", "interrupted", "app_recoveries", "reconnects", "restarts", "quarantines", "foreign_apps",
)  # fmt: skip
"""leases: how often it was leased. retries: broken screenshots taken again. interrupted: leases that failed.
app_recoveries: how often after a failure it was sent home and the app in front stopped. reconnects: new connections
after a failure. restarts: of its emulator. quarantines: how often it was quarantined. foreign_apps: how often it was
brought back from an app that is not allowed."""


@dataclass(frozen=True, slots=True)
class Health:
    """The failures of one phone, and when it may be tried again."""

    failures: int = 0
    """Failed leases and connections in a row. A lease that fails after a good episode starts a new row."""
    due: float = 0.0
    """Not tried before this time."""
    connected: bool = False
    """Whether it answered since it last failed; if not, it is connected before it is leased."""

    def failed(self, now: float) -> Health:
        failures = self.failures + 1
        return Health(failures, now + quarantine_s(failures))

    def recovered(self) -> Health:
        """It answers again. Its failures count until a lease ends well, as it may fail again at once."""
        return replace(self, connected=True)

    def succeeded(self) -> Health:
        return Health(connected=True)


def quarantine_s(failures: int) -> float:
    """Seconds to wait after that many failures in a row: 0, then 1, 2, 4, … up to QUARANTINE_MAX_S."""
    if failures <= 1:
        return 0.0
    return float(min(QUARANTINE_MAX_S, QUARANTINE_S * 2 ** min(failures - 2, 30)))
