"""`distrl devices`: the phones, as adb and as the workers see them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.table import Table

from distrl.cli.common import ConfigFile, Sets, connected, console, row, table
from distrl.device.health import COUNTERS

if TYPE_CHECKING:
    from distrl.config import Config
    from distrl.device.about import About
    from distrl.telemetry.view import RunStatus
    from distrl.types import DeviceHealth

COLUMNS = ("serial", "adb", "phone", "in front", "held by", "worker", "counted", "trouble")
"""phone: model, Android, screen. counted: the counters that are not 0."""


def register(app: typer.Typer) -> None:
    app.command("devices")(devices)


def devices(
    config: ConfigFile = None,
    sets: Sets = None,
    watch: Annotated[bool, typer.Option("--watch", help="Look again and again until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON list, for programs.")] = False,
    every: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two looks of --watch.")] = 2.0,
) -> None:
    """Show every phone: its state, screen, Android and app in front, who holds it, and the workers' counters.

    Disturbs no worker; starts no emulator. Counters come from heartbeats and are left out where no broker answers.
    """
    settings = connected(config, sets)
    if as_json:
        json.dump(_to_json(settings), sys.stdout, indent=1)
        sys.stdout.write("\n")
        return
    if not watch:
        console.print(_shown(settings))
        return
    if not sys.stdout.isatty():
        raise typer.BadParameter("needs a terminal; leave it out here", param_hint="--watch")
    with Live(_shown(settings), console=console, screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(_shown(settings), refresh=True)


def _to_json(settings: Config) -> list[dict[str, object]]:
    from distrl.device.about import look
    from distrl.device.server import AdbServer

    found, counted = look(AdbServer(settings.adb), settings.devices), _counters(settings)
    return [
        asdict(each) | {"worker": health.state if health else None, "counters": dict(health.counters) if health else {}}
        for each in found
        for health in [counted.get(each.serial)]
    ]


def _shown(settings: Config) -> Table:
    from distrl.device.about import look
    from distrl.device.server import AdbServer

    found, counted = look(AdbServer(settings.adb), settings.devices), _counters(settings)
    return phones_table([(each, counted.get(each.serial)) for each in found])


def phones_table(phones: Sequence[tuple[About, DeviceHealth | None]]) -> Table:
    """A row per phone. Columns that are empty for all phones are left out."""
    from distrl.offline.record_text import escaped

    cells = [_cells(*phone) for phone in phones]
    columns = [name for name in COLUMNS if name in COLUMNS[:2] or any(each[name] for each in cells)]
    shown = table(*columns)
    for each in cells:
        shown.add_row(*row(*(escaped(each[name]) for name in columns)))
    return shown


def _cells(each: About, health: DeviceHealth | None) -> Mapping[str, str]:
    app, slash, activity = each.focus.partition("/")
    short = activity.removeprefix(app)  # as adb shortens it: com.sim.clock/.Main
    counters = {} if health is None else health.counters
    return dict(
        zip(
            COLUMNS,
            (
                each.serial,
                each.state,
                " ".join(filter(None, (each.model, each.android, each.size))),
                f"{app}{slash}{short}",
                f"{each.holder}; its lease has run out" if each.lease_over else each.holder,
                "" if health is None else health.state,
                ", ".join(f"{name} {counters[name]}" for name in COUNTERS if counters.get(name)),
                each.fault,
            ),
            strict=True,
        )
    )


def _counters(settings: Config) -> Mapping[str, DeviceHealth]:
    """Serial -> health of each phone, from the newest heartbeats."""
    from distrl.errors import BrokerError
    from distrl.telemetry.feed import status_of

    try:
        status = status_of(settings)
    except BrokerError as error:
        print(f"no counters: {error.what}", file=sys.stderr)
        return {}
    return _by_serial(status)


def _by_serial(status: RunStatus) -> Mapping[str, DeviceHealth]:
    """Of two workers that name a phone, the one that is not silent counts; of two of those, the one that has it."""
    from distrl.device.pooled import HELD

    found = [(beat.process not in status.silent, device) for beat in status.processes for device in beat.devices]
    found.sort(key=lambda each: (each[0], each[1].state != HELD))
    return {device.serial: device for _, device in found}
