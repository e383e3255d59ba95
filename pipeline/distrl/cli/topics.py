"""`distrl topics`: declare a run's topics, and compare what exists with what is declared."""

from __future__ import annotations

from typing import Annotated

import typer

from distrl.cli.common import (
    ConfigFile,
    Sets,
    connected_to_broker,
    console,
    of_run_if_any,
    print_line,
    row,
    table,
)
from distrl.cli.rights import RoleName

app = typer.Typer(help="Create, describe or wait for the topics of a run.", no_args_is_help=True)


@app.command("ensure")
def ensure_topics(
    config: ConfigFile = None,
    sets: Sets = None,
    alter: Annotated[
        bool,
        typer.Option(
            "--alter",
            help="Give existing topics the declared settings, and add partitions that they lack. For another "
            "replication factor, write the plan that Kafka's own tool carries out and print the command.",
        ),
    ] = False,
) -> None:
    """Create the run's topics where missing; refuse, and list each difference, where one has other settings.

    Where the workers' group has no offsets yet, it gets those of the first tasks, so that what scales workers by their
    lag sees it from the beginning.
    """
    from distrl.broker import group, topic_admin

    settings = of_run_if_any(config, sets)
    for line in topic_admin.ensure(settings, alter=alter):
        console.print(str(line), markup=False, highlight=False, soft_wrap=True)
    if begun := group.begin(settings):
        console.print(f"{group.workers_group(settings)}: begins at the first task, {begun} partitions", soft_wrap=True)


@app.command("describe")
def describe_topics(config: ConfigFile = None, sets: Sets = None) -> None:
    """Print each topic of the run: partitions, copies, records, clean-up, retention, differences from the declaration.

    Records are counted by offsets, of which a transaction takes one too, and clean-up leaves gaps.
    """
    from distrl.broker import topic_admin

    shown = table("topic", "partitions\n× copies", "records,\nat most", "cleanup", "retention", "differences")
    for topic in topic_admin.describe(of_run_if_any(config, sets)):
        held = f"{topic.partitions} × {topic.copies}"
        cells = row(topic.name, held, topic.records, topic.cleanup, topic.retention, topic.differences)
        shown.add_row(*cells)
    console.print(shown)


@app.command("wait")
def wait(
    role: RoleName,
    config: ConfigFile = None,
    sets: Sets = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Seconds after which it ends with an error.")
    ] = 600.0,
) -> None:
    """Wait until the topics that a role reads and writes are there, and these settings' user may use them.

    For a pod that starts together with its broker, its user and the Job that makes the topics.
    """
    from distrl.broker.topics import TOPICS
    from distrl.broker.wait import wait_for_topics
    from distrl.rights.roles import TopicRight, role_named

    found, settings = role_named(role), connected_to_broker(config, sets)
    names = [name for name in TOPICS if found.may(TopicRight.READ, name) or found.may(TopicRight.WRITE, name)]
    wait_for_topics(settings, names, timeout_s, lambda missing: print_line(f"waiting: {missing}"))
    print_line(f"the {len(names)} topics of the {role} in run {settings.run} are there")
