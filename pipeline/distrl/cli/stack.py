"""`distrl up|down|status|doctor`: the local stack, and how a run is doing."""

from __future__ import annotations

import typer

from distrl.cli.common import ConfigFile, Sets, connected, console, ended_as_interrupted, load, row, table
from distrl.telemetry import logs


def register(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)
    app.command("doctor")(doctor)


def up(config: ConfigFile = None, sets: Sets = None) -> None:
    """Start what has no endpoint configured: Kafka, an S3 endpoint, an adb server, simulated phones.

    They outlive this command, with data and logs in stack.directory, and the run's topics are made. Other commands
    that are given the same stack.directory find them there.
    """
    from distrl.broker import topic_admin
    from distrl.stack.local import LocalStack

    logs.configure("up")
    ended_as_interrupted()
    settings = LocalStack(load(config, sets)).up()
    topic_admin.ensure(settings)
    console.print(f"Kafka {settings.kafka.bootstrap}  objects {settings.store.url}  adb port {settings.adb.port}")
    console.print(f"{len(settings.devices.named)} phones; `distrl status` looks, `distrl down` stops")


def down(config: ConfigFile = None, sets: Sets = None) -> None:
    """Stop what `distrl up` started; its data stay."""
    from distrl.stack.local import LocalStack

    logs.configure("down")
    stopped = LocalStack(load(config, sets)).down()
    console.print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def status(config: ConfigFile = None, sets: Sets = None) -> None:
    """Show the servers of the stack, then the run: versions each process has loaded, lag, success, phones."""
    from distrl.stack import kafka
    from distrl.stack.local import LocalStack
    from distrl.telemetry.feed import snapshot_of
    from distrl.telemetry.screen import render

    shown = table("part", "state", "where", "pid")
    parts = LocalStack(load(config, sets)).status()
    for part in parts:
        shown.add_row(*row(part.name, "running" if part.running else "stopped", part.where, part.pid or ""))
    console.print(shown)
    if any(part.running for part in parts if part.name == kafka.NAME):
        settings = connected(config, sets)
        console.print(render(snapshot_of(settings), f"run {settings.run}", width=console.width))


def doctor(config: ConfigFile = None, sets: Sets = None) -> None:
    """Look at everything that a run needs on this machine and say how to mend what is missing; exit 1 if it must be."""
    from distrl.stack.doctor import examine

    findings = examine(load(config, sets))
    shown = table("what", "", "detail", "to mend it")
    for finding in findings:
        mend = "" if finding.ok else finding.mend
        shown.add_row(*row(finding.what, "ok" if finding.ok else "NO", finding.detail, mend))
    console.print(shown)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)
