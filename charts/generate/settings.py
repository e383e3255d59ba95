"""The program's own settings, for the chart: their defaults, and the schema of values.config."""

from __future__ import annotations

from typing import Any

import yaml
from distrl.config import RUN_NAME, Config
from distrl.config.algorithm_plugins import NAME
from distrl.config.algorithms import DEFAULT
from distrl.librdkafka import SECRET

OF_THE_CHART = {
    "stack": (),
    "adb": ("binary",),
    "devices": ("addresses", "serials", "emulators", "directory"),
    "worker": ("name",),
    "evaluate": ("name",),
    "learner": ("ranks",),
    "phones": ("count", "evaluation_count", "base_port"),
}
"""Settings that the chart decides; all of a section where none is named. values.config refuses them."""

HEAD = "# The program's own settings, made by `make chart`: templates read here what values.config leaves out.\n"


def defaults() -> str:
    """Every setting with its default, as YAML."""
    tree = Config().tree(with_secrets=False)
    return HEAD + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)


def schema() -> dict[str, Any]:
    """JSON schema of values.config, with its $defs: what the program takes, less what the chart decides and secrets."""
    whole = Config.model_json_schema()
    for name, section in _sections(whole):
        properties, removed = section["properties"], OF_THE_CHART.get(name)
        if removed == ():
            del whole["properties"][name]
        for key in removed or ():
            del properties[key]
    for each in whole["$defs"].values():  # sections of sections, too
        for key in [key for key, setting in each.get("properties", {}).items() if _secret(setting)]:
            del each["properties"][key]
    whole["$defs"]["KafkaSettings"]["properties"]["client"] = {
        "type": "object",
        "description": "further settings of librdkafka; secrets as variables from a Secret, in `env` of a role",
        "propertyNames": {"not": {"pattern": SECRET.pattern}},
        "additionalProperties": {"type": ["string", "number", "boolean"]},
    }
    whole["$defs"]["FeederSettings"]["properties"]["tasks"]["type"] = ["array", "string"]
    whole["properties"]["algorithm"] = _by_type(whole["properties"]["algorithm"])
    whole["properties"]["run"] |= {"pattern": f"^{RUN_NAME.pattern}$"}
    whole["description"] = (
        "Settings of the program (`distrl config show`). The chart decides names of processes, phones, places on disk; "
        "secrets come from Secrets (credentials)."
    )
    _simplify(whole)
    return whole


def _sections(whole: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Name and schema of each section that is one type."""
    properties = whole["properties"].items()
    return [(name, whole["$defs"][each["$ref"].rpartition("/")[2]]) for name, each in properties if "$ref" in each]


def _by_type(union: dict[str, Any]) -> dict[str, Any]:
    """One of several types of a section, chosen by `type`: a refusal is then about that type alone. The settings of a
    type of another package are not known here: the program checks them."""
    mapping = union["discriminator"]["mapping"]
    choices = [
        {"if": {"properties": {"type": {"const": name}}, "required": ["type"]}, "then": {"$ref": ref}}
        for name, ref in mapping.items()
    ]
    unnamed = {"if": {"not": {"required": ["type"]}}, "then": {"$ref": mapping[DEFAULT]}}
    brought = {"type": "string", "pattern": f"^{NAME.pattern}$"}
    kind = {"if": brought, "then": {}, "else": {"enum": list(mapping)}}
    return {"type": "object", "properties": {"type": kind}, "allOf": [unnamed, *choices]}


def _secret(setting: dict[str, Any]) -> bool:
    return any(each.get("writeOnly") for each in (setting, *setting.get("anyOf", ())))


def _simplify(schema: dict[str, Any]) -> None:
    """Drop, in place, what a refusal does not need: titles, formats, and defaults, which files/defaults.yaml has."""
    for key in ("title", "default", "format"):
        schema.pop(key, None)
    for key in ("properties", "$defs"):
        for each in schema.get(key, {}).values():
            _simplify(each)
    for each in schema.get("anyOf", ()):
        _simplify(each)
    if isinstance(schema.get("items"), dict):
        _simplify(schema["items"])
