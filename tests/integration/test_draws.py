"""The topic of draws on a real broker: what it says is what a fold of the log computes, and nobody needs it."""

from __future__ import annotations

import logging
import uuid
from collections import defaultdict
from pathlib import Path

import pytest
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.journal import journalled
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.learner.draws import TOPIC, draws_of
from distrl.learner.state import LearnerState
from distrl.learner.verify import replay
from distrl.store.checkpoints import delete_checkpoints
from distrl.store.objects import open_store
from distrl.types import Draws
from learned import learn, publish
from learner.world import learning, save_tiny_base

pytestmark = pytest.mark.integration

UPDATES = 6


@pytest.fixture
def config(broker: str, tmp_path: Path) -> Config:
    """A run with the records of UPDATES updates, one of them of the warm-up."""
    save_tiny_base(tmp_path / "base")
    made = Config.model_validate(
        {
            "run": f"draws-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap": broker, "task_partitions": 2},
            "store": {"url": f"file://{tmp_path}/objects"},
            **learning(tmp_path / "base", warmup_updates=1),
        }
    )
    topic_admin.ensure(made)
    publish(made, range(6), "demonstrations")
    publish(made, range(1000, 1000 + 4 * (UPDATES - 1)), "trajectories")
    return made


def recorded(config: Config) -> dict[int, list[Draws]]:
    """Update -> its records, in the order of the log."""
    found = defaultdict(list)
    with LogReader(config, TOPIC) as reader:
        for raw in (raw for batch in reader.to_end() for raw in batch):
            made = decoded(raw, Draws)
            assert raw.key == str(made.u).encode()
            found[made.u].append(made)
    return dict(found)


def folded(config: Config) -> dict[int, Draws]:
    """Update -> what a fold of the log from its start draws."""
    updates, found = {update.u: update for update in journalled(config)}, {}

    def look(state: LearnerState) -> None:
        if state.u:
            u, learning = state.u - 1, state.learning
            found[u] = draws_of(updates[u], learning.memory.phase(u).name, learning.drawn)

    replay(config, from_start=True, on_state=look)
    return found


def test_they_are_those_of_a_fresh_fold_also_after_a_kill_that_has_updates_redone(config: Config) -> None:
    learn(config, UPDATES - 2)
    delete_checkpoints(open_store(config.store), config.run, range(UPDATES))  # so that all updates are redone
    learn(config, UPDATES)
    found, again = recorded(config), folded(config)
    assert {u: records[-1] for u, records in found.items()} == again
    assert sorted(again) == list(range(UPDATES))
    assert {u: len(records) for u, records in found.items()} == {u: 2 if u < UPDATES - 2 else 1 for u in again}
    assert all(records == [records[0]] * len(records) for records in found.values())
    assert again[0].phase == "cloning"
    newest = again[UPDATES - 1]
    assert newest.phase == "a-ride"
    assert all(step.value is not None and step.priority for each in newest.trajectories for step in each.steps)


def test_a_learner_goes_on_without_the_topic_and_says_so_once(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    """As a run does that earlier software has begun."""
    topic, client = topic_name(config.run, TOPIC), admin(config.kafka)
    client.delete_topics([topic], operation_timeout=30)[topic].result(60)
    with caplog.at_level(logging.WARNING, "distrl.learner.beside"):
        learn(config, UPDATES)
    assert [update.u for update in journalled(config)] == list(range(UPDATES))
    (said,) = [each.getMessage() for each in caplog.records if each.name == "distrl.learner.beside"]
    assert "not recorded until this learner is started again" in said
    assert topic in said


def test_a_setting_turns_it_off_and_changes_no_weight(config: Config) -> None:
    silent = config.model_copy(update={"learner": config.learner.model_copy(update={"record_draws": False})})
    learn(silent, UPDATES - 1)
    assert recorded(config) == {}
    learn(config, UPDATES)
    assert list(recorded(config)) == [UPDATES - 1]
    assert replay(config, from_start=True).digests() == replay(config).digests()
