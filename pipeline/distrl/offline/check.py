"""Plays the steps of a run's log through the policies of its learner and its workers, and its model server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice

from distrl.accelerator import device_of
from distrl.broker.journal import history, in_force
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.offline.asked_server import AskedServer
from distrl.offline.mismatch import Checked, Report, report
from distrl.offline.replay import read, topic_range_of
from distrl.offline.topic_range import RangeRequest
from distrl.policy.registry import policy_of
from distrl.policy.sampling import Sampling
from distrl.rollout.serving import served
from distrl.store.adapters import read_adapter
from distrl.store.objects import MissingObjectError, open_store
from distrl.types import LoggedTrajectory, Trajectory, Version


def mismatch(config: Config, request: RangeRequest, steps: int, rows: int) -> Report:
    """The report on the first `steps` steps of the range that can be played, in batches of `rows`.

    A step is played under its version's weights; one of no version, as in a demonstration, under the newest, or under
    an untrained adapter where the run has none. Where policy.server names one, it is asked for each decision again, but
    by no untrained adapter. Raises ConfigError, BrokerError, StoreError, PolicyError, ChatError.
    """
    devices = device_of(config.learner.device, "learner.device"), device_of(config.worker.device, "worker.device")
    learner = policy_of(config.policy, device=devices[0])
    worker = learner if devices[0] == devices[1] else policy_of(config.policy, device=devices[1])
    store, untrained = open_store(config.store), learner.adapter()
    published = lineage(config)
    versions = {version.adapter.sha256: version for version in published}
    newest = max(in_force(published, history(config)), key=lambda version: version.version, default=None)

    def version_of(sha256: str) -> Version | None:
        return versions.get(sha256) if sha256 else newest

    @lru_cache(maxsize=2)
    def adapter(sha256: str) -> bytes:
        version = version_of(sha256)
        if version is None and sha256:
            raise MissingObjectError(sha256, "is the adapter of no version of the run", "name another range")
        return untrained if version is None else read_adapter(store, config.run, version)

    sampling = Sampling.of(config.worker)
    with _server(config, sampling, version_of) as server:
        threads = config.learner.torch_threads, config.worker.torch_threads
        checked = Checked(learner, worker, sampling, store.get, adapter, rows, server, threads)
        return report(islice(checked.play(_logged(config, request)), steps), checked)


@contextmanager
def _server(
    config: Config, sampling: Sampling, version: Callable[[str], Version | None]
) -> Iterator[AskedServer | None]:
    if config.policy.server.endpoint is None:
        yield None
        return
    with served(config, sampling) as made:
        yield AskedServer(made.decider, version)


def _logged(config: Config, request: RangeRequest) -> Iterator[LoggedTrajectory]:
    for item in read(config, topic_range_of(config, request)):
        if isinstance(item.record, Trajectory):
            yield LoggedTrajectory(item.raw.position, item.record)
