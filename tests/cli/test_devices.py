"""The table of `distrl devices` in an ordinary terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from distrl.cli.devices import _by_serial, phones_table
from distrl.device.about import About
from distrl.telemetry.view import HEARTBEAT_STALE_MS, RunView
from distrl.types import DeviceHealth, Heartbeat
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


def test_of_a_holder_whose_lease_has_run_out_that_is_said() -> None:
    held = replace(about(0), holder="process 7 on a-host")
    assert "run out" not in " ".join(told((held, None)))
    shown = told((replace(held, lease_over=True), None))
    cells = [line.split("│")[-2].strip() for line in shown if "│" in line]
    assert "process 7 on a-host; its lease has run out" in " ".join(cells)


def health(state: str, leases: int) -> DeviceHealth:
    return DeviceHealth("10.0.0.5:5555", state, {"leases": leases})


@pytest.mark.parametrize("ended", ["worker-a", "worker-z"])
@pytest.mark.parametrize("state", ["idle", "held"])
def test_a_worker_that_is_gone_does_not_speak_for_the_phone_of_one_that_is_there(ended: str, state: str) -> None:
    view, now = RunView(), HEARTBEAT_STALE_MS * 2
    view.feed(Heartbeat(ended, "worker", 0, None, None, {}, (health("leased", 900),)), 0)
    view.feed(Heartbeat("worker-m", "worker", now, None, None, {}, (health(state, 3),)), now)
    assert _by_serial(view.status(now)) == {"10.0.0.5:5555": health(state, 3)}


@pytest.mark.parametrize("holder", ["worker-a", "worker-z"])
def test_of_two_workers_that_are_there_the_one_that_has_the_phone_speaks_for_it(holder: str) -> None:
    view = RunView()
    view.feed(Heartbeat(holder, "worker", 0, None, None, {}, (health("leased", 900),)), 0)
    view.feed(Heartbeat("worker-m", "worker", 0, None, None, {}, (health("held", 3),)), 0)
    assert _by_serial(view.status(0)) == {"10.0.0.5:5555": health("leased", 900)}


def test_where_there_is_no_phone_the_table_has_a_head() -> None:
    assert "serial" in told()[1]
