"""Which partition of the tasks topic each new task goes to. Pure.

A task waits behind the earlier tasks of its partition, and a worker's phones share the partitions that it owns. Tasks
are spread over workers in proportion to their phones, so that every phone has equally many tasks waiting. When they
were spread evenly over partitions, some workers had twice as many tasks per phone as others. Their tasks grew old, and
the bound on the lag then held back the phones of all other workers (docs/adr/0011).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace


@dataclass(frozen=True, slots=True)
class Owner:
    """A worker. partitions: of the tasks topic that it owns. phones: how many of its phones answer."""

    partitions: tuple[int, ...]
    phones: float


def owners_of(partitions: int, known: Iterable[Owner]) -> list[Owner]:
    """Owners that together have each partition exactly once, sorted by their lowest partition.

    known: the workers that report what they own; no partition is in two of them. Partitions without an owner, as at the
    start or after a worker has died, are given to one assumed worker, with as many phones per partition as the others
    have. If no phone of any worker answers, all partitions are given to it.
    """
    found = [Owner(tuple(at for at in each.partitions if 0 <= at < partitions), each.phones) for each in known]
    found = [each for each in found if each.partitions]
    if not any(each.phones for each in found):
        found = []
    owned = {at for each in found for at in each.partitions}
    if nobodys := tuple(at for at in range(partitions) if at not in owned):
        share = sum(each.phones for each in found) / len(owned) if owned else 1.0
        found.append(Owner(nobodys, share * len(nobodys)))
    return sorted(found, key=lambda each: min(each.partitions))


def spread(loads: Mapping[int, int], owners: list[Owner], count: int) -> list[int]:
    """The partitions of `count` new tasks. Each task goes to the worker with the fewest outstanding tasks per phone,
    and there to the partition with the fewest; ties go to the lowest partition.

    loads: outstanding tasks by partition. owners: from `owners_of`. A slow worker gets new tasks only as it finishes
    old ones, so its partitions do not use up feeder.outstanding. A worker whose phones do not answer gets none while
    phones of others do.
    """
    held = [sum(loads.get(at, 0) for at in owner.partitions) for owner in owners]
    partitions: dict[int, list[tuple[int, int]]] = {}

    def rank(worker: int) -> tuple[float, int, int]:
        phones = owners[worker].phones
        return held[worker] / phones if phones else math.inf, held[worker], worker

    waiting = [rank(worker) for worker in range(len(owners))]
    heapify(waiting)
    chosen = []
    for _ in range(count):
        worker = waiting[0][-1]
        if worker not in partitions:
            partitions[worker] = [(loads.get(at, 0), at) for at in owners[worker].partitions]
            heapify(partitions[worker])
        load, partition = partitions[worker][0]
        heapreplace(partitions[worker], (load + 1, partition))
        held[worker] += 1
        heapreplace(waiting, rank(worker))
        chosen.append(partition)
    return chosen
