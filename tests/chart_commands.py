"""Command lines and settings of pods, as the program itself reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from chart_examples import containers, pods
from distrl.cli.main import app
from distrl.config import Config, load

FROM_THE_CLUSTER = "given-by-the-cluster"
"""Stands for what a Secret or the pod's own name will be."""


def parsed(args: list[str]) -> dict[str, Any]:
    """The options of a command line of `distrl`, as the real parser has them; a wrong one ends the process."""
    command, context, name = typer.main.get_command(app), None, "distrl"
    while True:
        context = command.make_context(name, list(args), parent=context)
        rest = [*context._protected_args, *context.args]
        if not rest:
            return context.params
        name, command, args = command.resolve_command(context, rest)


def programs(objects: list[dict[str, Any]]) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """Each container that runs `distrl`: where it is, the container, and the files that it sees under their paths."""
    config_maps = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
    found = []
    for name, pod in pods(objects):
        mapped = {each["name"]: each["configMap"]["name"] for each in pod["spec"]["volumes"] if "configMap" in each}
        for container in containers(pod):
            if "args" not in container:
                continue
            files = {
                mount["mountPath"]: config_maps[mapped[mount["name"]]][mount["subPath"]]
                for mount in container["volumeMounts"]
                if mount["name"] in mapped and "subPath" in mount
            }
            found.append((f"{name}/{container['name']}", container, files))
    return found


def settings(container: dict[str, Any], files: dict[str, str], folder: Path) -> Config:
    """What the container's process would start with. Raises ConfigError for what the program refuses."""
    options = parsed(container["args"])
    environ = {each["name"]: each.get("value", FROM_THE_CLUSTER) for each in container.get("env", ())}
    file = None
    if options.get("config") is not None:
        file = folder / "config.yaml"
        file.write_text(files[str(options["config"])])
    sets = () if container["args"][0] == "ablate" else options.get("sets") or ()  # there they are arms
    return load(file, sets, environ)
