"""`distrl config`: show the settings in force, check a file before it is used."""

from __future__ import annotations

import typer
import yaml

from distrl.cli.common import ConfigFile, Sets, console, load

app = typer.Typer(help="Show or check the settings.", no_args_is_help=True)


@app.command()
def show(config: ConfigFile = None, sets: Sets = None) -> None:
    """Print every setting in force as YAML, secrets hidden: a file of this shape is what --config takes."""
    console.out(yaml.safe_dump(load(config, sets).model_dump(mode="json"), sort_keys=False), end="", highlight=False)


@app.command()
def check(config: ConfigFile = None, sets: Sets = None) -> None:
    """Refuse an unknown setting or an impossible value with its path and what is allowed; exit 0 if all is well."""
    settings = load(config, sets)
    console.print(f"the settings are sound; learning fingerprint {settings.learning_fingerprint()[:16]}")
