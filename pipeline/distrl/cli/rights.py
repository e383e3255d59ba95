"""`distrl rights`: the commands and policies that give a role its rights at a broker and an object store."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from distrl.cli.common import ConfigFile, Sets, connected, of_run_if_any, print_line
from distrl.errors import ConfigError

app = typer.Typer(help="Print or grant what a role may do in a run (docs/security.md).", no_args_is_help=True)

RoleName = Annotated[str, typer.Option("--role", help="operator, feeder, worker, demonstrator, learner, …")]


@app.command("kafka")
def kafka(
    role: RoleName,
    principal: Annotated[
        str,
        typer.Option(help="Who gets the rights, as the broker names it: User:worker, User:CN=worker of a certificate."),
    ],
    config: ConfigFile = None,
    sets: Sets = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Grant the rights now, with the user of these settings.")
    ] = False,
) -> None:
    """Print the commands of Kafka's own tools that give a user the rights and the quota of a role in this run.

    With --apply, grant the rights instead; the quota stays to be set with the command that is printed.
    """
    from distrl.rights.kafka import commands
    from distrl.rights.roles import role_named

    found, settings = role_named(role), of_run_if_any(config, sets) if apply else connected(config, sets)
    lines = commands(found, settings, principal)
    if apply:
        from distrl.rights.grant import grant

        count = grant(settings, found, principal)
        print_line(f"{principal} has the {count} rights of the {role} in run {settings.run}")
        lines = [line for line in lines if line.startswith("kafka-configs.sh")]
    for line in lines:
        print_line(line)


@app.command("store")
def store(role: RoleName, config: ConfigFile = None, sets: Sets = None) -> None:
    """Print the policy of a role for this run's objects in the bucket of store.url, in the form of AWS IAM."""
    from urllib.parse import urlsplit

    from distrl.rights.objects import policy
    from distrl.rights.roles import role_named

    found, settings = role_named(role), connected(config, sets)
    parts = urlsplit(settings.store.url)
    if not parts.scheme.startswith("s3"):
        raise ConfigError("store.url", f"{settings.store.url} is no bucket", "set store.url to s3://HOST:PORT/BUCKET")
    made = policy(found, parts.path.strip("/"), settings.run)
    if made is None:
        raise ConfigError("--role", f"the {role} reads and writes no object", "give it no access to the store")
    print_line(json.dumps(made, indent=2))
