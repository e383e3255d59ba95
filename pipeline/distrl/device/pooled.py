"""A pool's state of one of its phones."""

from __future__ import annotations

from dataclasses import dataclass, field

from distrl.device.emulator import Emulator
from distrl.device.health import COUNTERS, Health
from distrl.device.leases import Hold
from distrl.device.phone_lease import PhoneLease
from distrl.device.session import AdbSession
from distrl.errors import DeviceError

OF_SESSIONS = ("retries", "foreign_apps", "app_recoveries")
"""Counters that a session has, too."""
IDLE, LEASED, QUARANTINED, HELD = "idle", "leased", "quarantined", "held"


@dataclass
class PooledPhone:
    serial: str
    over_tcp: bool = False
    emulator: Emulator | None = None
    hold: Hold | None = None
    """The lock of its configured name."""
    aliases: dict[str, Hold] = field(default_factory=dict)
    """The locks of its other names."""
    held_by: str = ""
    """Who has it, if another process does."""
    held_until: float = 0.0
    """When that is checked again."""
    lease: PhoneLease | None = None
    """On the phone itself, for other hosts; none for an emulator of this process."""
    lease_holder: str = ""
    """Who had it by such a lease at the last check."""
    fault: DeviceError | None = None
    """Why it did not answer last."""
    health: Health = field(default_factory=Health)
    lent_start: int = 0
    """Which start of its emulator was lent last; 0: none."""
    server_failures: int = 0
    """Failures in a row that were the adb server's, for which an emulator is not restarted."""
    leased: bool = False
    session: AdbSession | None = None
    counters: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTERS, 0))

    @property
    def state(self) -> str:
        if self.leased:
            return LEASED
        if self.held_by:
            return HELD
        return IDLE if self.health.connected else QUARANTINED

    def counted(self) -> dict[str, int]:
        """Its counters, including those of its sessions and its emulator."""
        counted = {name: self.counters[name] + getattr(self.session, name, 0) for name in OF_SESSIONS}
        return self.counters | {
            **counted,
            "restarts": max(0, self.emulator.starts - 1) if self.emulator else 0,
        }

    def end_session(self) -> None:
        """Another will be made; what this one has counted stays."""
        self.counters = self.counted()
        self.session = None

    def release_locks(self) -> None:
        """Release its locks, if this process has them."""
        if self.hold is None:
            return
        for hold in (self.hold, *self.aliases.values()):
            hold.release()
        self.hold = None
        self.aliases.clear()
