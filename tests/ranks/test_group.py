"""Ranks that are started again: they meet each other, and none that has ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from distrl.ranks import group
from distrl.ranks.group import RankError, joined, reason
from distrl.ranks.place import LOOPBACK, Place
from torch._C._distributed_c10d import TCPStore

MEET = """
import os, threading
from distrl.ranks.group import joined
from distrl.ranks.place import place_of
ranks = joined(place_of(os.environ), 60.0, threading.Event())
print(ranks.gather(os.getpid()), flush=True)
os._exit(1)  # as a killed rank: nothing is taken back from the store
"""
END_S = 120.0


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Connection closed by peer\nframe #0: c10::Error", "Connection closed by peer"),
        (
            "NCCL error in: NCCLUtils.cpp:94, invalid usage, NCCL version 2.27.3\nncclInvalidUsage: This usually …\n"
            "Last error:\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\nframe #0: c10::Error",
            "NCCL error in: NCCLUtils.cpp:94, invalid usage, NCCL version 2.27.3: Duplicate GPU detected : rank 0 and "
            "rank 1 both on CUDA device 1000",
        ),
        ("", ""),
    ],
)
def test_of_what_torch_says_the_reason_is_kept(text: str, shown: str) -> None:
    assert reason(text) == shown


def test_an_error_without_a_text_as_the_ranks_meet_is_named_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(group, "_join", fails)
    with pytest.raises(RankError, match=r"one of them ended \(TimeoutError\)"):
        joined(Place(1, 2), 60.0, threading.Event())


def start(rank: int, attempt: int, port: int) -> subprocess.Popen[str]:
    """As torchrun does, whose agent has the store."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    said = {name: str(number) for name, number in numbers.items()} | {"MASTER_ADDR": LOOPBACK}
    said |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": str(attempt)}
    return subprocess.Popen([sys.executable, "-c", MEET], env=os.environ | said, stdout=subprocess.PIPE, text=True)


@pytest.mark.timeout(300)
def test_ranks_that_are_started_again_meet_although_the_store_knows_those_that_have_ended() -> None:
    """Whoever comes first finds the address of a rank that has ended, unless each attempt has names of its own."""
    store = TCPStore(LOOPBACK, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=END_S))
    running: list[subprocess.Popen[str]] = []
    try:
        for attempt in range(2):
            known = store.num_keys()
            last = start(1, attempt, store.port)
            running.append(last)
            while store.num_keys() == known:
                assert last.poll() is None, "it has ended before it met another"
            first = start(0, attempt, store.port)
            running.append(first)
            met = str([first.pid, last.pid])
            assert [each.communicate(timeout=END_S)[0].strip() for each in (first, last)] == [met, met]
    finally:
        for process in running:
            process.kill()
            process.wait()
