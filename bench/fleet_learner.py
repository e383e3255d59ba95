"""The learner of a simulated fleet: its loop as it is, but that no screen is fetched and no gradient step made.

What is left is its bookkeeping: reading, decoding, duplicates, the pending window, the journal, admission to the replay
buffer and its draws, versions, checkpoints.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from io import BytesIO
from typing import Any

import torch
from distrl.algorithms.aride.memory import ArideMemory
from distrl.algorithms.protocol import Algorithm, Metrics
from distrl.broker.heartbeats import HeartbeatSender
from distrl.broker.producer import RecordProducer
from distrl.config import Config
from distrl.learner.journal_writer import JournalWriter
from distrl.learner.loop import Loop
from distrl.learner.newest_version import NewestVersionWatch
from distrl.learner.ranks import Leader
from distrl.learner.recover import log_of, recover
from distrl.learner.run import HEARTBEAT_S
from distrl.policy.feature_store import FeatureStore
from distrl.policy.features import Features
from distrl.policy.protocol import ImageFeatures, Policy
from distrl.ranks.group import ALONE
from distrl.store.directory import DirectoryStore
from distrl.telemetry.monitor import Monitor, Reporter
from distrl.telemetry.tracing import OFF
from distrl.types import Heartbeat, ObjectRef, ScreenSize, Version
from PIL import Image
from simphone.machine import PhoneMachine


class Bookkeeping:
    """A-RIDE's memory, and updates that only draw from it."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm

    def update(self, u: int) -> Metrics:
        memory = self._algorithm.memory
        assert isinstance(memory, ArideMemory)
        memory.outdated(u)
        memory.draw(u)
        return {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._algorithm, name)


class WithoutScreens(DirectoryStore):
    """A store that has every screenshot, and of none the bytes."""

    def get(self, ref: ObjectRef) -> bytes:
        return b"" if ref.key.startswith("screenshots/") else super().get(ref)


def screen_seconds(policy: Policy, rounds: int = 20) -> float:
    """Median processor seconds of the features of one screen of a simulated phone."""
    screen, taken = Image.open(BytesIO(PhoneMachine(0, 0.0).png())).convert("RGB"), []
    for number in range(rounds):
        screen.putpixel((0, 0), (number, 0, 0))  # the policy keeps the features of a screen that it knows
        screen.save(file := BytesIO(), "PNG")
        began = time.process_time()
        policy.image_features(file.getvalue())
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def run_bookkeeping(config: Config, stop: threading.Event, report: Callable[..., None]) -> None:
    """Learn until `stop`, as distrl.learner.run.run_learner does. Reports how far it is with each heartbeat."""
    torch.set_num_threads(1)
    folded = skipped = 0

    def updated(metrics: Mapping[str, float], version: Version | None) -> None:
        nonlocal folded, skipped
        folded += int(metrics["trajectories"])
        skipped += int(metrics["skipped"])
        report(folded=folded, skipped=skipped, updates=int(metrics["update"]), cpu_s=time.process_time())

    with JournalWriter(config) as journal, RecordProducer(config, "learner") as producer, ExitStack() as readers:

        def send(beat: Heartbeat) -> None:
            if "pending" in beat.metrics:
                report(read=folded + int(beat.metrics["pending"]), cpu_s=time.process_time())
            producer.publish("heartbeats", beat.process, beat)

        reporter = Reporter(HeartbeatSender("learner", "learner", HEARTBEAT_S, send), Monitor())
        history = journal.history()
        log = log_of(config, history)
        store = WithoutScreens.from_config(config.store)
        recovered = recover(config, store, history=history, log=log)
        state, nothing = recovered.state, ImageFeatures(torch.zeros(1), ScreenSize(1, 1))
        state.features = Features(lambda _: nothing, 1, FeatureStore(config.learner.features_mb << 20, None))
        state.algorithm = Bookkeeping(state.algorithm)
        leader = Leader(config, ALONE, store.get, stop)
        leader.begin(state)
        loop = Loop(
            config,
            store,
            journal,
            producer,
            reporter,
            leader,
            recovered,
            history,
            log,
            stop,
            updated,
            OFF,
            NewestVersionWatch(config),
        )
        loop.follow(readers)
        report(screen_s=screen_seconds(state.policy))
        report(ready=True, cpu_s=time.process_time())
        loop.redo(())
        loop.work()
