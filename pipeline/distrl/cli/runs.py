"""`distrl runs`: the runs of a broker, one by one or all; change a setting of one; remove one."""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.common import (
    ConfigFile,
    RunName,
    Sets,
    console,
    load,
    passing_bar,
    print_line,
    row,
    run_settings,
    table,
    with_broker,
)
from distrl.cli.runs_copy import copy
from distrl.config import Config, sources, with_run
from distrl.errors import BrokerError, ConfigError, WireError

if TYPE_CHECKING:
    from distrl.runs.overview import RunOverview

app = typer.Typer(help="List, show, change and remove the runs of a broker.", no_args_is_help=True)

AT_ONCE = 4
"""Runs looked at side by side; most of a look is waiting for the broker."""


@app.command("ls")
def ls(
    config: ConfigFile = None,
    sets: Sets = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, for programs, in place of a table.")
    ] = False,
) -> None:
    """Every run of the broker: how it learns, its age, success, sizes, and whether a process of it is alive.

    "played" are trajectories, success is that of the last 128. Sizes of topics and screenshots are estimates.
    """
    settings = with_broker(config, sets)
    is_given = "url" in load(config, sets).store.model_fields_set
    found = _overviews(settings, _names(settings), stores_by_log=not is_given)
    if as_json:
        json.dump({"runs": [_as_json(each) for each in found]}, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return
    if not found:
        print_line(f"the broker at {settings.kafka.bootstrap} has no run")
        return
    from distrl.clock import SYSTEM_CLOCK
    from distrl.offline.record_text import escaped

    now = SYSTEM_CLOCK.now_ms()
    shown = table("run", "algorithm", "age", "played", "success", "topics", "objects", "alive")
    for each in found:
        values = each.settings.values if each.settings is not None else {}
        shown.add_row(
            *row(
                each.run,
                escaped(str(values.get("algorithm.type", "-"))),
                "-" if each.begun_at is None else age((now - each.begun_at) / 1000),
                each.trajectories,
                "-" if each.success is None else f"{each.success:.0%}",
                size(sum(topic.about_bytes for topic in each.topics)),
                "?" if each.objects is None else size(each.objects.total),
                len(each.alive) or "-",
            )
        )
    console.print(shown)
    for each in found:
        if each.unreadable is not None:
            print_line(f"settings of run {each.run}: {escaped(each.unreadable)}")
    if any(each.objects is None for each in found):
        print_line("objects: ? where the store does not answer (set store.url)")


@app.command("show")
def show(run: RunName, config: ConfigFile = None, sets: Sets = None) -> None:
    """One run: its settings and who changed them, topics, objects, processes."""
    settings, unsound = _settings_or_why(config, sets, run)
    (found,) = _overviews(settings, [run])
    from distrl.offline.record_text import escaped, utc_text
    from distrl.runs.recorded import TYPE
    from distrl.runs.settings import run_settings as values_of

    if unsound:
        print_line(unsound)
    if found.settings is None and not unsound:
        print_line(f"run {run} has no settings in its log yet: its learner or feeder records them when it starts")
    elif found.settings is not None:
        values = found.settings.values
        defaults = values_of(_defaults(str(values.get(TYPE))))
        shown = table("setting", "value", "default")
        for path, value in sorted(values.items()):
            other = json.dumps(defaults[path]) if value != defaults.get(path, value) else ""
            shown.add_row(*row(escaped(path), escaped(json.dumps(value)), other))
        console.print(shown)
        shown = table("when", "role", "by", "from", "what")
        for each in found.settings.history:
            what = ", ".join(f"{path}={text}" for path, text in sorted(each.settings.items()))
            shown.add_row(
                *row(
                    utc_text(each.at),
                    escaped(each.role),
                    escaped(each.process),
                    escaped(", ".join(each.sources) or "defaults"),
                    escaped(what) if each.is_change else f"all {len(each.settings)} settings",
                )
            )
        console.print(shown)
    shown = table("topic", "records", "about")
    for topic in found.topics:
        shown.add_row(*row(topic.name, topic.records, size(topic.about_bytes)))
    console.print(shown)
    if found.objects is None:
        print_line(f"objects: the store {settings.store.url} does not answer (set store.url)")
    else:
        parts = found.objects
        print_line(
            f"objects: checkpoints {size(parts.own)}, adapters {size(parts.adapters)}, "
            f"screenshots about {size(parts.about_screenshots)}"
        )
    print_line(f"newest version: {'none' if found.version is None else found.version}")
    print_line(f"alive: {', '.join(map(escaped, found.alive)) or 'no process'}")


@app.command("set")
def change(
    run: RunName,
    changes: Annotated[list[str], typer.Argument(help="Settings as path.to.it=value.")],
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Change settings of a run for every process that starts from now on; who, when and what is in its log.

    What decides how it learns can be changed only before anything is learned, and nothing before its learner, feeder or
    demonstrations have recorded all of its settings.
    """
    if not all("=" in each for each in changes):
        raise ConfigError("CHANGES", "one has no '='", "write each as path.to.setting=value")
    paths = [each.partition("=")[0].strip() for each in changes]
    settings = run_settings(config, [*(sets or ()), *changes], run)
    from distrl.runs.recorded import change as record
    from distrl.runs.settings import BASE_PATH, BASE_SHA256, shared_settings
    from distrl.runs.settings import run_settings as values_of

    # Only who names another base model needs its files.
    values = values_of(settings) if BASE_PATH in paths else shared_settings(settings)
    for path in paths:
        if path not in values:
            raise ConfigError(
                path,
                "belongs to a machine or a process, so the run's log does not hold it",
                f"give it to the processes that need it: a file, a DISTRL_ variable, or --set {path}=VALUE",
            )
    if BASE_PATH in paths:
        paths.append(BASE_SHA256)  # which nobody can set
    record(settings, "runs set", sources(config, [*(sets or ()), *changes]), {path: values[path] for path in paths})
    print_line(f"recorded for run {run}: {', '.join(changes)}. Processes that run take it when they are started again")


@app.command("rm")
def rm(
    run: RunName,
    config: ConfigFile = None,
    sets: Sets = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    objects: Annotated[
        bool,
        typer.Option(
            "--objects",
            help="Also adapters and screenshots, but for those that another run of this broker names. Not where "
            "runs of another broker use the same bucket.",
        ),
    ] = False,
) -> None:
    """Remove a run: its topics, its consumer group, its checkpoints, its verdicts. Shows what is removed, and asks.

    Refused while a process of the run is alive. Interrupted, the same command goes on.
    """
    from distrl.offline.record_text import escaped
    from distrl.runs.overview import heard

    settings, unsound = _settings_or_why(config, sets, run)
    if unsound:  # such a run can be removed all the same
        print_line(unsound)
    (found,) = _overviews(settings, [run])
    with console.status("listening for its processes"):
        at_work = heard(settings, found)
    if at_work:
        raise BrokerError(
            f"run {run}",
            f"is at work: {', '.join(map(escaped, at_work))}",
            "stop its processes, then run this command again",
        )
    if found.objects is None:
        raise ConfigError("store.url", f"the store {settings.store.url} does not answer", "start it, or set store.url")
    records, about = (sum(getattr(each, name) for each in found.topics) for name in ("records", "about_bytes"))
    parts = found.objects
    print_line(f"run {run}: {records} records in {len(found.topics)} topics, about {size(about)}")
    print_line(f"checkpoints: {size(parts.own)}, and the verdicts of judges, in {settings.store.url}")
    kept = "go too, but for those that another run names" if objects else "stay (--objects removes them)"
    print_line(f"adapters, {size(parts.adapters)}, and screenshots, about {size(parts.about_screenshots)}, {kept}")
    if not yes:
        typer.confirm(f"remove run {run} at {settings.kafka.bootstrap} for good?", abort=True)
    from distrl.runs.remove import remove
    from distrl.store.objects import open_store

    others = [each for each in _names(settings) if each != run]
    with console.status(f"removing run {run}") as status:
        store = open_store(settings.store)

        def on_deleted(count: int) -> None:
            status.update(f"removing run {run}: {count} objects are deleted")

        count = remove(settings, store, others, with_shared=objects, on_deleted=on_deleted)
    print_line(f"removed run {run}: its topics and {count} objects")


app.command("copy")(copy)


@app.command("repair")
def repair(
    run: RunName,
    config: ConfigFile = None,
    sets: Sets = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove unreadable records from a run's settings, because of which no role of it starts. Shows them, and asks.

    The other records stay as they are, in their order. Interrupted, the same command goes on.
    """
    settings = with_broker(config, [*(sets or ()), f"run={run}"])
    from distrl.offline.record_text import escaped
    from distrl.runs.repair import damage
    from distrl.runs.repair import repair as remove

    found = damage(settings)
    if not found.errors:
        print_line(f"every record of the settings of run {run} can be read")
        return
    for error in found.errors:
        print_line(escaped(f"{error.where}: {error.what}"))
    if not yes:
        typer.confirm(f"remove them at {settings.kafka.bootstrap} for good?", abort=True)
    remove(settings, found)
    print_line(f"removed {len(found.errors)}; `distrl runs show {run}` shows the settings that are left")


def age(seconds: float) -> str:
    """A time span in its largest unit: 90 s is 1m."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{int(seconds // length)}{unit}"
    return f"{int(max(0.0, seconds))}s"


def size(count: float) -> str:
    """Bytes in a few characters: 1.2 GB."""
    for unit, length in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= length:
            return f"{count / length:.1f} {unit}"
    return f"{count:.0f} B"


def _defaults(algorithm: str) -> Config:
    """Those of a run with that algorithm; of A-RIDE's for one that this version does not have."""
    from distrl.runs.recorded import defaults_with

    try:
        return defaults_with(algorithm)
    except ConfigError:
        return Config()


def _settings_or_why(config_file: Path | None, sets: list[str] | None, run: str) -> tuple[Config, str]:
    """The settings of a run; where those in its log cannot be used, as of a version with other ones, the given ones
    with the store and the group that the log names, and a line that says why."""
    try:
        return run_settings(config_file, sets, run), ""
    except (WireError, ConfigError) as error:
        settings = with_broker(config_file, [*(sets or ()), f"run={run}"])  # refuses what is wrong with the given ones
        from distrl.offline.record_text import escaped
        from distrl.runs.overview import store_named
        from distrl.runs.recorded import recorded

        with suppress(WireError):
            found = recorded(settings)
            group = found.values.get("worker.group") if found is not None else None
            if isinstance(group, str) and "group" not in settings.worker.model_fields_set:
                settings = settings.model_copy(update={"worker": settings.worker.model_copy(update={"group": group})})
            if "url" not in settings.store.model_fields_set:
                settings = settings.model_copy(update={"store": store_named(found, settings.store)})
        return settings, f"settings of run {run}: {escaped(str(error))}"


def _names(settings: Config) -> list[str]:
    from distrl.broker.runs import run_names

    return run_names(settings)


def _overviews(settings: Config, names: list[str], stores_by_log: bool = False) -> list[RunOverview]:
    """stores_by_log: each run's objects are in the store that its log names, if any."""
    from distrl.runs.overview import overview
    from distrl.store.objects import open_store

    store = None if stores_by_log else open_store(settings.store)
    with passing_bar() as progress, ThreadPoolExecutor(AT_ONCE) as pool:
        bar = progress.add_task("looking at the runs", total=len(names))

        def look(run: str) -> RunOverview:
            found = overview(with_run(settings, run), store)
            progress.advance(bar)
            return found

        return list(pool.map(look, names))


def _as_json(found: RunOverview) -> dict[str, object]:
    return {
        "run": found.run,
        "settings": None if found.settings is None else found.settings.values,
        "unreadable": found.unreadable,
        "begun_at": found.begun_at,
        "version": found.version,
        "success": found.success,
        "topics": {each.name: {"records": each.records, "about_bytes": each.about_bytes} for each in found.topics},
        "objects": None
        if found.objects is None
        else {
            "checkpoints_bytes": found.objects.own,
            "adapters_bytes": found.objects.adapters,
            "screenshots_about_bytes": found.objects.about_screenshots,
        },
        "alive": list(found.alive),
    }
