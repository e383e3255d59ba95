"""`distrl up|down|status|doctor`: the local stack, and the state of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from distrl.cli.common import (
    ConfigFile,
    OfRun,
    Sets,
    console,
    ended_as_interrupted,
    load,
    passing_bar,
    print_line,
    row,
    run_settings,
    table,
)
from distrl.config import Config
from distrl.config import load as load_settings
from distrl.errors import BrokerError, ConfigError
from distrl.telemetry import logs
from distrl.text import printable

if TYPE_CHECKING:
    from distrl.stack.doctor import Finding
    from distrl.tasks.unsolved import Unsolved
    from distrl.telemetry.feed import RunFeed

SHOWN: Final = 5
"""Most tasks without a success that `distrl status` lists."""
LONG: Final = 10_000
"""Records that are read within about two seconds: with more, a bar is shown."""


def register(app: typer.Typer) -> None:
    app.command("up")(up)
    app.command("down")(down)
    app.command("status")(status)
    app.command("doctor")(doctor)


def up(config: ConfigFile = None, sets: Sets = None) -> None:
    """Start what has no endpoint configured: Kafka, an S3 endpoint, an adb server, simulated phones. Refused while a
    demo or a training is at work on the stack.

    They outlive this command, with data and logs in stack.directory, and the run's topics are made. Other commands
    that are given the same stack.directory find them there.
    """
    from distrl.broker import topic_admin
    from distrl.stack.local import LocalStack
    from distrl.stack.running_stacks import refuse_second_by_accident

    logs.configure("up")
    ended_as_interrupted()
    given = load(config, sets)
    _refuse_while_at_work(given, "or set stack.directory for a second stack")
    _refuse_absent_broker(given)
    refuse_second_by_accident(given)
    stack = LocalStack(given)
    settings = stack.up()
    try:
        topic_admin.ensure(settings)
    except KeyboardInterrupt:
        stack.stop_started()  # not after a topic that is to be altered: that needs the broker
        raise
    print_line(f"Kafka {settings.kafka.bootstrap}  objects {settings.store.url}  adb port {settings.adb.port}")
    print_line(f"{len(settings.devices.named)} phones")
    print_line("`distrl train` trains here, `distrl status` looks, `distrl down` stops")


def _refuse_absent_broker(given: Config) -> None:
    """Raises BrokerError where the configured broker does not answer: it is not ours to start."""
    if "bootstrap" not in given.kafka.model_fields_set:
        return
    from distrl.broker.connect import check

    try:
        check(given)
    except BrokerError as error:
        if error.where != "kafka.bootstrap":
            raise
        fix = "start that broker; or take kafka.bootstrap out of the settings, and `distrl up` starts one of its own"
        raise BrokerError(error.where, error.what, fix) from None


def _refuse_while_at_work(settings: Config, other: str) -> None:
    """Raises StackError where a demo or a training is at work on the stack: `up` may have to replace its servers."""
    from distrl.stack.locks import refuse_held
    from distrl.train.folder import LOCK

    fix = f"Ctrl-C stops it and the servers that it started; {other}"
    refuse_held(settings.stack.directory.expanduser() / LOCK, fix)


def down(config: ConfigFile = None, sets: Sets = None) -> None:
    """Stop what `distrl up` started, and what a killed training or demo has left; data stay. Refused while one is at
    work on the stack.
    """
    from distrl.stack.local import LocalStack
    from distrl.train.roles import stop_left_on_stack

    logs.configure("down")
    # What does not lead to the stack may be wrong here, as an algorithm of a package that is not installed.
    settings = load_settings(config, sets or (), only=("stack",))
    _refuse_while_at_work(settings, "or wait")
    stop_left_on_stack(settings)  # before the servers that they need to finish
    stopped = LocalStack(settings).down()
    console.print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")


def status(run: OfRun = None, config: ConfigFile = None, sets: Sets = None) -> None:
    """Show the servers of the stack, then the run: versions each process has loaded, lag, success, phones.

    Exit 1 where a broker that the settings name does not answer.
    """
    from distrl.stack import kafka
    from distrl.stack.local import LocalStack
    from distrl.telemetry.fleet import fleet_findings
    from distrl.telemetry.screen import render

    shown = table("part", "state", "where", "pid")
    parts = LocalStack(load(config, sets)).status()
    for part in parts:
        away = "no answer" if part.configured else "stopped"
        state = {True: "running", False: away, None: "see `distrl devices`"}[part.running]
        shown.add_row(*row(part.name, state, part.where, part.pid or ""))
    console.print(shown)
    brokers = [part for part in parts if part.name == kafka.NAME]
    if any(part.running or part.configured for part in brokers):
        settings = run_settings(config, sets, run)  # which says why there is no answer
        with _opened(settings) as feed:
            feed.listen()
            seen = feed.status()
            console.print(render(seen, f"run {settings.run}", width=console.width))
            for line in without_success(seen.unsolved):
                console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
            for found in fleet_findings(settings, feed):
                hint = "" if found.ok else f"; {found.hint}"
                style = "" if found.ok else "bold red"
                console.print(f"{found.what}: {found.detail}{hint}", style=style, markup=False, soft_wrap=True)


def _opened(settings: Config) -> RunFeed:
    """What follows the run, once it has read the log; a terminal shows that a long one is being read."""
    from distrl.telemetry.feed import RunFeed

    with passing_bar() as progress:
        bar = progress.add_task("reading the log", visible=False)

        def on_read(read: int, whole: int) -> None:
            progress.update(bar, completed=read, total=whole, visible=whole > LONG)

        return RunFeed(settings, on_read)


def without_success(found: Sequence[Unsolved]) -> list[str]:
    """A line for each task without a success, at most SHOWN. Text of a task list is escaped."""
    from distrl.offline.record_text import escaped

    lines = []
    for each in found[:SHOWN]:
        suite, family, instruction = map(escaped, (each.suite, each.family, each.instruction))
        what = f'"{instruction}"' if instruction else f"{suite} {family}, any task of it"
        check = "distrl tasks oracle " + ("-s feeder.tasks=FILE" if instruction else f"--suite {suite}")
        lines.append(f"no success in {each.attempts} attempts: {what} (check it: {check})")
    if len(found) > SHOWN:
        lines.append(f"{len(found) - SHOWN} more without a success; the run's report lists all")
    return lines


def doctor(
    config: ConfigFile = None,
    sets: Sets = None,
    fleet: Annotated[
        bool, typer.Option("--fleet/--no-fleet", help="Whether the run's own workers and tasks are looked at, too.")
    ] = True,
) -> None:
    """Check everything that a run with these settings needs on this machine, with a hint for what is missing.

    Exit 1 if anything is.
    """
    from distrl.stack.doctor import LATER, examine

    findings = examine(load(config, sets))
    if fleet and any(finding.what == "broker" and finding.ok and finding.detail != LATER for finding in findings):
        findings += _of_the_run(config, sets)
    shown = table("what", "", "detail", "hint")
    for finding in findings:
        hint = "" if finding.ok else finding.hint
        shown.add_row(*row(finding.what, "ok" if finding.ok else "NO", _escaped(finding.detail), _escaped(hint)))
    console.print(shown)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _escaped(text: str) -> str:
    """`text`, which may repeat what a server or a phone sent, with controls but line ends escaped."""
    return "\n".join(map(printable, text.split("\n")))


def _of_the_run(config: ConfigFile, sets: Sets) -> list[Finding]:
    """Whether the run's fleet makes progress; empty where the broker has no such run, or no role is running."""
    from distrl.broker.connect import RefusedError
    from distrl.stack.doctor import Finding
    from distrl.telemetry.fleet import fleet_findings

    try:
        settings = run_settings(config, sets)
    except RefusedError:
        return []
    except ConfigError as error:
        return [Finding(f"settings of the run: {error.where}", False, error.what, error.hint)]
    try:
        with _opened(settings) as feed:
            feed.listen()
            return [Finding(each.what, each.ok, each.detail, each.hint) for each in fleet_findings(settings, feed)]
    except BrokerError as error:  # as where these settings are a worker's, which may not read all topics
        return [Finding(f"the run: {error.where}", False, error.what, f"{error.hint}; or leave it out: --no-fleet")]
