"""More or fewer copies of a topic's partitions: which brokers hold them, as Kafka's own tool is told.

No Python client can ask a broker for it, so a plan is written down and a person runs `kafka-reassign-partitions.sh`.
Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from distrl.errors import BrokerError

Assigned = Mapping[str, Mapping[int, Sequence[int]]]
"""Full name of a topic -> partition -> the brokers that hold a copy, the preferred leader first."""


def copies(partitions: Mapping[int, Sequence[int]]) -> int:
    """The replication factor of a topic: that of its partition with the fewest copies."""
    return min(len(replicas) for replicas in partitions.values())


def reassigned(assigned: Assigned, brokers: Collection[int], factor: int) -> Assigned:
    """Where the partitions that have not `factor` copies would have them; those that have are left out.

    Brokers that hold a copy keep it, in their order; further ones go to the brokers that hold the fewest.
    Raises BrokerError where there are fewer brokers than copies.
    """
    everyone = {*brokers, *(broker for topic in assigned.values() for held in topic.values() for broker in held)}
    if factor > len(everyone):
        raise BrokerError(
            "kafka.replication_factor",
            f"{factor} copies are wanted of a cluster of {len(everyone)} brokers",
            f"set kafka.replication_factor to at most {len(everyone)}, or add brokers",
        )
    load = Counter(broker for topic in assigned.values() for held in topic.values() for broker in held)
    found: dict[str, dict[int, list[int]]] = {}
    for name, topic in sorted(assigned.items()):
        for partition, held in sorted(topic.items()):
            if len(held) == factor:
                continue
            replicas = list(held[:factor])
            while len(replicas) < factor:
                least = min(everyone.difference(replicas), key=lambda broker: (load[broker], broker))
                load[least] += 1
                replicas.append(least)
            found.setdefault(name, {})[partition] = replicas
    return found


def plan(assigned: Assigned) -> str:
    """`assigned` as the file that kafka-reassign-partitions.sh reads."""
    partitions = [
        {"topic": name, "partition": partition, "replicas": list(replicas)}
        for name, topic in assigned.items()
        for partition, replicas in topic.items()
    ]
    return json.dumps({"version": 1, "partitions": partitions}, indent=1) + "\n"
