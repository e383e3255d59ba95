"""One rank that torchrun has started: it meets the others and prints what they are; then the last one is killed."""

from __future__ import annotations

import json
import os
import signal
import threading

from distrl.ranks.group import RankError, Ranks, joined
from distrl.ranks.place import place_of

place = place_of(os.environ)
assert place is not None
ranks = joined(place, 60.0, threading.Event())
assert isinstance(ranks, Ranks)
print(json.dumps(ranks.gather([place.rank, place.world, place.local_rank])), flush=True)
if place.rank == place.world - 1:
    os.kill(os.getpid(), signal.SIGKILL)
try:
    ranks.gather(None)
except RankError as error:
    print(error, flush=True)
    raise SystemExit(1) from None
