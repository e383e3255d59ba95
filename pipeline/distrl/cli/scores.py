"""`distrl scores`: success of every evaluated version and agent, side by side."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from distrl.cli.common import ConfigFile, OfRun, Sets, console, row, run_settings, table
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.types import Evaluation, Split

LOG = logging.getLogger("distrl.cli.scores")


def register(app: typer.Typer) -> None:
    app.command("scores")(scores)


def scores(
    config: ConfigFile = None,
    sets: Sets = None,
    run: OfRun = None,
    split: Annotated[Split | None, typer.Option(help="Only tasks of this split; all if not given.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, for programs, in place of a table.")
    ] = False,
) -> None:
    """Success by policy: every evaluated version and agent, a row for each suite and split, with its 95 % interval. A
    void version is marked: the run does not go on from it.
    """
    settings = run_settings(config, sets, run)
    from distrl.evaluate import policies
    from distrl.evaluate.gather import agent_names, records
    from distrl.offline.record_text import escaped
    from distrl.store.objects import open_store

    found = [  # without steps, which nothing here reads: a run of weeks has more than fit into memory
        replace(record, trajectory=replace(record.trajectory, steps=()))
        for _, record in records(settings, "evaluations", Evaluation)
    ]
    agents = agent_names(open_store(settings.store), found)
    places = {place: each for place, each in policies.by_policy(found).items() if split in (None, place[1])}
    if not places:
        asked = f" of split {split.value}" if split is not None and found else ""
        raise BrokerError(
            f"run {settings.run}",
            f"has no evaluation{asked}",
            "name another run with --run, or measure this one with `distrl evaluate`",
        )
    void = _void(settings, found)
    if as_json:
        lines = [
            {"suite": suite, "split": of.value} | line | {"void": None if void is None else line["version"] in void}
            for (suite, of), each in places.items()
            for line in policies.as_json(each, agents)
        ]
        json.dump({"run": settings.run, "scores": lines}, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return
    unknown = any(score.others for each in places.values() for score in each.values())
    shown = table("suite", "split", "policy", "success", "95 %", "tasks", *(["no outcome"] if unknown else []))
    for (suite, of), each in places.items():
        for policy_id, score in each.items():
            tasks = f"{score.successes} of {score.episodes}"
            name = escaped(policies.name_of(policy_id, agents)) + (
                ", void" if policy_id.version in (void or ()) else ""
            )
            shown.add_row(
                *row(escaped(suite), of.value, name, *score.as_text(), tasks, *([score.others] if unknown else []))
            )
    console.print(shown)


def _void(settings: Config, found: Sequence[Evaluation]) -> set[int] | None:
    """The evaluated versions that are void; None, and a warning, where the journal cannot be read."""
    from distrl.broker.journal import versions_in_force

    try:
        counting = {each.version for each in versions_in_force(settings)}
    except (BrokerError, WireError) as error:
        LOG.warning("void versions are not marked: %s", error)
        return None
    return {record.version for record in found if record.version >= 0} - counting
