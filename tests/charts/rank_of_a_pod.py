"""One rank that torchrun has started: it meets the others and prints what they are; then the last one is killed."""

from __future__ import annotations

import json
import os
import signal
import threading

from distrl.ranks.group import RankError, Ranks, joined
from distrl.ranks.place import place_of


def report(line: str) -> None:
    """Prints by one write: the ranks of a pod share a pipe, where print() leaves its newline to a second write."""
    os.write(1, f"{line}\n".encode())


place = place_of(os.environ)
assert place is not None
ranks = joined(place, 60.0, threading.Event())
assert isinstance(ranks, Ranks)
report(json.dumps(ranks.gather([place.rank, place.world, place.local_rank])))
if place.rank == place.world - 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    ranks.gather(None)
except RankError as error:
    report(str(error))
    raise SystemExit(1) from None
