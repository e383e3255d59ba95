"""The whole loop on real servers, every role a process of its own: a kill in the middle changes nothing."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
import torch
import waiting
from collecting import Collector, collecting
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.config import Config
from distrl.evaluate.gather import gather
from distrl.evaluate.report import write_report
from distrl.learner.verify import replay
from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.stack.processes import find
from distrl.store.objects import open_store
from distrl.telemetry.alerts import ALERTS, RECORDED
from distrl.telemetry.dashboard import ROWS
from distrl.telemetry.feed import status_of
from distrl.telemetry.metrics import METRICS, PREFIX, prometheus_name
from distrl.train.roles import Roles, running
from distrl.types import Outcome, Version
from scraping import fetched, named, samples
from served import phones_served
from simphone import words

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DEADLINE_S = 600.0
ROLES = 5
"""That are started: learner, demonstrator, worker, evaluator and feeder."""
PHONES = 4
WARMUP = 2
"""Updates of behaviour cloning; the last of them publishes version 0, and each later one another."""


@pytest.fixture
def base_model(tmp_path: Path) -> Path:
    """Random weights of the real shape: what is learned does not matter here, only that it is learned alike."""
    torch.manual_seed(0)
    codec = WordTokenizer(words.ALL)
    directory = tmp_path / "base"
    save_base(directory, AutoUIModel(Shape(len(codec.tokens), 128, 256)), codec, {})
    return directory


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as made:
        yield made


@pytest.fixture
def run_config(
    broker: str,
    s3: settings.StoreSettings,
    adb_server: settings.AdbSettings,
    free_row: Callable[[int], int],
    base_model: Path,
    collector: Collector,
    tmp_path: Path,
) -> Iterator[Config]:
    """A small run on the session's servers, with phones of its own."""

    first = free_row(PHONES)
    tree = {
        "run": f"e2e-{uuid.uuid4().hex[:8]}",
        "kafka": {"bootstrap": broker, "task_partitions": 4},
        "store": s3.model_dump() | {"secret_key": s3.secret_key.get_secret_value() if s3.secret_key else None},
        "adb": adb_server.model_dump(),
        "phones": {"count": PHONES, "evaluation_count": 0, "base_port": first, "latency_median_ms": 5.0},
        "policy": {"base_model": str(base_model)},
        "warmup": {"demonstrations": 8, "updates": WARMUP, "minibatches": 2, "batch_size": 16},
        "algorithm": {"minibatches": 2, "batch_size": 16, "critic_warmup_updates": 1},
        "learner": {"trajectories_per_update": 4, "checkpoint_every": 3, "features_kept": str(tmp_path / "features")},
        "feeder": {"outstanding": 12, "max_lag": 3},
        "evaluate": {"validation_episodes": 1, "every_s": 1.0},
        "monitoring": {"port": free_row(ROLES)},  # each role has the one after the last's
        "tracing": {"endpoint": collector.url},
    }
    addresses = tuple(f"127.0.0.1:{first + i}" for i in range(PHONES))
    config = Config.model_validate({**tree, "devices": {"addresses": addresses}})
    with phones_served(config.phones, tmp_path):
        yield config


def wait_for(what: str, condition: Callable[[], bool], roles: Roles) -> None:
    def come() -> bool:
        roles.check()
        return condition()

    waiting.until(come, what, DEADLINE_S, every_s=0.2)


def phones(config: Config, begin: int, end: int) -> list[str]:
    return ["devices.addresses=[" + ",".join(f"'{at}'" for at in config.devices.addresses[begin:end]) + "]"]


WATCHED = {"learner": "learner", "worker-0": "worker", "evaluator": "evaluator", "feeder": "feeder"}
"""Process of `Roles` -> role."""


def check_what_is_watched(config: Config, roles: Roles) -> None:
    """Every role is alive and ready, its figures are those that it declares, and rules and panels name no others."""
    ports, shown = {name: roles.monitoring_port(name) or 0 for name in WATCHED}, set[str]()
    for name in WATCHED:
        wait_for(f"{name} to be ready", lambda port=ports[name]: fetched(port, "/readyz")[0] == 200, roles)
        assert fetched(ports[name], "/livez")[0] == 200
    for name, role in WATCHED.items():
        wait_for(f"the figures of {name}", lambda of=(ports[name], role): not absent(*of), roles)
        found = samples(ports[name])
        own = [(metric, dict(labels)) for metric, labels, _ in found if metric.startswith(PREFIX)]
        assert {(labels["run"], labels["role"]) for _, labels in own} == {(config.run, role)}
        assert {metric for metric, _ in own} <= declared(role) | {"distrl_build_info"}
        shown |= {metric for metric, _ in own}
    rules = [rule.expression for rule in (*RECORDED, *ALERTS)]
    panels = [query.expression for row in ROWS for panel in row.panels for query in panel.queries]
    wanted = set[str]().union(*map(named, rules + panels)) - {rule.name for rule in RECORDED}
    assert sorted(wanted - shown) == []
    assert max(value for metric, _, value in samples(ports["worker-0"]) if metric == "distrl_episodes_total") > 0


OF_SOME_UPDATES = {
    prometheus_name(name)
    for name in (
        "clone_loss",
        "token_entropy",
        "score_age",
        "priority_age",
        "instruction_value_loss",
        "imitated",
        "groups",
        "groups_alike",
        "td_error",
        "demonstrated",
    )
}
"""Of the warm-up, or of algorithms that this run has not."""


def declared(role: str) -> set[str]:
    return {prometheus_name(name) for name, metric in METRICS.items() if role in metric.roles}


def absent(port: int, role: str) -> set[str]:
    """What a role has declared and not shown, though nothing but its settings or its updates are a reason."""
    shown = {metric for metric, _, _ in samples(port)}
    judged = {prometheus_name(name) for name in METRICS if name.startswith(("judge_", "actions_"))}
    return declared(role) - shown - judged - OF_SOME_UPDATES


WAY = (
    ("feed task", "distrl-feeder"),
    ("play episode", "distrl-worker"),
    ("publish trajectory", "distrl-worker"),
    ("update", "distrl-learner"),
    ("publish version", "distrl-learner"),
)
"""The spans from a task to a version, each the parent of the next, and whose they are."""


def check_what_is_traced(collector: Collector, versions: Mapping[int, Version]) -> None:
    """Traces go from a task through all roles to the version that followed from it; some have lost spans."""
    spans, whole = {span.span: span for span in collector.spans}, 0
    for span in spans.values():
        if span.name != "publish version":
            continue
        way = [span]
        while way[0].parent in spans:
            way.insert(0, spans[way[0].parent])
        if way[0].parent:
            continue  # of a batch that was lost: with a killed learner, or to a machine that is too busy
        assert [(each.name, each.service) for each in way] == list(WAY)
        assert len({each.trace for each in way}) == 1
        fed, played, _, learned, published = (each.about for each in way)
        assert fed["distrl.task"] == played["distrl.task"]
        assert versions[int(published["distrl.version"])].update == learned["distrl.update"]
        whole += 1
    assert whole >= 8, "two updates of four trajectories each"


def newest(config: Config) -> int:
    version = status_of(config).newest
    return -1 if version is None else version.version


def test_a_run_whose_learner_is_killed_ends_like_one_that_was_not(
    run_config: Config, collector: Collector, tmp_path: Path
) -> None:
    topic_admin.ensure(run_config)
    logs = tmp_path / "logs"
    with running(run_config, logs) as roles:
        roles.start("learner", "learner")
        roles.start("demonstrate", "demonstrate")
        roles.start("worker-0", "worker", sets=phones(run_config, 0, PHONES - 1))
        roles.start("evaluator", "evaluate", sets=phones(run_config, PHONES - 1, PHONES))
        roles.start("feeder", "feed")
        wait_for("version 2", lambda: newest(run_config) >= 2, roles)
        check_what_is_watched(run_config, roles)

        killed = find(logs, "learner")
        assert killed is not None
        os.kill(killed.pid, signal.SIGKILL)
        roles.abandon("learner")
        before = newest(run_config)
        roles.start("learner", "learner")
        wait_for("three versions after the kill", lambda: newest(run_config) >= before + 3, roles)
        roles.stop("feeder", "worker-0", "evaluator", "demonstrate")
        roles.stop("learner")

    lived, scratch = replay(run_config), replay(run_config, from_start=True)
    assert lived.u == scratch.u >= WARMUP + before + 3
    assert lived.digests() == scratch.digests()

    class Times:
        setup_seconds = 0.0
        train_seconds = 1.0

    data = gather(run_config, Times())
    published = {version.version: version.adapter.sha256 for version in data.versions}
    assert sorted(published) == list(range(len(published))), "one version for each number, none twice"
    check_what_is_traced(collector, {version.version: version for version in data.versions})
    store = open_store(run_config.store)
    acted = [step for logged in data.trajectories for step in logged.trajectory.steps]
    assert acted
    for step in acted:
        assert step.version_sha256 == published[step.version], "a step names the weights that chose it"
    for ref in {step.screenshot for step in acted}:
        assert len(store.get(ref)) == ref.size
    assert {logged.trajectory.outcome for logged in data.trajectories} <= {Outcome.SUCCESS, Outcome.FAILURE}
    report = write_report(data, tmp_path / "report")
    assert report.read_text().startswith("<!")
