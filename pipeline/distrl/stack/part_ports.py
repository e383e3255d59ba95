"""Distinct ports for the parts of a local stack, which start at the same time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

from distrl.config import Config
from distrl.stack import adb, kafka, phones, ports, s3


@dataclass(frozen=True, slots=True)
class Wanted:
    """Ports in a row that a server takes if they are free."""

    setting: str
    first: int
    explicit: bool
    """Whether a person has set `setting`: the server takes no other ports, and no other server takes these."""
    count: int = 1

    @property
    def row(self) -> range:
        return range(self.first, self.first + self.count)


class PartPorts:
    """Draws them; each call again, as a server whose port was taken meanwhile is started at another. Any thread."""

    def __init__(self, config: Config) -> None:
        self._wanted = wanted(config)
        self._lock = threading.Lock()
        self._drawn: dict[str, range] = {}

    def of(self, part: str) -> int:
        """The first port of a part. Raises StackError where the one that a person has set is taken."""
        return self._draw(part, self._wanted[part])

    def of_broker_and_controller(self) -> tuple[int, int]:
        """Raises as `of` does."""
        first = self.of(kafka.NAME)
        return first, self._draw("controller", Wanted(self._wanted[kafka.NAME].setting, first + 1, explicit=False))

    def _draw(self, server: str, asked: Wanted) -> int:
        with self._lock:
            # Nor the server's own at a second try: the other stack may not listen at all of its ports yet.
            rows = [row for other, row in self._drawn.items() if other != server or not asked.explicit]
            if not asked.explicit:
                rows += [other.row for other in self._wanted.values() if other.explicit]
            taken = {port for row in rows for port in row}
            found = ports.choose(asked.first, asked.explicit, asked.setting, taken, asked.count)
            self._drawn[server] = range(found, found + asked.count)
            return found


def wanted(config: Config) -> Mapping[str, Wanted]:
    """By part."""
    stack, adb_server, fleet = config.stack, config.adb, config.phones
    return {
        kafka.NAME: Wanted("stack.kafka_port", stack.kafka_port, "kafka_port" in stack.model_fields_set),
        s3.NAME: Wanted("stack.s3_port", stack.s3_port, "s3_port" in stack.model_fields_set),
        adb.NAME: Wanted("adb.port", adb_server.port, "port" in adb_server.model_fields_set),
        phones.NAME: Wanted(
            "phones.base_port", fleet.base_port, "base_port" in fleet.model_fields_set, phones.total(fleet)
        ),
    }
