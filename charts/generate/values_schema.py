"""values.schema.json: values.schema.yaml beside this file, and values.config as the program has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

HAND_WRITTEN = Path(__file__).with_name("values.schema.yaml")


def schema(config: dict[str, Any]) -> str:
    """config: the schema of values.config, with $defs of its own."""
    whole = yaml.safe_load(HAND_WRITTEN.read_text())
    shared = whole["$defs"].pop("roleKeys")["properties"]
    _extend(whole, shared)
    whole["$defs"] |= config.pop("$defs")
    whole["properties"]["config"] = config
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _extend(node: Any, shared: dict[str, Any]) -> None:
    """Put `shared` beside the properties of each section that extends it, in place. Not by allOf: a refusal would then
    not say which name is unknown."""
    for each in list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else ():
        _extend(each, shared)
    if isinstance(node, dict) and node.pop("$extends", None):
        node["properties"] = shared | node.get("properties", {})
