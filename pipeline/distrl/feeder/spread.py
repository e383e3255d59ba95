"""Which partition of the tasks topic each further task goes to. Pure.

A task waits behind those of its partition, and a worker's phones share the partitions that it owns. Tasks are spread
over workers by their phones, so that each phone has as many tasks before it: spread over partitions alone, the worker
that has the partitions with one task more had twice as many for each phone, its tasks grew old, and the bound on their
lag held back the phones of all others (docs/adr/0011).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heapify, heapreplace


@dataclass(frozen=True, slots=True)
class Owner:
    """A worker. partitions: of the tasks topic, that it owns. phones: how many answer by it."""

    partitions: tuple[int, ...]
    phones: float


def owners_of(partitions: int, known: Iterable[Owner]) -> list[Owner]:
    """Every partition in one owner, the one with the lowest partition first.

    known: the workers that say what they own; no partition is in two of them. What none of them owns, as at the start,
    or after a worker died, counts as that of a worker with as many phones for each partition as the others have. Where
    no phone answers, nobody owns any.
    """
    found = [Owner(tuple(at for at in each.partitions if at < partitions), each.phones) for each in known]
    found = [each for each in found if each.partitions]
    if not any(each.phones for each in found):
        found = []
    owned = {at for each in found for at in each.partitions}
    if nobodys := tuple(at for at in range(partitions) if at not in owned):
        share = sum(each.phones for each in found) / len(owned) if owned else 1.0
        found.append(Owner(nobodys, share * len(nobodys)))
    return sorted(found, key=lambda each: min(each.partitions))


def spread(loads: Mapping[int, int], owners: list[Owner], count: int) -> list[int]:
    """The partitions of `count` further tasks. Each goes to the worker that has the fewest outstanding tasks for each
    of its phones, and there to the partition with the fewest; to the lowest of equals.

    loads: outstanding tasks by partition. owners: of `owners_of`. A slow worker gets new tasks only as it finishes old
    ones, so that its partitions do not use up feeder.outstanding; one whose phones do not answer gets none while
    others have some.
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
