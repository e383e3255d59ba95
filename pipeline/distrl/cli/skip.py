"""`distrl skip`: skips a record that can never be learned from, for good."""

from __future__ import annotations

from typing import Annotated

import typer

from distrl.cli.common import ConfigFile, OfRun, Sets, console, run_settings


def register(app: typer.Typer) -> None:
    app.command("skip")(skip)


def skip(
    place: Annotated[str, typer.Argument(help="The record, TOPIC/PARTITION/OFFSET, like trajectories/0/17.")],
    reason: Annotated[str, typer.Option(help="Why, for those who read the journal later.")],
    run: OfRun = None,
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Skip one record for good, where an object that it names is lost.

    A running learner ends; start it again. Updates from the one that folded the record on are folded again. On a broker
    with an authorizer it needs the learner's rights.
    """
    from distrl.learner.skip import refuse_other_form
    from distrl.learner.skip import skip as leave_out

    refuse_other_form(place)
    settings = run_settings(config, sets, run)
    done = leave_out(settings, place, reason)
    console.print(
        f"{place} is left out from update {done.u} on; {done.void} updates are folded again. "
        f"Start the learner of run {settings.run}.",
        highlight=False,
        markup=False,
    )
