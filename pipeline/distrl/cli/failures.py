"""`distrl failures`: how the attempts of a run failed, by suite, by version and by condition."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from distrl.cli.common import (
    Begin,
    ConfigFile,
    End,
    OfRun,
    Sets,
    command_line,
    console,
    print_line,
    row,
    run_settings,
    table,
)

if TYPE_CHECKING:
    from distrl.evaluate.failures import FailedCondition, JudgedAttempt, Modes
    from distrl.offline.runs import Run

SHOWN = 10
"""Failed attempts that are named; --json and --out name all."""

Topic = Literal["trajectories", "evaluations"]


def register(app: typer.Typer) -> None:
    app.command("failures")(failures)


def failures(
    config: ConfigFile = None,
    sets: Sets = None,
    run: OfRun = None,
    topic: Annotated[
        Topic, typer.Option(help="What workers did in training, or what an evaluator did.")
    ] = "evaluations",
    begin: Begin = None,
    end: End = None,
    together: Annotated[int, typer.Option(min=1, help="Versions that share a row.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A directory for failures.svg, of at most 100 rows, and failures.json; made if it is missing."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs, in place of tables.")] = False,
) -> None:
    """Classify how attempts failed (at a wrong goal, stuck midway, or not recovered from a mistake), and count the
    conditions of their tasks that were not met.

    From the records only (docs/offline.md). Each failed attempt is listed with its position in the log, and the last
    ones with the `distrl show` that makes a page of them.
    """
    from distrl.evaluate.failures import by_condition, by_suite_and_version
    from distrl.evaluate.figures import failure_modes
    from distrl.files import make_folder, write
    from distrl.offline.runs import Run

    settings = run_settings(config, sets, run)
    if out is not None:
        make_folder(out)
    given = {
        "--run": settings.run,
        "--topic": topic,
        "--together": together if together > 1 else None,
        "--out": out,
        "--json": as_json,
    }
    attempts = list(_attempts(Run(settings, command_line("failures", config, sets, given)), topic, begin, end))
    rows = by_suite_and_version(attempts, together)
    conditions = by_condition(attempts)
    show = command_line("show", config, sets, {"--run": settings.run, "--topic": topic})
    named = _named(attempts, show)
    report = {
        "run": settings.run,
        "topic": topic,
        "rows": _rows_json(rows),
        "conditions": [each.to_json() for each in conditions],
        "failures": named,
    }
    if out is not None:
        write(out / "failures.svg", failure_modes(rows).encode())
        write(out / "failures.json", json.dumps(report, indent=1).encode())
    if as_json:
        json.dump(report, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return
    _show(rows, conditions, named)
    if out is not None:
        console.print(f"{out / 'failures.svg'} and {out / 'failures.json'} written", markup=False, highlight=False)


def _attempts(run: Run, topic: Topic, begin: str | None, end: str | None) -> Iterator[JudgedAttempt]:
    """Evaluated attempts with their version or agent; those of training with the version of their first step."""
    from distrl.evaluate.failures import JudgedAttempt, lean
    from distrl.evaluate.policies import PolicyId
    from distrl.types import Evaluation

    if topic == "trajectories":
        for logged in run.trajectories(begin, end):
            steps = logged.trajectory.steps
            if steps:
                yield JudgedAttempt(lean(logged.trajectory), steps[0].version, logged.position)
        return
    seen: set[tuple[PolicyId, str]] = set()
    for item in run.records("evaluations", begin, end):
        found = item.record
        if isinstance(found, Evaluation):
            policy_id = PolicyId(found.version, found.version_sha256)
            if (policy_id, found.trajectory.task_id) not in seen:
                seen.add((policy_id, found.trajectory.task_id))
                agent = policy_id.label if policy_id.version < 0 else ""
                yield JudgedAttempt(lean(found.trajectory), found.version, item.raw.position, agent)


def _rows_json(rows: Sequence[Modes]) -> list[dict[str, Any]]:
    from distrl.evaluate.failures import Mode

    return [
        {
            "suite": each.suite,
            "first_version": each.first,
            "last_version": each.last,
            "agent": each.agent,
            "attempts": each.attempts,
            "failures": each.failures,
            **{mode.name.lower(): each.counts[mode] for mode in Mode},
        }
        for each in rows
    ]


def _named(attempts: Sequence[JudgedAttempt], show: Sequence[str]) -> list[dict[str, Any]]:
    """show: the words of `distrl show` for the same run, without the place."""
    return [
        {
            "task_id": each.trajectory.task_id,
            "suite": each.trajectory.task.suite,
            "version": each.version,
            "agent": each.agent,
            "mode": each.mode.value,
            "topic": each.position.topic,
            "partition": each.position.partition,
            "offset": each.position.offset,
            "instruction": each.trajectory.task.instruction,
            "unmet": [asdict(condition) for condition in each.trajectory.unmet],
            "reason": each.trajectory.reason,
            "show": shlex.join([*show, f"{each.position.partition}:{each.position.offset}"]),
        }
        for each in attempts
        if each.mode is not None
    ]


def _show(rows: Sequence[Modes], conditions: Sequence[FailedCondition], named: Sequence[dict[str, Any]]) -> None:
    from distrl.evaluate.failures import Mode
    from distrl.offline.record_text import escaped

    shown = table("suite", "versions", "attempts", "failed", *(mode.value for mode in Mode))
    for each in rows:
        failed = f"{each.failures / each.attempts:.0%}"
        shares = (f"{each.counts[mode]} ({each.share(mode):.0%})" for mode in Mode)
        shown.add_row(*row(escaped(each.suite), escaped(each.who), each.attempts, failed, *shares))
    console.print(shown)
    if conditions:
        counts = table("suite", "family", "condition not met", "failed")
        for one in conditions[:SHOWN]:
            failed = f"{len(one.attempts)} of {one.failures}"
            counts.add_row(*row(escaped(one.suite), escaped(one.family), escaped(one.condition), failed))
        console.print(counts)
        if len(conditions) > SHOWN:
            print_line(f"the {SHOWN} most frequent of {len(conditions)} conditions; --json names all")
    if named:
        links = table("where", "version", "mode", "task", "instruction")
        for attempt in named[-SHOWN:]:
            where = f"{attempt['partition']}:{attempt['offset']}"
            who = escaped(attempt["agent"] or str(attempt["version"]))
            texts = (escaped(attempt["task_id"]), escaped(attempt["instruction"]))
            links.add_row(*row(where, who, attempt["mode"], *texts))
        console.print(links)
        print_line(f"the last {min(SHOWN, len(named))} of {len(named)} failures; --json names all. As pages:")
        for attempt in named[-SHOWN:]:
            print_line(f"  {attempt['show']}")
