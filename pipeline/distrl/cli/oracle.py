"""`distrl tasks oracle`: how many tasks a script without mistakes completes on each kind of phone."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from simphone.fleet import PROFILE_NAMES, PhoneProfile

from distrl.cli.common import ConfigFile, Sets, console, end_if_stopped, load, passing_bar, row, start_role, table
from distrl.errors import ConfigError
from distrl.types import Outcome, Split

if TYPE_CHECKING:
    from distrl.config import Config
    from distrl.tasks.matched import Played
    from distrl.tasks.suite import BuiltIn
    from distrl.types import Task

DEFAULT_COUNT = 128
"""Tasks of an endless split."""


def oracle(
    config: ConfigFile = None,
    sets: Sets = None,
    suite: Annotated[
        list[str] | None, typer.Option(help="A built-in suite; may be given often; all of them if not given.")
    ] = None,
    split: Annotated[
        Split | None, typer.Option(help="Which tasks; if not given, test, and every split of a list.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(min=1, max=100_000, help="How many of each suite, or of the list; all of them if not given."),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(help=f"Phones over adb, of this kind ({', '.join(PROFILE_NAMES)}); may be given often."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs, in place of tables.")] = False,
) -> None:
    """Play the suites by a script that knows the phone's state, and show how many tasks it completes.

    Without --profile on phones of this process, of every UI generation: first without pop-ups, then with
    phones.popup_probability. With --profile on phones.count phones behind a real adb server, which fail as that kind
    does: an episode may succeed, fail, or be interrupted (a run would feed its task again).

    With feeder.tasks, and neither --suite nor --profile, the rows of that list are played, without pop-ups: those
    worded like a task of a built-in suite, and those that ask to open an app. The others are listed. Exit 1 where the
    check of a played row did not hold.
    """
    from distrl.tasks.suite import suite_named, suites

    settings = load(config, sets)
    if settings.feeder.tasks and not suite and not profile:
        _play_list(settings, split, count, as_json)
        return
    profiles = [_profile(name) for name in profile or ()]
    split = split or Split.TEST
    chosen = {name: _tasks(suite_named(name), split, count) for name in suite or suites()}
    stop = start_role("oracle", verbose=False) if profiles else threading.Event()
    measured = _over_adb(settings, chosen, profiles, stop) if profiles else _in_process(settings, chosen)
    if as_json:
        json.dump({"split": split.value, "measured": measured}, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        console.print(_shown(measured))
    end_if_stopped(stop)


def _play_list(settings: Config, split: Split | None, count: int | None, as_json: bool) -> None:
    from distrl.tasks.lists import read_lists, suite_of
    from distrl.tasks.matched import played

    suite_of(settings.feeder)  # refuses a wrong list
    rows = read_lists(settings.feeder.tasks, settings.feeder.task_steps).rows
    chosen = [row for row in rows if split in (None, row.split)][:count]
    with passing_bar() as progress:
        found = [played(row) for row in progress.track(chosen, description="rows")]
    failed = [each for each in found if each.done is False]
    if as_json:
        results = [
            {
                "file": each.row.file,
                "line": each.row.line,
                "split": each.row.split.value,
                "instruction": each.row.instruction,
                "script": each.script or None,
                "done": each.done,
                "steps": each.steps,
                "why": each.why,
            }
            for each in found
        ]
        json.dump({"split": split.value if split else None, "rows": results}, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        console.print(_rows_shown(found))
    if failed:
        raise ConfigError(
            "feeder.tasks",
            f"a script played {len(failed)} rows whose check did not hold in the end",
            "look at their check, setup and steps: they may be impossible",
        )


def _rows_shown(found: Sequence[Played]) -> Any:
    """A line per row of the list."""
    from distrl.offline.record_text import escaped

    shown = table("row", "split", "instruction", "script", "result")
    for each in found:
        where = f"{escaped(each.row.file)}:{each.row.line}"
        result = f"done in {each.steps} steps" if each.done else each.why
        shown.add_row(*row(where, each.row.split.value, escaped(each.row.instruction), each.script or "none", result))
    return shown


def _profile(name: str) -> PhoneProfile:
    for profile in PROFILE_NAMES:
        if profile == name:
            return profile
    raise ConfigError("--profile", f"no kind of phone '{name}'", f"one of {', '.join(PROFILE_NAMES)}")


def _tasks(suite: BuiltIn, split: Split, count: int | None) -> list[Task]:
    from distrl.tasks.suite import EVALUATION_SEED

    wanted = count or suite.size(split) or DEFAULT_COUNT
    return [suite.task(index, EVALUATION_SEED, split) for index in range(wanted)]


def _in_process(settings: Config, chosen: dict[str, list[Task]]) -> list[dict[str, Any]]:
    from simphone.generations import NEWEST

    from distrl.tasks.rollout import score

    popups = settings.phones.popup_probability
    kinds = [(0, 0.0), *((generation, popups) for generation in range(NEWEST + 1))]
    measured = []
    with passing_bar() as progress:
        bar = progress.add_task("", total=len(chosen) * len(kinds))
        for name, tasks in chosen.items():
            for generation, probability in kinds:
                progress.update(bar, description=f"{name}, generation {generation}")
                found = score(tasks, probability, generation)
                measured.append(
                    {
                        "suite": name,
                        "phones": f"generation {generation}",
                        "popup_probability": probability,
                        "tasks": found.tasks,
                        "done": found.done,
                        "mean_steps": _mean(found.steps, found.done),
                    }
                )
                progress.advance(bar)
    return measured


def _over_adb(
    settings: Config, chosen: dict[str, list[Task]], profiles: list[PhoneProfile], stop: threading.Event
) -> list[dict[str, Any]]:
    from distrl.rollout.oracle_smoke_test import oracle_smoke_test

    measured: list[dict[str, Any]] = []
    with passing_bar() as progress:
        bar = progress.add_task("", total=len(profiles) * sum(map(len, chosen.values())))
        for profile in profiles:
            for name, tasks in chosen.items():
                if stop.is_set():
                    return measured
                progress.update(bar, description=f"{name}, {profile} phones")
                found = oracle_smoke_test(settings, profile, tasks, stop, lambda: progress.advance(bar))
                measured.append(
                    {
                        "suite": name,
                        "phones": profile,
                        "popup_probability": settings.phones.popup_probability,
                        "tasks": sum(found.outcomes.values()),
                        "done": found.outcomes.get(Outcome.SUCCESS, 0),
                        "mean_steps": _mean(found.steps, found.ended),
                        "interrupted": found.outcomes.get(Outcome.INTERRUPTED, 0),
                        "seconds": round(found.seconds, 1),
                    }
                )
    return measured


def _mean(total: int, count: int) -> float | None:
    return round(total / count, 2) if count else None


def _shown(measured: list[dict[str, Any]]) -> Any:
    shown = table(
        "suite",
        "phones",
        "pop-ups",
        "tasks",
        "done",
        "steps",
        *(("interrupted", "seconds") if measured and "seconds" in measured[0] else ()),
    )
    for each in measured:
        share = f"{each['done'] / each['tasks']:.1%}" if each["tasks"] else "–"
        popups = f"{each['popup_probability']:.0%}" if each["popup_probability"] else "none"
        more = (each["interrupted"], each["seconds"]) if "seconds" in each else ()
        shown.add_row(*row(each["suite"], each["phones"], popups, each["tasks"], share, each["mean_steps"], *more))
    return shown
