"""Plays the steps of a run's log through the policies of its learner and its workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from distrl.accelerator import device_of
from distrl.broker.journal import history, in_force
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.offline.mismatch import Checked, Report, report
from distrl.offline.replay import read, topic_range_of
from distrl.offline.topic_range import RangeRequest
from distrl.policy.registry import policy_of
from distrl.policy.sampling import Sampling
from distrl.store.adapters import read_adapter
from distrl.store.objects import MissingObjectError, open_store
from distrl.types import LoggedTrajectory, Trajectory


def mismatch(config: Config, request: RangeRequest, steps: int, rows: int) -> Report:
    """Of the first `steps` that can be played of the range, in batches of `rows`.

    A step is played under its version's weights; one of no version, as in a demonstration, under the newest, or under
    an untrained adapter where the run has none. Raises ConfigError, BrokerError, StoreError, PolicyError.
    """
    devices = device_of(config.learner.device, "learner.device"), device_of(config.worker.device, "worker.device")
    learner = policy_of(config.policy, device=devices[0])
    worker = learner if devices[0] == devices[1] else policy_of(config.policy, device=devices[1])
    store, untrained = open_store(config.store), learner.adapter()
    published = lineage(config)
    versions = {version.adapter.sha256: version for version in published}
    newest = max(in_force(published, history(config)), key=lambda version: version.version, default=None)

    @lru_cache(maxsize=2)
    def adapter(sha256: str) -> bytes:
        version = versions.get(sha256) if sha256 else newest
        if version is None and sha256:
            raise MissingObjectError(sha256, "is the adapter of no version of the run", "name another range")
        return untrained if version is None else read_adapter(store, config.run, version)

    checked = Checked(learner, worker, Sampling.of(config.worker), store.get, adapter, rows)
    played = islice(checked.play(_logged(config, request)), steps)
    return report(played, checked)


def _logged(config: Config, request: RangeRequest) -> Iterator[LoggedTrajectory]:
    for item in read(config, topic_range_of(config, request)):
        if isinstance(item.record, Trajectory):
            yield LoggedTrajectory(item.raw.position, item.record)
