"""The sections for phones: the adb server, real phones and emulators, simulated phones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator
from simphone.fleet import WIDEST_SIGMA, PhoneProfile
from simphone.generations import NEWEST, generation_of

from distrl import names
from distrl.addresses import expanded
from distrl.config.effects import LOCAL, Section

NAME_OR_NONE = rf"^({names.DEVICE.pattern})?$"
LAST_CONSOLE_PORT = 5682
"""Emulators take two ports each from 5554 on, 64 at most (developer.android.com/studio/run/emulator-commandline)."""
OWN_ARGUMENTS = frozenset(
    ("-avd", "-port", "-ports", "-snapshot", "-read-only", "-no-snapshot", "-no-snapshot-load", "-no-snapshot-save")
)
LONGEST_LEASE_S = 3600.0
"""Longest time to live of a phone's lease. No host waits longer for another's lease, since the names of leases on a
phone are untrusted."""
OPERATIONS_PER_LEASE = 3
"""Least time to live of a phone's lease, in operations: it is no longer used when a third of it is left."""
PACKAGES = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)*(\.\*)?", re.ASCII)
"""A package, or with a final `.*` all packages below it."""


def _packages(values: tuple[str, ...]) -> tuple[str, ...]:
    for value in values:
        if not PACKAGES.fullmatch(value):
            raise ValueError(f"{value!r} is no package: write com.example.shop, or com.example.* for all below it")
    return values


class AdbSettings(Section):
    local: ClassVar[bool] = True

    host: str = "127.0.0.1"
    port: int = Field(25037, ge=1, le=65535, description="the adb server's port; never the user's 5037 by default")
    binary: Path | None = Field(None, description="the adb program; the one in adbutils' wheel unless named")
    usb: bool = Field(
        False,
        description="whether an adb server that DistRL starts takes the phones on this machine's USB ports; one server "
        "has them at a time, so stop another (`adb kill-server`), or let adb.port name it",
    )


class EmulatorSettings(Section):
    """Emulators that a role with phones starts itself, waits for, drives and ends: docs/emulators.md."""

    local: ClassVar[bool] = True

    avd: str = Field("", pattern=NAME_OR_NONE, description="the Android virtual device that every emulator runs")
    count: int = Field(0, ge=0, le=64, description="how many to start; 0 starts none")
    first_port: int = Field(
        5554,
        ge=5554,
        le=LAST_CONSOLE_PORT,
        multiple_of=2,
        description="console port of the first; each takes two ports, adb's beside the console's",
    )
    snapshot: str = Field(
        "", pattern=NAME_OR_NONE, description="loaded at the start and before each task; without one each boots cold"
    )
    binary: Path | None = Field(
        None, description="the emulator program; unless named, $ANDROID_HOME/emulator/emulator, else the PATH's"
    )
    arguments: tuple[str, ...] = Field((), description="further arguments of the emulator, such as -gpu and its value")
    boot_timeout_s: float = Field(240.0, gt=0, description="from the start of an emulator to a phone that has booted")
    snapshot_timeout_s: float = Field(60.0, gt=0, description="total deadline of saving or loading a snapshot")
    token_file: Path = Field(
        Path("~/.emulator_console_auth_token"), description="where the emulator keeps the token of its console"
    )

    @property
    def serials(self) -> tuple[str, ...]:
        """As adb names them: emulator-PORT, with the console's port."""
        return tuple(f"emulator-{self.first_port + 2 * number}" for number in range(self.count))

    @model_validator(mode="after")
    def _agree(self) -> EmulatorSettings:
        if self.count and not self.avd:
            raise ValueError("devices.emulators.count needs devices.emulators.avd, the name of a virtual device")
        if self.first_port + 2 * (self.count - 1) > LAST_CONSOLE_PORT:
            raise ValueError(f"{self.count} emulators from devices.emulators.first_port on pass {LAST_CONSOLE_PORT}")
        taken = next((word for word in self.arguments if word in OWN_ARGUMENTS or word.startswith("@")), None)
        if taken is not None:
            raise ValueError(f"devices.emulators.arguments cannot hold {taken}, which other settings decide")
        return self


class DeviceSettings(Section):
    addresses: Annotated[tuple[str, ...], AfterValidator(expanded), LOCAL] = Field(
        (), description="host:port of phones to connect to, also 10.0.0.1-10.0.0.20:5555 and 127.0.0.1:5555-5562"
    )
    serials: Annotated[tuple[str, ...], LOCAL] = Field((), description="serials that the adb server already knows")
    emulators: EmulatorSettings = EmulatorSettings()
    directory: Annotated[Path, LOCAL] = Field(
        Path("~/.cache/distrl/devices"),
        description="where the processes of this machine say which phones they hold; the same for all of them",
    )
    lease_ttl_s: float = Field(
        30.0,
        ge=1,
        le=LONGEST_LEASE_S,
        description="how long a phone stays leased, to other hosts, once its holder renews the lease no more; three "
        "times devices.operation_timeout_s or more",
    )
    operation_timeout_s: float = Field(5.0, gt=0, description="total deadline of one operation on a phone")
    settle_timeout_s: float = Field(3.0, gt=0, description="longest wait for two equal frames after an action")
    settle_poll_s: float = Field(0.02, gt=0, description="pause between two frames while settling")
    settle_unchanged_s: Annotated[float, LOCAL] = Field(
        0.25, ge=0, description="how long a screen that an action did not change must stay so; its app may be slow"
    )
    keyboard: Literal["auto", "input", "service"] = Field(
        "auto",
        description="what types: input (`input text`, printable ASCII), service (ADBKeyBoard on the phone, any text), "
        "or auto: the first where it can, else the second",
    )
    allowed_packages: Annotated[tuple[str, ...], AfterValidator(_packages)] = Field(
        (), description="apps that may be acted in, as names or com.example.*; all if empty; the launcher always"
    )

    @property
    def named(self) -> tuple[str, ...]:
        """The serials of all configured phones."""
        return tuple(dict.fromkeys((*self.addresses, *self.serials, *self.emulators.serials)))


class PhoneSettings(Section):
    """Simulated phones."""

    count: int = Field(8, ge=0, le=512)
    evaluation_count: int = Field(4, ge=0, le=512, description="further phones, for the evaluator alone")
    base_port: Annotated[int, LOCAL] = Field(
        26000, ge=20000, le=60000, description="adb servers probe 5555-5585, so never those"
    )
    seed: int = 0
    popup_probability: float = Field(0.1, ge=0, le=1, description="chance of a pop-up after an action")
    generation: int = Field(
        0, ge=0, le=NEWEST, description="of the apps' look: 1 recoloured, 2 moved, 3 renamed, 4 outlined"
    )
    generations: tuple[Annotated[int, Field(ge=0, le=NEWEST)], ...] = Field(
        (), description="generations of the look, assigned to the phones in turn; all have phones.generation if empty"
    )
    keyboard_service: bool = Field(False, description="whether they have ADBKeyBoard, which types any Unicode")
    latency_median_ms: float = Field(60.0, ge=0)
    latency_sigma: float = Field(
        0.8, ge=0, le=WIDEST_SIGMA, description="of the log-normal latency; larger is heavier-tailed"
    )
    latency_max_ms: float = Field(5_000.0, ge=0)
    profiles: tuple[PhoneProfile, ...] = Field(
        (), description="kinds of phones, assigned in turn (docs/phones.md); all plain if empty"
    )

    def generation_of(self, number: int) -> int:
        """Of the look of phone `number`."""
        return generation_of(number, self.generations, self.generation)
