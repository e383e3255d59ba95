"""`distrl config`: show the settings in force, check a file before it is used."""

from __future__ import annotations

import typer
import yaml

from distrl.cli.common import ConfigFile, Sets, console, load

app = typer.Typer(help="Show or check the settings.", no_args_is_help=True)


@app.command()
def show(config: ConfigFile = None, sets: Sets = None) -> None:
    """Print every setting in force as YAML. A file of this shape is what --config takes.

    Keep the lines that you change: an endpoint that a file names counts as one of your own, and is not started.
    Secrets are never printed.
    """
    settings = load(config, sets)
    tree = settings.model_dump(mode="json")
    for path in settings.secrets():
        section, _, name = path.partition(".")
        del tree[section][name]  # a mask would be taken for the secret where the file is used
        console.out(f"# set, and not shown: {path}", highlight=False)
    console.out(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), end="", highlight=False)


@app.command()
def check(config: ConfigFile = None, sets: Sets = None) -> None:
    """Refuse an unknown setting or an impossible value with its path and what is allowed; exit 0 if all is well."""
    settings = load(config, sets)
    console.print(
        f"the settings are sound; learning fingerprint {settings.learning_fingerprint()[:16]}", highlight=False
    )
