"""What every command shares: the configuration options, stopping on a signal, printing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer
from rich.console import Console
from rich.progress import Progress, ProgressColumn
from rich.table import Column, Table
from rich.text import Text

from distrl import config as settings
from distrl.cli.fitted_table import FittedTable
from distrl.config import Config, UnsoundHereError, may_hold_secret, sources
from distrl.errors import BrokerError, ConfigError, WireError
from distrl.supervised import SupervisedThread
from distrl.telemetry import logs
from distrl.text import printable

if TYPE_CHECKING:
    from distrl.chat.endpoint import Counted
    from distrl.runs.joined import Given
    from distrl.runs.recorded import RecordedSettings

console = Console(emoji=False)
"""Without emoji: rich would replace `:house:` in a record's text."""


def passing_bar(*columns: str | ProgressColumn, hidden: bool = False) -> Progress:
    """Progress bars on standard error that disappear at the end. Nothing where that is no terminal, as rich would print
    an empty line there."""
    stderr = Console(stderr=True)
    return Progress(*columns, console=stderr, transient=True, disable=hidden or not stderr.is_terminal)


ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="YAML file with settings, of the shape that `distrl config show` prints."),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", help="One setting as path.to.it=value; may be given often; wins over DISTRL_* and the file."
    ),
]
Begin = Annotated[
    str | None,
    typer.Option(
        "--from", help="First offset, or a time (2025-01-31T12:00Z, -2h); the oldest record kept if not given."
    ),
]
End = Annotated[
    str | None, typer.Option("--to", help="The offset or time to end before; the end of the log if not given.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done in detail, to standard error.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, max=64, show_default="2", help="Worker processes, which share the training phones: one each at least."
    ),
]
RunName = Annotated[str, typer.Argument(help="The run.")]
OfRun = Annotated[str | None, typer.Option(help="Which run; `run` of the settings if not given.")]
Share = Literal["all", "training", "evaluation"]


NEEDED_FIRST: Final = ("run", "kafka", "store", "adb", "stack", "logging", "worker", "evaluate")
"""The sections that lead to the run's log and the servers of a stack, and name the process in its log."""

ASKING: Final = (signal.SIGTERM, signal.SIGINT)
"""Signals at which a role finishes its work."""


def given(config_file: Path | None, sets: Sequence[str] | None) -> Given:
    """A function that lays the settings that a person gives over others."""
    return lambda base: settings.load(config_file, sets or (), base=base)


def load(config_file: Path | None, sets: list[str] | None) -> Config:
    """The settings as given; does not look for a running local stack."""
    return settings.load(config_file, sets or ())


def connected(config_file: Path | None, sets: list[str] | None, share: Share = "all") -> Config:
    """The settings, with the endpoints of a running local stack where none are configured."""
    from distrl.stack.local import connect

    return connect(load(config_file, sets), share)


def connected_to_broker(config_file: Path | None, sets: list[str] | None, share: Share = "all") -> Config:
    """As `connected`, for a command that asks the broker. Raises StackError where that of another folder's stack would
    be taken for one's own."""
    return _to_broker(load(config_file, sets), share)


def _to_broker(given: Config, share: Share) -> Config:
    from distrl.stack.local import connect
    from distrl.stack.running_stacks import refuse_broker_of_other

    settings = connect(given, share)
    refuse_broker_of_other(settings)
    return settings


def with_broker(config_file: Path | None, sets: list[str] | None, share: Share = "all") -> Config:
    """As `connected`, once the broker has answered, so that a role without a broker fails before it starts anything.

    Raises BrokerError, which tells whether address, credentials or TLS are wrong.
    """
    from distrl.broker.connect import check

    settings = connected_to_broker(config_file, sets, share)
    check(settings)
    return settings


def run_settings(
    config_file: Path | None, sets: list[str] | None, run: str | None = None, share: Share = "all"
) -> Config:
    """The settings of `run` (None: that of the settings here) as its log has them, and over them those given here; for
    a command that reads the run, once the broker has it.

    Raises BrokerError as `with_broker` does; for an unknown run it lists the runs.
    """
    return run_and_log(config_file, sets, run, share)[0]


def of_run_if_any(config_file: Path | None, sets: list[str] | None) -> Config:
    """As `run_settings`, for a command that may be the first of its run, or has to work whatever its log holds: the
    settings as given where the broker does not have it yet, and where this version or user cannot read what it has."""
    from distrl.broker.connect import check

    here, wrong = _first_look(config_file, sets, "all")
    try:
        return _over_log(here, wrong, check, given(config_file, sets), "all")[0]
    except (WireError, ConfigError, BrokerError) as error:
        if wrong is not None:
            raise
        check(here)
        note(f"what the run's log has of its settings is not used: {error}")
        return here


def run_and_log(
    config_file: Path | None, sets: list[str] | None, run: str | None = None, share: Share = "all"
) -> tuple[Config, RecordedSettings | None]:
    """As `run_settings`, with what the run's log has of its settings, if anything."""
    from distrl.broker.runs import check_run

    own = [*(sets or ()), *([] if run is None else [f"run={run}"])]
    here, wrong = _first_look(config_file, own, share)
    return _over_log(here, wrong, check_run, given(config_file, own), share)


def started(
    role: str,
    config_file: Path | None,
    sets: list[str] | None,
    verbose: bool,
    share: Share = "all",
    name: Callable[[Config], str] | None = None,
) -> tuple[Config, threading.Event]:
    """What a role starts with: as `run_settings`, and the event of `stopped_by_signals`. The run's log and the settings
    of this process are compared, and recorded where the run is new.

    name: of the process, in the log; `role` if not given. Raises as `with_broker`, and ConfigError where the settings
    are not those of the run.
    """
    from distrl.broker.connect import check

    here, wrong = _first_look(config_file, sets, share)
    log_as(here, role, role if name is None else name(here), verbose)
    # Only Ctrl-C: `distrl train` may ask its roles twice by SIGTERM, and they are to finish their work all the same.
    stop = stopped_by_signals(second_kills=(signal.SIGINT,))
    settings, found = _over_log(here, wrong, check, given(config_file, sets), share)
    from distrl.runs.recorded import join

    join(settings, found, role, sources(config_file, sets or ()))
    return settings, stop


def log_as(config: Config, role: str, process: str, verbose: bool) -> None:
    """Set up the log of a role's process, as logging.format says."""
    as_json = config.logging.format == "json"
    logs.configure(process, verbose, logs.Identity(config.run, role, process) if as_json else None)


def as_given(config_file: Path | None, sets: list[str] | None) -> tuple[Config, ConfigError | None]:
    """The given settings over the defaults. Where they are not valid over the defaults, though they may be over those
    of their run: only the sections NEEDED_FIRST, and the error. Raises ConfigError for settings that are wrong over any
    others."""
    try:
        return load(config_file, sets), None
    except UnsoundHereError as error:
        return settings.load(config_file, sets or (), only=NEEDED_FIRST), error


def _first_look(config_file: Path | None, sets: list[str] | None, share: Share) -> tuple[Config, ConfigError | None]:
    """As `as_given`, with the broker of a running local stack."""
    here, wrong = as_given(config_file, sets)
    return _to_broker(here, share), wrong


def _over_log(
    here: Config, wrong: ConfigError | None, check: Callable[[Config], object], own: Given, share: Share
) -> tuple[Config, RecordedSettings | None]:
    """`own` over the settings that the run's log has, and those, if any, once the broker has passed `check`. wrong: as
    of `_first_look`; raised where nothing is found over which they could be sound."""
    from distrl.runs.joined import over_recorded

    try:
        check(here)
        found = over_recorded(here, own, share)
    except BrokerError:
        if wrong is not None:
            raise wrong from None
        raise
    if wrong is not None and found[1] is None:
        raise wrong
    return found


def command_line(
    command: str, config_file: Path | None, sets: Sequence[str] | None, options: Mapping[str, object]
) -> list[str]:
    """`distrl COMMAND` with its settings and `options` as they were given, so that a hint can show a whole command.

    options: True is a flag; None and False are left out. Secrets are left out everywhere.
    """
    words = ["distrl", *command.split(), *([] if config_file is None else ["--config", str(config_file)])]
    words += [word for each in sets or () if not may_hold_secret(each.partition("=")[0]) for word in ("--set", each)]
    for name, value in options.items():
        words += [name] if value is True else [] if value is None or value is False else [name, str(value)]
    return words


def table(*names: str) -> Table:
    """A table that wraps long words, such as paths, instead of cutting them off; those of its header stay whole where
    the terminal is wide enough.
    """
    return FittedTable(*(Column(name, overflow="fold") for name in names))


def row(*cells: object) -> list[Text]:
    """Cells of a table as plain text: text of a server or a file is no markup."""
    return [Text(str(cell)) for cell in cells]


def print_line(text: str) -> None:
    """Print `text` as it is: no markup, no highlighting, no wrapping."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def show_cost(counted: Counted) -> None:
    """Print what a model's answers have cost."""
    mean = counted.seconds / counted.requests if counted.requests else 0.0
    console.print(
        f"{counted.requests} requests ({counted.retries} repeated), {mean:.2f} s each, the slowest "
        f"{counted.slowest_s:.2f} s; {counted.tokens_in} tokens read, {counted.tokens_out} written, "
        f"cost {counted.cost:.4f}",
        markup=False,
        highlight=False,
    )


def start_role(role: str, verbose: bool, *, second_kills: bool = False) -> threading.Event:
    """Set up the log of a process that is called `role`; returns the event of `stopped_by_signals`.

    second_kills: a second signal ends the process at once, for one that waits where it cannot look at the event.
    """
    logs.configure(role, verbose)
    return stopped_by_signals(second_kills=ASKING if second_kills else ())


def stopped_by_signals(*, second_kills: Collection[signal.Signals] = ()) -> threading.Event:
    """The event that SIGTERM and Ctrl-C set from now on, at which a role finishes its work.

    second_kills: those that end the process at once after a first signal of either kind.
    """
    stop, asked = threading.Event(), SimpleQueue[None]()

    def obey() -> None:
        asked.get()
        stop.set()

    # The handler may run within the main thread's own `stop.wait`; `stop.set` in it would deadlock.
    SupervisedThread(obey, "signals")

    def ask(*_: object) -> None:
        asked.put(None)
        for number in second_kills:
            signal.signal(number, signal.SIG_DFL)

    for number in ASKING:
        signal.signal(number, ask)
    return stop


def end_if_stopped(stop: threading.Event) -> None:
    """End as interrupted (130) where the command was asked to stop before it was done: 0 would say that all is done,
    and nobody would start it again."""
    if stop.is_set():
        raise typer.Exit(130)


def stopped_how(interrupt: KeyboardInterrupt) -> None:
    """Print how a training that caught `interrupt` was stopped."""
    from distrl.train.roles import is_second

    # A second Ctrl-C during the clean stop: roles or servers were killed.
    how = "stopped at once" if is_second(interrupt) else "stopped cleanly"
    Console(stderr=True, highlight=False).print(
        f"{how}: nothing that was learned is lost, and the same command continues the run", soft_wrap=True
    )


def note(text: str, style: str = "") -> None:
    """Print to standard error, with controls escaped: what is not the command's result."""
    shown = "\n".join(map(printable, text.split("\n")))
    Console(stderr=True, highlight=False, emoji=False).print(shown, style=style, markup=False, soft_wrap=True)


def ended_as_interrupted() -> None:
    """Make SIGTERM and a closed terminal raise KeyboardInterrupt like Ctrl-C: this process has children to stop, or
    half-written files to remove. One that is ignored stays so, as a closed terminal is under nohup.
    """
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
