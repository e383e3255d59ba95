"""`distrl up|down|status|doctor`: the local stack, and how a run is doing."""

from __future__ import annotations

import typer
from rich.table import Table

from distrl.cli.common import ConfigFile, Sets, connected, console, load
from distrl.telemetry import logs


def register(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)
    app.command("doctor")(doctor)


def up(config: ConfigFile = None, sets: Sets = None) -> None:
    """Start what has no endpoint configured: Kafka, an S3 endpoint, an adb server, simulated phones."""
    from distrl.broker import topics
    from distrl.stack.local import LocalStack

    logs.configure("up")
    settings = LocalStack(load(config, sets)).up()
    topics.ensure(settings)
    console.print(f"Kafka {settings.kafka.bootstrap}  objects {settings.store.url}  adb port {settings.adb.port}")
    console.print(f"{len(settings.devices.addresses)} phones; `distrl status` looks, `distrl down` stops")


def down(config: ConfigFile = None, sets: Sets = None) -> None:
    """Stop what `distrl up` started; its data stay."""
    from distrl.stack.local import LocalStack

    logs.configure("down")
    LocalStack(load(config, sets)).down()


def status(config: ConfigFile = None, sets: Sets = None) -> None:
    """The servers of the stack, then the run: versions each process has loaded, lag, success, devices."""
    from distrl.stack.local import LocalStack
    from distrl.telemetry.feed import snapshot_of
    from distrl.telemetry.screen import render

    table = Table("part", "state", "where", "pid")
    running = False
    for row in LocalStack(load(config, sets)).status():
        running = running or row.running
        table.add_row(row.name, "running" if row.running else "stopped", row.where, str(row.pid or ""))
    console.print(table)
    if running:
        settings = connected(config, sets)
        console.print(render(snapshot_of(settings), f"run {settings.run}"))


def doctor(config: ConfigFile = None, sets: Sets = None) -> None:
    """Look at everything that a run needs on this machine and say how to mend what is missing."""
    from distrl.stack.doctor import examine

    findings = list(examine(connected(config, sets)))
    table = Table("what", "", "detail", "to mend it")
    for finding in findings:
        table.add_row(finding.what, "ok" if finding.ok else "NO", finding.detail, "" if finding.ok else finding.mend)
    console.print(table)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
