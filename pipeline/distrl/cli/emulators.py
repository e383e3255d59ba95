"""`distrl emulators`: prepares virtual devices. Workers start, drive and end their emulators themselves."""

from __future__ import annotations

import typer

from distrl.cli.common import ConfigFile, Sets, Verbose, connected, console, start_role

app = typer.Typer(help="Make a virtual device ready for workers that start emulators.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Make a virtual device ready for workers that start emulators."""


@app.command()
def prepare(config: ConfigFile = None, sets: Sets = None, verbose: Verbose = False) -> None:
    """Boot devices.emulators.avd once, turn its animations off and save devices.emulators.snapshot.

    The snapshot keeps what is installed and set up on the virtual device. Run it again after that changes, or after an
    update of the SDK's emulator, while no other emulator of that virtual device runs.
    """
    from distrl.device.leases import Leases
    from distrl.device.prepare import prepare as make
    from distrl.device.server import AdbServer

    settings = connected(config, sets)
    stop = start_role("emulators", verbose)
    with AdbServer(settings.adb, needed=Leases(settings.devices.directory, settings.adb).in_use) as server:
        make(server, settings.devices, stop, lambda text: console.print(text, markup=False, highlight=False))
    emulators = settings.devices.emulators
    console.print(f"{emulators.avd} has snapshot {emulators.snapshot}", markup=False, highlight=False)
