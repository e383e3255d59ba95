"""`distrl show`: one episode as a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from distrl.cli.common import ConfigFile, OfRun, Sets, print_line, run_settings

FOLDER = Path("out/show")
Topic = Literal["trajectories", "evaluations", "demonstrations"]


def register(app: typer.Typer) -> None:
    app.command("show")(show)


def show(
    episode: Annotated[str, typer.Argument(help="Its task id, or PARTITION:OFFSET.")],
    config: ConfigFile = None,
    sets: Sets = None,
    run: OfRun = None,
    topic: Annotated[
        Topic | None,
        typer.Option(
            help="Where it is. If not given: trajectories for PARTITION:OFFSET; a task id is looked for in "
            "trajectories, then evaluations, then demonstrations."
        ),
    ] = None,
    version: Annotated[
        int | None, typer.Option(min=0, help="Of a task's evaluations, the one of this version; else the first.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; one in out/show if not given.")] = None,
) -> None:
    """Write one episode as an HTML film strip: what was seen and done, by which version, and what failed.

    The page holds its screenshots and needs no network. Prints its path.
    """
    from distrl.evaluate.episode_page import episode_page, page_name
    from distrl.files import make_folder, write
    from distrl.offline.find_episode import SEARCHED, episode_at, episode_of, place_of, reading_once, search
    from distrl.offline.record_text import escaped
    from distrl.store.objects import open_store

    place = place_of(episode)
    if version is not None and (place is not None or topic not in (None, "evaluations")):
        raise typer.BadParameter("it needs a task id and the evaluations", param_hint="--version")
    settings = run_settings(config, sets, run)
    store = open_store(settings.store)
    if place is not None:
        found, *others = [episode_at(settings, topic or "trajectories", *place)]
    else:
        wanted = "evaluations" if version is not None else topic
        found, *others = search(settings, episode, SEARCHED if wanted is None else (wanted,), version)
    shown = episode_of(settings, found, store)
    path = out or FOLDER / page_name(shown)
    make_folder(path.parent)
    write(path, episode_page(shown, reading_once(store.get)).encode())
    print_line(f"{path}: {escaped(found.trajectory.task_id)}, {found.topic} {found.place}")
    if others:
        places = ", ".join(each.place for each in others)
        print_line(f"this task has further records in {found.topic}, `distrl show` each by its place: {places}")
