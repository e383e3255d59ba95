"""The table of `distrl devices` in an ordinary terminal."""

from __future__ import annotations

import io

from distrl.cli.devices import phones_table
from distrl.device.about import About
from distrl.types import DeviceHealth
from rich.console import Console


def told(*phones: tuple[About, DeviceHealth | None]) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=80).print(phones_table(phones))
    return out.getvalue().splitlines()


def about(at: int, fault: str = "") -> About:
    focus = "com.sim.launcher/com.sim.launcher.Home"
    return About(f"127.0.0.1:{26000 + at}", "device", "128x256", "14", "Simulated_Phone", focus, fault)


def test_a_column_in_which_nobody_has_anything_is_left_out_and_a_phone_takes_a_few_lines() -> None:
    lines = told(*((about(at), None) for at in range(12)))
    assert not any(name in lines[1] for name in ("held by", "worker", "counted", "trouble"))
    assert sum("/.Home" in line for line in lines) == 12
    assert len(lines) <= 4 + 12 * 2


def test_counters_that_are_not_0_are_named_and_so_is_what_went_wrong() -> None:
    shown = " ".join(told((about(0, "no answer"), DeviceHealth("", "leased", {"leases": 3, "retries": 0}))))
    assert "leases 3" in shown
    assert "retries" not in shown
    assert "no answer" in shown


def test_where_there_is_no_phone_the_table_has_a_head() -> None:
    assert "serial" in told()[1]
