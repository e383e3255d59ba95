"""What lineage says of records that the journal skips, on a real broker."""

from __future__ import annotations

import hashlib
import json
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
from distrl.runs.settings import learning_fingerprint
from distrl.train.roles import write_settings
from distrl.types import PutAside, Skipped, Update, Watermark
from typer.testing import CliRunner

pytestmark = pytest.mark.integration

ACKNOWLEDGED_S = 60.0


def test_a_skipped_record_is_named_as_such_and_one_at_its_place_of_before_is_not(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Offsets: 0 left out by `distrl skip`, 1 not decodable by the learner of then, 2 learned, 3 its duplicate, at a
    place whose earlier record, lost since, was skipped."""
    monkeypatch.chdir(tmp_path)
    config = settings.load(
        sets=[f"run=skips-{uuid.uuid4().hex[:8]}", f"kafka.bootstrap={broker}", f"store.url=file://{tmp_path}/store"],
        environ={},
    )
    write_settings(config, tmp_path / "run.yaml")
    topic_admin.ensure(config)
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
