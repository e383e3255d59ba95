"""`distrl policy`: a published policy for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import ConfigFile, Sets, console, run_settings

app = typer.Typer(help="Published policies, for other programs.", no_args_is_help=True)


@app.callback()
def policy() -> None:
    """Published policies, for other programs."""


@app.command("export")
def export(
    out: Annotated[Path, typer.Option(help="Directory to write to; one that holds an adapter is refused.")],
    version: Annotated[int | None, typer.Option(min=0, help="Its number; the newest if not given.")] = None,
    run: Annotated[str | None, typer.Option(help="The run; that of the settings if not given.")] = None,
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Write the adapter of a version as PEFT has it: adapter_model.safetensors and adapter_config.json.

    The weights are the published bytes, checked against the version's hash. `PeftModel.from_pretrained(model, OUT)`
    loads them on the base model that adapter_config.json names by its sha256.
    """
    settings = run_settings(config, sets, run)
    from distrl.offline.adapter import export_adapter

    found = export_adapter(settings, version, out)
    console.print(
        f"version {found.version} of run {settings.run} ({found.adapter.sha256[:12]}) is in {out}",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
