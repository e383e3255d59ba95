"""Other policies go through every role as the shipped one does: a family that the product does not know, and a
vision-language model."""

from __future__ import annotations

import hashlib
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import byte_policy
import pytest
from distrl import config as settings
from distrl.broker import journal, topic_admin
from distrl.broker.journal import history, journal_lines
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.evaluate.run import evaluate_versions
from distrl.learner.recover import recover
from distrl.learner.verify import verify
from distrl.offline.ablation.arms import plan
from distrl.offline.ablation.run import ArmEvaluation, Request, ablate
from distrl.offline.adapter import export_adapter
from distrl.offline.check import mismatch
from distrl.offline.mismatch import EXACT
from distrl.offline.topic_range import RangeRequest
from distrl.store.objects import open_store
from distrl.train.roles import running
from distrl.types import Split, Update
from integration.test_end_to_end import newest, wait_for
from policy.vlm.models import qwen25
from served import phones_served

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

PHONES = 4
EPISODES = 3


def of_another_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    site = byte_policy.install(folder / "packages")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", f"{site}:{Path(byte_policy.__file__).parent}")  # for the roles' own processes
    return {"base_model": str(byte_policy.save(folder / "base"))}


def vision_language(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    base = folder / "base"
    base.mkdir()
    qwen25(base)
    return {"base_model": str(base), "dialect": "json", "system_prompt": "Act.", "action_tokens": 96}


@pytest.fixture(params=[of_another_package, vision_language])
def run_config(
    request: pytest.FixtureRequest,
    broker: str,
    s3: settings.StoreSettings,
    adb_server: settings.AdbSettings,
    free_row: Callable[[int], int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Config]:
    first = free_row(PHONES)
    config = Config.model_validate(
        {
            "run": f"second-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap": broker, "task_partitions": 4},
            "store": s3.model_dump() | {"secret_key": s3.secret_key.get_secret_value() if s3.secret_key else None},
            "adb": adb_server.model_dump(),
            "devices": {"addresses": tuple(f"127.0.0.1:{first + i}" for i in range(PHONES))},
            "phones": {"count": PHONES, "evaluation_count": 0, "base_port": first, "latency_median_ms": 2.0},
            "policy": request.param(tmp_path, monkeypatch) | {"lora_rank": 2},
            "warmup": {"demonstrations": 4, "updates": 2, "minibatches": 2, "batch_size": 8},
            "algorithm": {"minibatches": 2, "batch_size": 8, "critic_warmup_updates": 1},
            "learner": {"trajectories_per_update": 2, "checkpoint_every": 2},
            "feeder": {"outstanding": 8, "max_lag": 3},
        }
    )
    with phones_served(config.phones, tmp_path):
        yield config


def test_it_acts_learns_recovers_and_is_evaluated_and_ablated(
    run_config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config
    topic_admin.ensure(config)
    with running(config, tmp_path / "logs") as roles:
        roles.start("learner", "learner")
        roles.start("demonstrate", "demonstrate")
        roles.start("worker-0", "worker")
        roles.start("feeder", "feed")
        wait_for("an update of A-RIDE on what it did itself", lambda: newest(config) >= 4, roles)
        roles.stop("feeder", "worker-0", "demonstrate")
        roles.stop("learner")

    state = recover(config, open_store(config.store)).state
    reads: list[str] = []

    def counted(read: Config) -> list[Update]:
        reads.append(read.run)
        return journal_lines(read)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "journal_lines", counted)
        fresh, same = verify(config, from_start=True)
    assert reads == [config.run], "a learner at work may make updates void between two readings"
    assert state.u == fresh.u == len(history(config).updates)
    assert state.digests() == fresh.digests()
    published = lineage(config)
    assert same == [version.version for version in published]
    assert len({version.adapter.sha256 for version in published}) >= 4, "it learned"

    checked = mismatch(config, RangeRequest(config.run), steps=40, rows=8)
    assert checked.skipped == 0
    assert checked.by_name["learner and record"].steps == 40
    checked.refuse_above(EXACT)

    (score,) = evaluate_versions(config, "last", Split.TEST, EPISODES, threading.Event())
    assert score.score.episodes == EPISODES

    evaluation = ArmEvaluation(EPISODES, Split.TEST)
    found, _ = ablate(config, Request(plan(config, sets=["algorithm.gamma=0.5"]), out=tmp_path, evaluation=evaluation))
    baseline, arm = found.arms
    assert baseline.digests["adapter"] == state.digests()["adapter"] != arm.digests["adapter"]

    exported = export_adapter(config, None, tmp_path / "peft" / "new")
    assert exported == published[-1]
    data = (tmp_path / "peft/new/adapter_model.safetensors").read_bytes()
    assert hashlib.sha256(data).hexdigest() == exported.adapter.sha256
    with pytest.raises(ConfigError, match="holds an adapter already"):
        export_adapter(config, None, tmp_path / "peft" / "new")
    with pytest.raises(ConfigError, match="has no version 99"):
        export_adapter(config, 99, tmp_path / "peft" / "other")
