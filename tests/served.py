"""What an integration test puts beside the session's servers: simulated phones of its own, and a first version."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from distrl.broker import topic_admin
from distrl.broker.journal import Journal
from distrl.config import Config, PhoneSettings
from distrl.policy.registry import policy_of
from distrl.runs.settings import learning_fingerprint
from distrl.stack.part import Site
from distrl.stack.phones import start_phones
from distrl.stack.processes import stop_all
from distrl.store.objects import open_store
from distrl.types import Version

STOP_S = 10.0


@contextmanager
def phones_served(phones: PhoneSettings, directory: Path) -> Iterator[None]:
    """A process that serves `phones`, with its files in a new folder of `directory`, for as long as the block."""
    site = Site(directory / "site", directory / "cache", threading.Event(), lambda text: None)
    site.directory.mkdir()
    part = start_phones(site, phones)
    try:
        yield
    finally:
        assert part.child is not None
        stop_all([part.child], STOP_S)


def publish_untrained(config: Config) -> None:
    """The run's topics, and the base model with an adapter that changes nothing as version 0."""
    topic_admin.ensure(config)
    agent = policy_of(config.policy)
    ref = open_store(config.store).put("adapters", agent.adapter(), "safetensors")
    with Journal(config) as journal:
        journal.publish_version(Version(0, None, 0, agent.base_sha256, ref, learning_fingerprint(config), 0))
