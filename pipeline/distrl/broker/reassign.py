"""Plans a change of a topic's replication factor: which brokers hold the replicas.

No Python client can request it, so the plan is a file with which a person runs `kafka-reassign-partitions.sh`. Pure.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from distrl.errors import BrokerError

Assigned = Mapping[str, Mapping[int, Sequence[int]]]
"""Full name of a topic -> partition -> the brokers that hold a replica, the preferred leader first."""


def copies(partitions: Mapping[int, Sequence[int]]) -> int:
    """The replication factor of a topic: that of its partition with the fewest replicas."""
    return min(len(replicas) for replicas in partitions.values())


def reassigned(assigned: Assigned, brokers: Collection[int], factor: int) -> Assigned:
    """New assignments of the partitions that do not have `factor` replicas; the others are left out.

    Existing replicas stay, in their order; further ones go to the brokers that hold the fewest.
    Raises BrokerError if there are fewer brokers than replicas.
    """
    everyone = {*brokers, *(broker for topic in assigned.values() for held in topic.values() for broker in held)}
    if factor > len(everyone):
        raise BrokerError(
            "kafka.replication_factor",
            f"{factor} replicas need as many brokers, and the cluster has {len(everyone)}",
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
