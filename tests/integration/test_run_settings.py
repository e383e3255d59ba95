"""The settings of a run in its log, on a real broker: who records them, who is refused, who only needs a name."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import brought
import byte_policy
import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.journal import Journal, journal_lines
from distrl.broker.producer import RecordProducer
from distrl.broker.topic_admin import partition_count
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config, load
from distrl.errors import BrokerError, ConfigError, WireError
from distrl.policy.registry import SHIPPED
from distrl.runs.plugin_code import plugin_code
from distrl.runs.recorded import (
    append,
    base_tree,
    change,
    defaults_with,
    join,
    learned_with,
    recorded,
    refuse_changed,
)
from distrl.runs.repair import damage, repair
from distrl.runs.settings import learning_fingerprint, run_settings
from distrl.types import Heartbeat, Settings, Update, Watermark
from distrl.wire.codec import encode
from waiting import until

pytestmark = pytest.mark.integration

VISIBLE_S = 30.0
NO_JSON = encode(Settings(1, "learner", "p", (), "1", "f", True, {"feeder.max_lag": "{"}))
SOURCES = ("file run.yaml", "--set feeder.max_lag")
POLICY = "plugin.policy"


@pytest.fixture
def config(broker: str, tmp_path: Path) -> Config:
    sets = [
        f"run=settings-{uuid.uuid4().hex[:12]}",
        f"kafka.bootstrap={broker}",
        "kafka.task_partitions=2",
        f"store.url=file://{tmp_path / 'objects'}",
    ]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    return made


def changed(config: Config, section: str, **values: object) -> Config:
    return config.model_copy(update={section: getattr(config, section).model_copy(update=values)})


def journal_one(config: Config) -> None:
    mark = Watermark(topic_name(config.run, "demonstrations"), 0, 0)
    with Journal(config) as journal:
        journal.append(Update(0, (mark,), learning_fingerprint(config), 1))
    until(lambda: journal_lines(config), "a committed line, which is visible some milliseconds later")


def test_the_first_role_records_who_when_and_from_what(config: Config) -> None:
    assert recorded(config) is None
    join(config, None, "feeder", SOURCES)
    found = recorded(config)
    assert found is not None
    (record,) = found.history
    assert found.values == run_settings(config)
    assert (record.role, record.sources) == ("feeder", SOURCES)
    assert record.process.startswith("process ")
    assert record.at > 1_700_000_000_000
    assert record.fingerprint == learning_fingerprint(config)


def test_a_worker_records_nothing(config: Config) -> None:
    join(config, None, "worker", ())
    assert recorded(config) is None


def test_a_role_whose_settings_differ_says_which_both_values_and_what_to_do(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    join(config, None, "feeder", SOURCES)
    with caplog.at_level(logging.WARNING, "distrl.runs"):
        join(changed(config, "feeder", max_lag=9), recorded(config), "feeder", SOURCES)
    (warning,) = caplog.messages
    assert warning == (
        f"feeder.max_lag is 9 here and 4 there in run {config.run}; this process goes by its own. "
        f"Hint: leave it out of its settings (file run.yaml, --set feeder.max_lag), or set it for the run: "
        f"`distrl runs set {config.run} feeder.max_lag=9`"
    )
    found = recorded(config)
    assert found is not None
    assert found.values["feeder.max_lag"] == 4, "one process does not change the run"
    caplog.clear()
    with caplog.at_level(logging.WARNING, "distrl.runs"):
        join(changed(config, "policy", history=9), found, "worker", SOURCES)
    (warning,) = caplog.messages
    assert warning.endswith("Hint: leave it out of its settings (file run.yaml, --set feeder.max_lag)")
    assert "policy.history is 9 here" in warning


def test_the_learner_decides_what_the_fold_reads_until_something_is_journalled(config: Config) -> None:
    join(config, None, "feeder", ())
    other = changed(config, "learner", seed=3)
    join(other, recorded(config), "learner", ())
    found = recorded(config)
    assert found is not None
    assert found.values["learner.seed"] == 3
    assert [each.is_change for each in found.history] == [False, True]
    journal_one(other)
    with pytest.raises(ConfigError) as refused:
        join(config, found, "learner", ())
    assert refused.value.where == "learner.seed"
    assert "learner.seed is 0 here and 3 there" in refused.value.what
    assert "--set learner.seed=3" in refused.value.hint
    join(other, found, "learner", ())


def test_settings_that_were_changed_as_the_first_update_was_journalled_are_set_right_by_those_of_the_journal(
    config: Config,
) -> None:
    join(config, None, "learner", ())
    other = changed(config, "learner", seed=3)
    change(other, "runs set", (), {"learner.seed": 3})
    with pytest.raises(ConfigError, match=r"learner\.seed is 0 here and 3 there") as refused:
        refuse_changed(config)
    assert refused.value.what.startswith(f"was changed for run {config.run} since this learner started")
    refuse_changed(other)
    journal_one(config)
    with pytest.raises(ConfigError, match=r"learner\.seed is 4 here and 0 there"):
        join(changed(config, "learner", seed=4), recorded(config), "learner", ())
    join(config, recorded(config), "learner", ())
    found = recorded(config)
    assert found is not None
    assert found.values["learner.seed"] == 0


def publish_version_0(config: Config) -> None:
    """As a learner without a warm-up does before its first update."""
    made = replace(factories.version(0), update=-1, config_fingerprint=learning_fingerprint(config))
    with Journal(config) as journal:
        journal.publish_version(made)
    until(lambda: lineage(config), "a committed version, which is visible some milliseconds later")


def test_settings_that_version_0_was_made_with_hold_though_nothing_is_journalled_yet(config: Config) -> None:
    """As without a warm-up: weights of other settings would not be those of version 0."""
    config = changed(config, "warmup", updates=0)
    join(config, None, "learner", ())
    publish_version_0(config)
    other = changed(config, "learner", seed=3)
    with pytest.raises(ConfigError, match="has learned already"):
        change(other, "runs set", (), {"learner.seed": 3})
    with pytest.raises(ConfigError, match=r"learner\.seed is 3 here and 0 there"):
        join(other, recorded(config), "learner", ())
    join(config, recorded(config), "learner", ())


def test_a_record_that_is_skipped_before_anything_is_learned_decides_no_settings(config: Config) -> None:
    join(config, None, "feeder", ())
    with Journal(config) as journal:
        made = learning_fingerprint(config)
        journal.append(Update(0, (), made, 0, version=-1, void="demonstrations/0/0 is left out: it is broken"))
    assert learned_with(config) is None
    change(changed(config, "learner", seed=3), "runs set", (), {"learner.seed": 3})
    journal_one(changed(config, "learner", seed=3))
    with pytest.raises(ConfigError, match="has learned already"):
        change(config, "runs set", (), {"learner.seed": 0})


@pytest.mark.parametrize("learn", [journal_one, publish_version_0])
def test_a_run_that_learned_before_settings_were_recorded_gets_no_others(
    config: Config, learn: Callable[[Config], None]
) -> None:
    learn(config)
    other = changed(config, "learner", seed=3)
    for role in ("feeder", "demonstrator"):
        join(other, None, role, ())
    with pytest.raises(ConfigError, match="the log has no record of them"):
        join(other, None, "learner", ())
    assert recorded(config) is None
    join(config, None, "feeder", ())
    assert recorded(config) is not None


def test_nothing_can_be_changed_before_a_role_has_recorded_all_settings(config: Config) -> None:
    """Else a record with one of them would be taken for all: of a new run, and of one that learned before settings were
    recorded."""
    for is_journalled in (False, True):
        if is_journalled:
            journal_one(config)
        with pytest.raises(ConfigError, match="no settings in its log yet") as refused:
            change(changed(config, "feeder", max_lag=2), "runs set", (), {"feeder.max_lag": 2})
        assert "give feeder.max_lag to its learner and feeder" in refused.value.hint
        assert recorded(config) is None
    join(config, None, "learner", ())
    found = recorded(config)
    assert found is not None
    assert found.values == run_settings(config)


def test_a_change_counts_from_then_on_but_not_for_what_is_learned(config: Config) -> None:
    join(config, None, "learner", ())
    change(config, "runs set", (), {"feeder.max_lag": 1})
    found = recorded(config)
    assert found is not None
    assert found.values["feeder.max_lag"] == 1
    journal_one(config)
    with pytest.raises(ConfigError, match=r"learner\.seed: decides what is learned"):
        change(changed(config, "learner", seed=8), "runs set", (), {"learner.seed": 8})


def test_another_algorithm_before_anything_is_learned_is_the_run_s_from_then_on(config: Config) -> None:
    join(config, None, "feeder", ())
    other = load(sets=["algorithm.type=grpo", "algorithm.lr=0.5"], environ={}, base={"run": config.run})
    other = config.model_copy(update={"algorithm": other.algorithm})
    join(other, recorded(config), "learner", ())
    for here in (config, other):
        assert base_of(here).algorithm == other.algorithm
    change(config, "runs set", (), {"algorithm.type": "aride"})
    assert base_of(other).algorithm == config.algorithm
    journal_one(config)
    join(config, recorded(config), "learner", ())


def base_of(config: Config) -> Config:
    """What a process reads that is given no settings but where the run is."""
    found = recorded(config)
    assert found is not None
    return load(environ={}, base=base_tree(found, config))


def distrl(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`distrl ARGUMENTS` in an empty folder, with no variable of ours."""
    return subprocess.run(
        [sys.executable, "-m", "distrl.cli.main", *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "200", "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


def test_a_command_that_reads_a_run_takes_its_settings_from_the_log(config: Config, tmp_path: Path) -> None:
    begun = changed(changed(config, "learner", seed=5), "policy", lora_rank=2)
    join(begun, None, "learner", ())
    journal_one(begun)
    given = ("--set", f"kafka.bootstrap={config.kafka.bootstrap}", "--set", f"store.url={config.store.url}")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    verified = distrl(elsewhere, "learner", "--verify", "--run", config.run, *given)
    assert "updates 1" in verified.stdout, verified.stdout + verified.stderr
    refused = distrl(elsewhere, "learner", "--verify", "--run", config.run, *given, "--set", "learner.seed=6")
    assert refused.returncode == 1
    assert "learner.seed is 6 here and 5 there" in refused.stderr


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_what_looks_at_a_runs_fleet_goes_by_the_settings_in_its_log(
    config: Config, tmp_path: Path, command: str
) -> None:
    join(changed(config, "feeder", outstanding=5), None, "feeder", ())
    beat = Heartbeat("worker-0", "worker", int(time.time() * 1000), None, None)
    with RecordProducer(config, "worker-0") as producer:
        producer.publish("heartbeats", "worker-0", beat).result(VISIBLE_S)
    given = ("--set", f"kafka.bootstrap={config.kafka.bootstrap}", "--set", f"run={config.run}")
    looked = distrl(tmp_path, command, *given)
    assert "of at most 5 (is set)" in " ".join(looked.stdout.split()), looked.stdout + looked.stderr
    if command == "doctor":
        servers = distrl(tmp_path, command, "--no-fleet", *given)
        assert config.kafka.bootstrap in servers.stdout
        assert "of at most" not in servers.stdout


def reaching(config: Config) -> tuple[str, ...]:
    return ("--set", f"kafka.bootstrap={config.kafka.bootstrap}", "--set", f"store.url={config.store.url}")


def test_settings_that_are_sound_over_those_of_the_run_are_taken(config: Config, tmp_path: Path) -> None:
    """They are not over the defaults: another algorithm has no such setting."""
    join(config.model_copy(update={"algorithm": defaults_with("grpo").algorithm}), None, "feeder", ())
    (elsewhere := tmp_path / "elsewhere").mkdir()
    done = distrl(elsewhere, "runs", "set", config.run, "algorithm.clip=0.3", *reaching(config))
    assert done.returncode == 0, done.stderr
    found = recorded(config)
    assert found is not None
    assert found.values["algorithm.clip"] == 0.3
    for path, value in (("algorithm.clip", "wide"), ("algorithm.no_such", "1")):
        refused = distrl(elsewhere, "runs", "set", config.run, f"{path}={value}", *reaching(config))
        assert (refused.returncode, path in refused.stderr) == (1, True), refused.stderr
    new = distrl(elsewhere, "feed", "--set", f"run={config.run}-new", *reaching(config), "--set", "algorithm.clip=0.3")
    assert (new.returncode, "algorithm.clip" in new.stderr) == (1, True), "a run that has none is one of the defaults"


def test_who_changes_a_setting_needs_no_file_of_the_base_model(config: Config, tmp_path: Path) -> None:
    shutil.copytree(SHIPPED, tmp_path / "base")
    begun = changed(config, "policy", base_model=tmp_path / "base")
    join(begun, None, "learner", ())
    journal_one(begun)
    before = recorded(config)
    assert before is not None
    (tmp_path / "base").rename(tmp_path / "moved")
    done = distrl(tmp_path, "runs", "set", config.run, "feeder.max_lag=2", *reaching(config))
    assert done.returncode == 0, done.stderr
    found = recorded(config)
    assert found is not None
    assert found.values == before.values | {"feeder.max_lag": 2}
    assert found.history[-1].fingerprint == learning_fingerprint(
        changed(begun, "policy", base_model=tmp_path / "moved")
    )


def test_topics_are_altered_to_what_the_run_has(config: Config, tmp_path: Path) -> None:
    join(changed(config, "kafka", task_partitions=5), None, "feeder", ())
    done = distrl(tmp_path, "topics", "ensure", "--alter", "--set", f"run={config.run}", *reaching(config))
    assert done.returncode == 0, done.stderr
    assert partition_count(admin(config.kafka), config, topic_name(config.run, "tasks"), "count") == 5


def test_a_run_with_settings_that_this_version_does_not_have_can_be_looked_at_and_removed(
    config: Config, tmp_path: Path
) -> None:
    join(config, None, "learner", ())
    append(config, "learner", (), {"learner.of_the_future": 1}, is_change=True)
    for command in (("runs", "show", config.run), ("runs", "rm", config.run, "--yes")):
        done = distrl(tmp_path, *command, *reaching(config))
        assert done.returncode == 0, done.stderr
        assert "learner.of_the_future" in done.stdout
    assert f"removed run {config.run}" in done.stdout


@pytest.mark.parametrize(("recorded_s", "taken_s"), [(1.5, 1.5), (0.0, 0.25)])
def test_what_a_run_was_begun_with_of_a_setting_that_is_each_process_s_own_now(
    config: Config, caplog: pytest.LogCaptureFixture, recorded_s: float, taken_s: float
) -> None:
    """A wait for slow apps is kept; none, which is right for simulated phones alone, is not."""
    join(config, None, "learner", ())
    append(config, "learner", (), {"devices.settle_unchanged_s": recorded_s}, is_change=True)
    assert base_of(config).devices.settle_unchanged_s == taken_s
    with caplog.at_level(logging.WARNING, "distrl.runs"):
        join(config, recorded(config), "worker", ())
    assert caplog.messages == []


@pytest.mark.parametrize("damaged", [b"no settings", None, NO_JSON], ids=["bytes", "nothing", "no JSON"])
def test_a_record_that_is_no_settings_stops_every_role_until_it_is_removed(
    config: Config, tmp_path: Path, damaged: bytes | None
) -> None:
    join(config, None, "learner", ())
    with RecordProducer(config, "somebody") as producer:
        topic = topic_name(config.run, "settings")
        producer.publish_bytes(topic, b"k", damaged).result(VISIBLE_S)
    change_after = Settings(1, "runs set", "p", (), "1", "f", True, {"feeder.max_lag": "1"})
    with RecordProducer(config, "somebody") as producer:
        producer.publish("settings", config.run, change_after).result(VISIBLE_S)
    refused = distrl(tmp_path, "worker", "--set", f"run={config.run}", *reaching(config))
    assert refused.returncode == 1
    assert refused.stderr.startswith(f"{topic}[0] offset 1: "), refused.stderr
    assert f"`distrl runs repair {config.run}`" in refused.stderr
    found = damage(config)
    with RecordProducer(config, "a repair that was killed") as producer:
        first = found.readable[0]
        producer.publish_bytes(topic, first.key, first.value, first.headers).result(VISIBLE_S)
    with pytest.raises(BrokerError, match="a record more by now"):
        repair(config, found)
    done = distrl(tmp_path, "runs", "repair", config.run, "--yes", *reaching(config))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{topic}[0] offset 1: "), done.stdout
    left = recorded(config)
    assert left is not None
    assert left.values == run_settings(config) | {"feeder.max_lag": 1}
    assert [each.role for each in left.records] == ["learner", "runs set"], "each once, as they were"
    assert left.records[1] == change_after
    again = distrl(tmp_path, "runs", "repair", config.run, *reaching(config))
    assert "can be read" in again.stdout


def test_settings_of_a_newer_version_are_not_taken_for_damage(config: Config, tmp_path: Path) -> None:
    join(config, None, "learner", ())
    with RecordProducer(config, "somebody") as producer:
        newer = b"\xc3\x01" + bytes(8) + b"what this version cannot read"
        producer.publish_bytes(topic_name(config.run, "settings"), b"k", newer).result(VISIBLE_S)
    refused = distrl(tmp_path, "runs", "repair", config.run, "--yes", *reaching(config))
    assert refused.returncode == 1
    assert "upgrade the reader" in refused.stderr
    with pytest.raises(WireError, match="upgrade the reader"):
        recorded(config)
    removed = distrl(tmp_path, "runs", "rm", config.run, "--yes", *reaching(config))  # else each list of runs names it
    assert removed.returncode == 0, removed.stderr


def test_topics_are_made_whatever_settings_the_run_has(config: Config, tmp_path: Path) -> None:
    """As for a roll-back to before a setting: the hook before it makes topics."""
    join(config, None, "learner", ())
    append(config, "learner", (), {"learner.of_the_future": 1}, is_change=True)
    given = ("--set", f"run={config.run}", "--set", "kafka.task_partitions=2", *reaching(config))
    done = distrl(tmp_path, "topics", "ensure", *given)
    assert done.returncode == 0, done.stderr
    assert "not used: learner.of_the_future" in done.stderr


def test_other_code_of_the_package_that_brings_the_policy_is_warned_of_and_the_learners_recorded(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    site = brought.install(tmp_path / "site")
    brought.use(site, monkeypatch)
    config = changed(config, "policy", base_model=byte_policy.save(tmp_path / "base"))

    def start(role: str) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "distrl.runs"):
            join(config, recorded(config), role, ())
        return caplog.messages

    assert start("feeder") == start("learner") == start("worker") == []
    journal_one(config)
    before = recorded(config)
    assert before is not None
    brought.edit(site)
    brought.use(site, monkeypatch)
    (said,) = start("worker")
    assert f"{before.values[POLICY]} in run {config.run}: the same log may give other weights" in said
    assert "Hint: install the package that its learner has" in said
    (said,) = start("learner")
    assert f"`distrl learner --verify --from-start --run {config.run}` says whether it does" in said
    assert start("worker") == start("learner") == [], "from now on the run is learned with this code"
    found = recorded(config)
    assert found is not None
    assert found.values == before.values | plugin_code(config) != before.values
    assert [json.loads(each.settings[POLICY]) for each in found.history] == [
        before.values[POLICY],
        found.values[POLICY],
    ]
    assert {each.fingerprint for each in found.history} == {learning_fingerprint(config)}, "nothing is refused"
    shown = distrl(tmp_path, "runs", "show", config.run, *reaching(config))
    assert POLICY in shown.stdout, shown.stderr


def test_of_a_run_whose_code_nobody_recorded_nothing_is_said(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that was begun before it was; its learner records what it goes on with."""
    brought.use(brought.install(tmp_path / "site"), monkeypatch)
    config = changed(config, "policy", base_model=byte_policy.save(tmp_path / "base"))
    append(config, "learner", (), run_settings(config), is_change=False)
    with caplog.at_level(logging.WARNING, "distrl.runs"):
        for role in ("worker", "learner", "worker"):
            join(config, recorded(config), role, ())
    assert caplog.messages == []
    found = recorded(config)
    assert found is not None
    assert found.values[POLICY] == plugin_code(config)[POLICY]
