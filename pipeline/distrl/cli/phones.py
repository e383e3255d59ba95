"""`distrl phones`: simulated phones for any adb user, and one phone in a browser for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.common import ConfigFile, Sets, Verbose, connected, load, run_settings, start_role
from distrl.errors import ConfigError

if TYPE_CHECKING:
    from distrl.config import Config
    from distrl.demonstrations.human import Recorder
    from distrl.device.session import AdbSession

app = typer.Typer(invoke_without_command=True)
COLUMNS = 12
"""Screens in a row of a contact sheet."""
COLOURS = 128
"""Colours of a contact sheet: it takes less than half of the bytes, and looks the same."""


@app.callback()
def phones(
    context: typer.Context,
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    count: Annotated[
        int | None,
        typer.Option(min=1, max=512, help="How many; phones.count and phones.evaluation_count if not given."),
    ] = None,
) -> None:
    """Serve simulated phones on loopback to any adb user: `adb connect 127.0.0.1:PORT`.

    The first port is phones.base_port; each phone has the next one. They answer what a phone answers: shell, push and
    pull, screencap, uiautomator dump, logcat, am, pm, input, dumpsys (docs/phones.md). Runs until SIGTERM or Ctrl-C.
    """
    if context.invoked_subcommand is not None:
        if config or sets or verbose or count is not None:
            raise typer.BadParameter(f"belongs behind `phones {context.invoked_subcommand}`", param_hint="this option")
        return
    from simphone.serve import run_phones

    from distrl.stack.phones import as_config_error, fleet_of
    from distrl.telemetry import logs

    more = [f"phones.count={count}", "phones.evaluation_count=0"] if count is not None else []
    logs.configure("phones", verbose)
    with as_config_error():
        run_phones(fleet_of(load(config, [*(sets or []), *more]).phones))


@app.command()
def play(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    serial: Annotated[
        str | None,
        typer.Option(
            help="The phone, by its adb serial or HOST:PORT; the first configured one that is free if not given. An "
            "emulator has to run: none is started."
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the page, on loopback; 0 takes a free one.")] = 0,
    record: Annotated[
        bool, typer.Option("--record", help="Let the page record demonstrations for the run of the settings.")
    ] = False,
) -> None:
    """Show one phone, simulated or real, in a browser: its screen, taps, drags, text, back, home and enter.

    The phone is leased as a worker leases it: one that a worker of this machine drives is refused, and no worker takes
    it meanwhile. Runs until SIGTERM or Ctrl-C.

    Nothing is recorded without --record. With it the page offers training tasks, or takes one in your own words, puts
    the phone where it begins (as a worker's reset does), records what you do with the base model's actions, and
    publishes it to the demonstrations topic; the screenshots go to the object store. Needs both, and the base model.
    """
    from distrl.device.emulator import connect_emulator
    from distrl.device.leases import Leases
    from distrl.device.names import console_port, is_address
    from distrl.device.phone_lease import LeaseRenewer, PhoneLease, holder_name, leased_on_phone, place_of
    from distrl.device.play import PlayServer, held
    from distrl.device.server import AdbServer
    from distrl.device.session import AdbSession
    from distrl.retry import StoppedError

    settings = run_settings(config, sets) if record else connected(config, sets)
    wanted = (serial,) if serial else _configured(settings)
    stop = start_role("play", verbose)
    leases = Leases(settings.devices.directory, settings.adb)
    with held(leases, wanted) as named, AdbServer(settings.adb, needed=leases.in_use) as server:
        if is_address(named) and named not in server.devices():
            server.connect(named, settings.devices.operation_timeout_s)
        elif (console := console_port(named)) is not None:
            connect_emulator(server, console, settings.devices)
        lease = PhoneLease(
            AdbSession(server, named, settings.devices),
            holder_name(settings.run),
            place_of(leases, named),
            settings.devices.lease_ttl_s,
        )
        session = AdbSession(server, named, settings.devices, lease.check)
        session.screenshot()  # fail here, and not in the browser, where the phone does not answer
        with (
            suppress(StoppedError),  # before another host's lease expired
            leased_on_phone(lease, LeaseRenewer(), stop),
            _recorder(settings, session) if record else nullcontext() as recorder,
            PlayServer(session, port, recorder) as page,
        ):
            typer.echo(f"ready: {named} at {page.address}")
            stop.wait()


@app.command()
def gallery(
    out: Annotated[Path, typer.Option(help="Directory to write a sheet for each generation of the UI to.")],
    seed: Annotated[int, typer.Option(help="Seed of the phone that is drawn.")] = 0,
    scale: Annotated[int, typer.Option(min=1, max=8, help="Pixels for each pixel of the phone.")] = 1,
) -> None:
    """Draw contact sheets of the simulated phone's screens, one for each generation of its look."""
    from simphone.gallery import contact_sheet, tour
    from simphone.generations import NEWEST

    for generation in range(NEWEST + 1):
        path = out / f"generation-{generation}.png"
        try:
            out.mkdir(parents=True, exist_ok=True)
            contact_sheet(tour(generation, seed), COLUMNS, scale).quantize(COLOURS).save(path, optimize=True)
        except OSError as error:
            raise ConfigError(
                "--out", f"{path} cannot be written: {error.strerror}", "name a directory of yours"
            ) from error
        typer.echo(str(path))


@contextmanager
def _recorder(settings: Config, session: AdbSession) -> Iterator[Recorder]:
    from distrl.broker.producer import RecordProducer
    from distrl.demonstrations.human import NAME, recorder_of

    with RecordProducer(settings, NAME) as producer:
        yield recorder_of(settings, session, lambda record: producer.publish("demonstrations", record.task_id, record))


def _configured(settings: Config) -> tuple[str, ...]:
    """Those that need no start first."""
    devices = settings.devices
    if found := tuple(dict.fromkeys((*devices.serials, *devices.addresses, *devices.emulators.serials))):
        return found
    raise ConfigError(
        "devices.addresses",
        "no phone is configured, and no local stack runs",
        "name one with --serial 127.0.0.1:26000; `distrl phones` serves simulated ones",
    )
