"""`distrl config`: show the settings in force, or check a file before it is used."""

from __future__ import annotations

import shutil

import typer
import yaml

from distrl.cli.common import ConfigFile, Sets, console, load
from distrl.config import Config
from distrl.errors import ConfigError

app = typer.Typer(help="Show or check the settings.", no_args_is_help=True)


@app.command()
def show(config: ConfigFile = None, sets: Sets = None) -> None:
    """Print every setting in force as YAML, in the form that --config takes.

    In your file keep only the lines that you change: an endpoint that a file names counts as your own, and is not
    started. Secrets are never printed.
    """
    settings = load(config, sets)
    for path in settings.secrets():
        console.out(f"# set, and not shown: {path}", highlight=False)
    tree = settings.tree(with_secrets=False)
    console.out(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), end="", highlight=False)


@app.command()
def check(config: ConfigFile = None, sets: Sets = None) -> None:
    """Refuse an unknown setting or an impossible value with its path and what is allowed; exit 0 if all is well.

    Also checks the programs and files that settings name, except those that a role creates; the rows of feeder.tasks;
    and kafka.client with librdkafka. Connects to nothing but the hub of a base model that is named on one and not here
    yet.
    """
    from distrl.broker.client_settings import check_client

    settings = load(config, sets)
    _refuse_files(settings)
    check_client(settings.kafka)
    from distrl.algorithms.registry import refuse_other_policy
    from distrl.policy.registry import policy_of
    from distrl.policy.sampling import Sampling
    from distrl.rollout.serving import refuse_ladder, served_tokenizer
    from distrl.runs.settings import learning_fingerprint
    from distrl.tasks.lists import suite_of

    suite_of(settings.feeder)
    _refuse_combinations(settings)
    policy = policy_of(settings.policy)
    refuse_other_policy(settings, policy.tokenizer)
    refuse_ladder(Sampling.of(settings.worker), policy.tokenizer)
    if settings.policy.server.endpoint is not None:
        served_tokenizer(settings.policy, policy.tokenizer)
    console.print(
        f"the settings are sound; learning fingerprint {learning_fingerprint(settings)[:16]}", highlight=False
    )


def _refuse_combinations(settings: Config) -> None:
    """Raises ConfigError, and StoreError, for what a role would say of settings at its start that lack others, or do
    not go together."""
    from distrl.compute import refuse_idle_ranks
    from distrl.policy.sampling import Sampling
    from distrl.rollout.served.policy import refuse_colder
    from distrl.store.objects import open_store

    if not settings.store.url.startswith("file:"):  # which would make the folder
        open_store(settings.store)
    refuse_idle_ranks(settings, settings.learner.ranks)
    if settings.policy.server.endpoint is not None:
        refuse_colder(Sampling.of(settings.worker))


def _refuse_files(settings: Config) -> None:
    """Raises ConfigError for a file that is not there, a program that cannot be run, and what holds no notes."""
    from distrl.appagent.notes import load as load_notes

    named = [
        ("kafka.ssl_ca", settings.kafka.ssl_ca),
        ("kafka.schema_registry_ca", settings.kafka.schema_registry_ca),
        ("store.ca", settings.store.ca),
        *(("feeder.tasks", file) for file in settings.feeder.tasks),
    ]
    for path, file in named:
        if file is not None and not file.is_file():
            raise ConfigError(path, f"{file} is no file", "name a file that is there, or leave the setting out")
    emulator, notes = settings.devices.emulators.binary, settings.appagent.notes
    programs = [
        ("adb.binary", settings.adb.binary),
        ("devices.emulators.binary", None if emulator is None else emulator.expanduser()),
    ]
    for path, program in programs:
        if program is not None and shutil.which(program) is None:
            raise ConfigError(path, f"{program} is no program", "name one that can be run, or leave the setting out")
    if notes is not None and notes.exists():  # an exploration creates it
        load_notes(notes)
