"""Settings to be saved: without the endpoints of a local stack, which change when it is started again."""

from __future__ import annotations

from typing import Any

from distrl.config import Config
from distrl.stack import adb, kafka, phones, s3
from distrl.stack.stack_record import Record

PORTS = (("stack", "kafka_port"), ("stack", "s3_port"), ("phones", "base_port"))
"""In a settings file they must be free; left out, free ones are chosen."""


def portable(config: Config) -> dict[str, Any]:
    """Every setting with its secrets, as a tree for YAML, except those that the stack in stack.directory filled in.

    `distrl up` with them starts that stack again, and every other command finds it, from any folder.
    """
    directory = config.stack.directory.expanduser().absolute()
    tree = config.tree(with_secrets=True)
    tree["stack"]["directory"] = str(directory)
    parts = Record(directory).parts()
    ours = {name: part.where for name, part in parts.items()}
    filled: list[tuple[str, str]] = []
    if ours.get(kafka.NAME) == config.kafka.bootstrap:
        filled += [("kafka", "bootstrap")]
    if ours.get(s3.NAME) == config.store.url:
        filled += [("store", name) for name in ("url", "access_key", "secret_key")]
    if ours.get(adb.NAME) == f"{config.adb.host}:{config.adb.port}":
        filled += [("adb", "host"), ("adb", "port")]
    if phones.NAME in parts and phones.fill(config, parts[phones.NAME], "all").devices == config.devices:
        # Not settle_unchanged_s: who is given some of these phones by address finds it here alone.
        filled += [("devices", "addresses"), ("phones", "base_port")]
    default = Config()
    filled += [
        (section, name)
        for section, name in PORTS
        if getattr(getattr(config, section), name) == getattr(getattr(default, section), name)
    ]
    for section, name in filled:
        tree[section].pop(name, None)
    return tree
