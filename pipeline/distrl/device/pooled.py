"""What a pool knows of one of its phones."""

from __future__ import annotations

from dataclasses import dataclass, field

from distrl.device.emulator import Emulator
from distrl.device.health import COUNTERS, Health
from distrl.device.leases import Hold
from distrl.device.phone_lease import PhoneLease
from distrl.device.session import AdbSession
from distrl.errors import DeviceError

IDLE, LEASED, QUARANTINED, HELD = "idle", "leased", "quarantined", "held"


@dataclass
class PooledPhone:
    """hold: on the name that the configuration gives it; aliases: on its other ones, where it has any. held_by: who
    has it, if another process does, looked at again at held_until. fault: why it did not answer last.
    lease: on the phone itself, which shows other hosts who has it; an emulator of this process needs none. left_to: who
    had it by such a lease when it was last looked at.
    excused: how many of its failures in a row were those of the adb server, which an emulator is not restarted for.
    """

    serial: str
    over_tcp: bool = False
    emulator: Emulator | None = None
    hold: Hold | None = None
    aliases: dict[str, Hold] = field(default_factory=dict)
    held_by: str = ""
    held_until: float = 0.0
    lease: PhoneLease | None = None
    left_to: str = ""
    fault: DeviceError | None = None
    health: Health = field(default_factory=Health)
    excused: int = 0
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
        """Its counters, those of its session and its emulator among them."""
        session = self.session
        return self.counters | {
            "retries": session.retries if session else 0,
            "foreign_apps": session.foreign_apps if session else 0,
            "app_recoveries": session.app_recoveries if session else 0,
            "restarts": max(0, self.emulator.starts - 1) if self.emulator else 0,
        }

    def let_go(self) -> None:
        """Leave it to other processes, if it is this one's."""
        if self.hold is None:
            return
        for hold in (self.hold, *self.aliases.values()):
            hold.release()
        self.hold = None
        self.aliases.clear()
