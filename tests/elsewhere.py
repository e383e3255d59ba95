"""Ports for tests that start servers under the default settings, whose own ports belong to a demo beside the tests."""

from __future__ import annotations

from collections.abc import Mapping

from distrl.config import Config
from distrl.stack import ports

PORTS = ("stack.kafka_port", "stack.s3_port", "adb.port", "phones.base_port")
"""The settings that name a port where a part of the local stack listens."""
SPAN = 16
"""Ports in a row for each: under the default settings there are fewer phones."""


def drawn() -> Mapping[str, int]:
    """A free port, with some more behind it, for each setting."""
    taken: list[int] = []
    for _ in PORTS:
        first = ports.draw("the tests", taken, SPAN)
        taken.extend(range(first, first + SPAN))
    return dict(zip(PORTS, taken[::SPAN], strict=True))


def elsewhere(config: Config, found: Mapping[str, int]) -> Config:
    """`config` with the ports of `drawn` where none is set; they count as not set, as the default ones do."""
    for setting, port in found.items():
        name, _, field = setting.partition(".")
        section = getattr(config, name)
        if field not in section.model_fields_set:
            values = {each: getattr(section, each) for each in type(section).model_fields}
            moved = section.model_construct(_fields_set=set(section.model_fields_set), **values | {field: port})
            config = config.model_copy(update={name: moved})
    return config
