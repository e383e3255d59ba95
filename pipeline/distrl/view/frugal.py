"""Settings of readers whose memory does not grow with the log.

A client fetches ahead of the decoding, which is slower, until its queue is full. Its own limits are for one reader that
is to be fast: 64 MB of records, in fetches of 1 MB of compressed ones. Steps of an episode are alike, so that 1 MB of
them may be 50 MB of records, which are in memory at once whatever the queue may hold.
"""

from __future__ import annotations

from typing import Final

from distrl.config import Config

AHEAD_KB: Final = 4_096
"""Records that a reader holds before it fetches no more; a run has a reader for each topic of `follow.INDEXED`."""
FETCH_BYTES: Final = 65_536
"""Compressed records of one answer. A larger batch comes alone, so every record can be read."""


def frugal(config: Config) -> Config:
    """`config`, with readers that fetch little ahead, unless kafka.client says how much."""
    own = {"queued.max.messages.kbytes": str(AHEAD_KB), "fetch.message.max.bytes": str(FETCH_BYTES)}
    client = {**own, **config.kafka.client}
    return config.model_copy(update={"kafka": config.kafka.model_copy(update={"client": client})})
