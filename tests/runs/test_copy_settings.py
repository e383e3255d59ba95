"""Which settings and which run the other side of a copy may have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from distrl.config import Config, load
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.runs import copy
from distrl.runs.settings import learning_fingerprint, run_settings
from distrl.store.directory import DirectoryStore

RUN = load(sets=["algorithm.gamma=0.9"], environ={})


@pytest.mark.parametrize(("to", "refused"), [(RUN, False), (load(environ={}), True)])
def test_a_run_that_has_recorded_no_settings_is_not_copied_to_other_learning_settings(
    to: Config, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its updates and versions say of them a fingerprint alone: a run of earlier software."""
    monkeypatch.setattr(copy, "recorded", lambda config: None)
    monkeypatch.setattr(copy, "learned_with", lambda config: learning_fingerprint(RUN))
    if not refused:
        copy._refuse_other_learning(RUN, to, run_settings(to))
        return
    with pytest.raises(ConfigError, match="would not learn as run demo does, which has recorded no settings"):
        copy._refuse_other_learning(RUN, to, run_settings(to))


@pytest.mark.parametrize(
    ("ids", "url", "under", "hint"),
    [
        (
            ("here", "there"),
            "file:///their own",
            "",
            "remove it with `distrl runs rm demo --config other.yaml --set kafka.bootstrap=there:1 "
            "--set 'store.url=file:///their own'` and run this command again",
        ),
        (
            ("here", "there"),
            "file:///shared",
            "",
            "`distrl runs rm` would delete the checkpoints",
        ),
        (("here", "there"), "file:///shared/./", "here", "`distrl runs rm` would delete the checkpoints"),
        (("here", "here"), "file:///their own", "", "set kafka.bootstrap there to another broker"),
        (("", "there"), "file:///their own", "", "remove it with `distrl runs rm demo "),
    ],
)
def test_a_broker_that_has_the_run_is_refused_with_the_command_that_removes_that_one_alone(
    ids: tuple[str, str], url: str, under: str, hint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """ids: of the two topics of trajectories; empty where a broker gives none. under: where the other store lies, if it
    is the store here under another address."""
    here, there = at_two_brokers(ids, url, monkeypatch)
    store, other = DirectoryStore(tmp_path / "here"), DirectoryStore(tmp_path / (under or "there"))
    with pytest.raises(BrokerError, match=re.escape("is at the broker there:1 already")) as refused:
        copy.copy(here, store, there, other, lambda topic, count: None, to_file=Path("other.yaml"))
    assert hint in refused.value.hint
    assert [*store.list(""), *other.list("")] == []


class Unreachable(DirectoryStore):
    """A store of which nothing can be read or written."""

    def put_named(self, key: str, data: bytes) -> None:
        raise StoreError("store.url", "no answer", "start it")

    def get_named(self, key: str) -> bytes | None:
        raise StoreError("store.url", "no answer", "start it")


@pytest.mark.parametrize("away", ["here", "there"])
def test_a_broker_that_has_the_run_is_refused_without_a_command_where_a_store_does_not_answer(
    away: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The two may be one store, and the command would delete the checkpoints of the original."""
    here, there = at_two_brokers(("here", "there"), "file:///their own", monkeypatch)
    store, other = ((Unreachable if name == away else DirectoryStore)(tmp_path / name) for name in ("here", "there"))
    with pytest.raises(BrokerError, match=re.escape("is at the broker there:1 already")) as refused:
        copy.copy(here, store, there, other, lambda topic, count: None, to_file=Path("other.yaml"))
    assert "whether both use one store is not known (store.url: no answer)" in refused.value.what
    assert "runs rm" not in refused.value.hint
    assert "run this command again" in refused.value.hint


def at_two_brokers(ids: tuple[str, str], url: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Config, Config]:
    """The settings of both sides of a copy, whose other side has the run. Arguments as above."""
    here, there = (
        load(sets=[f"kafka.bootstrap={name}:1", f"store.url={store}"], environ={})
        for name, store in (("here", "file:///shared"), ("there", url))
    )
    by_broker = dict(zip(("here:1", "there:1"), ids, strict=True))
    monkeypatch.setattr(copy, "run_names", lambda config: ["demo"])
    monkeypatch.setattr(copy, "admin", lambda kafka: None)
    monkeypatch.setattr(copy, "topic_id", lambda client, config, topic: by_broker[config.kafka.bootstrap])
    return here, there
