"""What is said of records and versions that the journal leaves out, on a real broker."""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from pathlib import Path

import factories
import pytest
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.cli.main import app
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.evaluate.run import evaluate_versions
from distrl.learner.skip import skip
from distrl.offline.adapter import export_adapter
from distrl.runs.settings import learning_fingerprint
from distrl.train.roles import write_settings
from distrl.types import Evaluation, PutAside, Skipped, Split, Update, Watermark
from typer.testing import CliRunner

pytestmark = pytest.mark.integration

ACKNOWLEDGED_S = 60.0


def new_run(broker: str, folder: Path) -> Config:
    """A run with topics and nothing in them; its settings are in `folder`/run.yaml."""
    config = settings.load(
        sets=[f"run=skips-{uuid.uuid4().hex[:8]}", f"kafka.bootstrap={broker}", f"store.url=file://{folder}/store"],
        environ={},
    )
    write_settings(config, folder / "run.yaml")
    topic_admin.ensure(config)
    return config


def test_a_skipped_record_is_named_as_such_and_one_at_its_place_of_before_is_not(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets: 0 left out by `distrl skip`, 1 not decodable by the learner of then, 2 learned, 3 its duplicate, at a
    place whose earlier record, lost since, was skipped."""
    monkeypatch.chdir(tmp_path)
    config = new_run(broker, tmp_path)
    made = factories.trajectory(factories.task("a"), [factories.step()])
    with RecordProducer(config, "test") as producer:
        for _ in range(4):
            producer.publish("trajectories", "a", made).result(ACKNOWLEDGED_S)
    with LogReader(config, "trajectories") as reader:
        values = [raw.value or b"" for batch in reader.to_end() for raw in batch]
    topic = topic_name(config.run, "trajectories")
    update = Update(
        0,
        (Watermark(topic, 0, 4),),
        learning_fingerprint(config),
        0,
        put_aside=(PutAside(topic, 0, (1,)),),
        skipped=(
            Skipped(topic, 0, 0, hashlib.sha256(values[0]).hexdigest(), "lost"),
            Skipped(topic, 0, 3, hashlib.sha256(b"another").hexdigest(), "lost"),
        ),
    )
    with Journal(config) as journal:
        journal.append(update)
    printed = CliRunner().invoke(app, ["lineage", "a", "--config", "run.yaml", "--json"], catch_exceptions=False)
    records = json.loads(printed.stdout)["records"]
    assert [each["skipped"] for each in records] == [True, True, False, False]
    assert [each["duplicate"] for each in records] == [False, False, False, True]
    shown = CliRunner().invoke(app, ["lineage", "a", "--config", "run.yaml"], catch_exceptions=False).stdout
    assert (shown.count("the journal skips it"), shown.count("an earlier record of its id counts")) == (2, 1)


def test_a_version_whose_updates_are_void_is_no_version_of_the_run(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = new_run(broker, tmp_path)
    made = learning_fingerprint(config)
    with Journal(config) as journal:
        for u in range(3):
            journal.append(Update(u, (), made, 0))
            journal.publish_version(factories.version(u, update=u))
        journal.append(Update(1, (), made, 0, version=2, void="trajectories/0/0 is left out: lost"))
        journal.append(Update(1, (), made, 0))
        journal.publish_version(factories.version(3, update=1))
    for number in (1, 2, 4):
        with pytest.raises(ConfigError, match=f"(?s)has no version {number}, or its updates are void.*it has 0, 3;"):
            export_adapter(config, number, tmp_path / "out")
        with pytest.raises(ConfigError, match=f"(?s)no version .{number}., or its updates are void.*one of 0, 3$"):
            evaluate_versions(config, str(number), Split.TEST, 1, threading.Event())
        refused = CliRunner().invoke(app, ["lineage", str(number), "--config", "run.yaml"])
        assert "the run has 0, 3" in str(refused.exception)
    with RecordProducer(config, "test") as producer:
        for number in range(4):
            evaluation = Evaluation(number, "c" * 64, f"v{number}-e", factories.trajectory("e"))
            producer.publish("evaluations", str(number), evaluation).result(ACKNOWLEDGED_S)
    printed = CliRunner().invoke(app, ["scores", "--config", "run.yaml", "--json"], catch_exceptions=False)
    assert [each["void"] for each in json.loads(printed.stdout)["scores"]] == [False, True, True, False]
    shown = CliRunner().invoke(app, ["scores", "--config", "run.yaml"], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert [name in shown.stdout for name in ("version 1, void", "version 2, void", "0, void", "3, void")] == [
        *(True, True, False, False)
    ]


def test_a_record_beyond_the_end_is_said_not_to_be_there(broker: str, tmp_path: Path) -> None:
    config = new_run(broker, tmp_path)
    with pytest.raises(ConfigError, match=r"no such record in .*trajectories, which keeps none"):
        skip(config, "trajectories/0/0", "lost")
    made = factories.trajectory(factories.task("a"), [factories.step()])
    with RecordProducer(config, "test") as producer:
        for _ in range(2):
            producer.publish("trajectories", "a", made).result(ACKNOWLEDGED_S)
    for place in ("trajectories/0/2", "trajectories/0/9", "trajectories/1/0"):
        with pytest.raises(
            ConfigError, match=f"{place}: there is no such record in .*, which keeps trajectories/0/0 to 1"
        ):
            skip(config, place, "lost")
