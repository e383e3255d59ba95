"""Ablations of a run on real servers: nothing ablated is the run, twice is the same, and the run is left alone."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from confluent_kafka import TopicPartition
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.topic_admin import offsets
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.errors import ConfigError, DistrlError
from distrl.learner.verify import replay
from distrl.offline.ablation import run as ablating
from distrl.offline.ablation.arms import plan
from distrl.offline.ablation.run import LOCK, ArmEvaluation, Request, ablate
from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.policy.registry import policy_of
from distrl.store.objects import open_store
from distrl.train.roles import write_settings
from distrl.types import Split
from learned import learn, publish
from learner.world import learning
from served import phones_served
from simphone import words

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

UPDATES = 9
LIMIT_S = 600.0


@pytest.fixture(scope="module")
def base_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of the real shape: it reads the phones' screens, and what it writes does not matter."""
    torch.manual_seed(0)
    codec = WordTokenizer(words.ALL)
    directory = tmp_path_factory.mktemp("base")
    save_base(
        directory, AutoUIModel(Shape(len(codec.tokens), 128, 256, tower=(8, 8, 16, 16), d_model=32, d_ff=64)), codec, {}
    )
    return directory


@pytest.fixture(scope="module")
def run(broker: str, s3: settings.StoreSettings, base_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """A run of nine updates: three of cloning, one of the critics alone, five of A-RIDE, checkpoints at 3, 6 and 9.

    No stack runs in its folder: arms would be played on the phones of a demo that runs in this checkout.
    """
    config = Config.model_validate(
        {
            "run": f"ablate-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap": broker, "task_partitions": 2},
            "store": s3.model_dump() | {"secret_key": s3.secret_key.get_secret_value() if s3.secret_key else None},
            "stack": {"directory": str(tmp_path_factory.mktemp("no-stack"))},
            **learning(base_model),
        }
    )
    topic_admin.ensure(config)
    publish(config, range(6), "demonstrations")
    publish(config, range(1000, 1000 + 4 * (UPDATES - 3)), "trajectories")
    learn(config, UPDATES)
    return config


def distrl(
    config: Config, folder: Path, *arguments: str, program: Sequence[str] = ("-m", "distrl.cli.main")
) -> subprocess.CompletedProcess[str]:
    write_settings(config, folder / "run.yaml")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    return subprocess.run(
        [sys.executable, *program, "ablate", "--config", "run.yaml", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def report_of(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("out/ablations/*/report.json")
    report: dict[str, Any] = json.loads(path.read_text())
    return report


def written(folder: Path) -> dict[Path, int]:
    """What is kept of arms, with the time that each file was written at."""
    return {file: file.stat().st_mtime_ns for file in (*folder.glob("arms/*"), *folder.glob("adapters/*"))}


def ends(config: Config) -> dict[str, Any]:
    """First and last offset of every topic of the run."""
    client = admin(config.kafka)
    found = {}
    for name in TOPICS:
        topic = topic_name(config.run, name)
        count = len(client.list_topics(topic, timeout=10).topics[topic].partitions)
        found[topic] = offsets(client, config, topic, range(count))
    return found


def groups(config: Config) -> set[str]:
    client = admin(config.kafka)  # kept: without it the answer may never come
    listed = client.list_consumer_groups().result(LIMIT_S)
    return {group.group_id for group in listed.valid}


def objects(config: Config) -> list[str]:
    return list(open_store(config.store).list(""))


def test_nothing_ablated_is_the_run_and_twice_is_the_same_and_the_run_is_left_alone(
    run: Config, tmp_path: Path
) -> None:
    before = ends(run), groups(run), objects(run)
    reports = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        done = distrl(
            run,
            tmp_path / name,
            "--run",
            run.run,
            "--set",
            "retrace=false",
            "--set",
            "algorithm.replay.w1=0",
            "--arm",
            "trajectories_per_update=2,algorithm.lr=0.01",
            "--hold-out",
            "2",
        )
        assert done.returncode == 0, done.stderr
        reports.append(report_of(tmp_path / name))
    assert (ends(run), groups(run), objects(run)) == before

    for report in reports:
        assert report.pop("measured")["seconds"].keys() == {"reading", *(arm["name"] for arm in report["arms"])}
    assert reports[0] == reports[1]
    (folder,) = (tmp_path / "one").glob("out/ablations/*")
    (again,) = (tmp_path / "two").glob("out/ablations/*")
    assert folder.name == again.name
    for file in ("table.md", "curves.png", *(arm["adapter"]["file"] for arm in reports[0]["arms"])):
        assert (folder / file).read_bytes() == (again / file).read_bytes(), file
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")

    arms = {arm["name"]: arm for arm in reports[0]["arms"]}
    assert list(arms) == [
        "baseline",
        "algorithm.retrace=false",
        "algorithm.replay.w1=0",
        "learner.trajectories_per_update=2,algorithm.lr=0.01",
    ]
    assert len({arm["digests"]["adapter"] for arm in arms.values()}) == len(arms)
    assert reports[0]["range"] | {"begins": 0, "ends": 0} == {
        "from": 0,
        "to": UPDATES - 2,
        "hold_out": 2,
        "begins": 0,
        "ends": 0,
    }
    for arm in arms.values():
        assert set(arm["estimates"]) == {"range", "held_out"}
        assert arm["estimates"]["held_out"]["doubly_robust"]["episodes"] == 8
        assert {"policy_loss", "value_loss", "ratio", "sample_share"} <= arm["curves"].keys()
        agent = policy_of(run.policy)
        agent.load((folder / arm["adapter"]["file"]).read_bytes())


KILLED_AFTER_TWO = """
import os, signal, sys
from distrl.offline.ablation.persisted import PersistedArms

keep, done = PersistedArms.save_fold, []

def keep_then_die(self, result):
    keep(self, result)
    done.append(result)
    if len(done) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

PersistedArms.save_fold = keep_then_die
from distrl.cli.main import main
main()
"""


def test_a_sweep_that_is_killed_goes_on_with_the_arms_that_are_not_done(run: Config, tmp_path: Path) -> None:
    arms = ("--run", run.run, "--grid", "algorithm.replay.w1=0,1,2", "--hold-out", "2")
    (tmp_path / "killed").mkdir()
    killed = distrl(run, tmp_path / "killed", *arms, program=("-c", KILLED_AFTER_TWO))
    assert killed.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "killed").glob("out/ablations/*")
    assert json.loads((folder / "report.json").read_text())["complete"] is False
    done = written(folder)
    assert len(done) == 4

    again = distrl(run, tmp_path / "killed", *arms)
    assert again.returncode == 0, again.stderr
    assert "arms reused from an earlier run of this command: 2\n" in again.stdout
    assert written(folder).items() >= done.items(), "what was done is not done again"

    peace, beside = ablate(
        run,
        Request(
            plan(run, grids=["algorithm.replay.w1=0,1,2"]),
            hold_out=2,
            out=tmp_path / "peace" / "out" / "ablations",
            unplayed="devices.addresses: no phone is configured",
        ),
    )
    assert (peace.reused, beside.name) == (0, folder.name)
    reports = [report_of(tmp_path / name) for name in ("killed", "peace")]
    for report in reports:
        assert report.pop("measured")
    assert reports[0] == reports[1]
    assert reports[0]["complete"]
    assert reports[0]["baseline_is_the_run"]["holds"]
    files, others = (
        sorted(str(file.relative_to(each)) for file in each.rglob("*") if file.is_file() and file.name != LOCK)
        for each in (beside, folder)
    )
    assert files == others
    for file in files:
        if file != "report.json" and not file.startswith("arms/"):
            assert (folder / file).read_bytes() == (beside / file).read_bytes(), file


def test_another_plan_in_the_same_folder_folds_only_the_arms_that_are_new(run: Config, tmp_path: Path) -> None:
    def sweep(*sets: str) -> tuple[int, dict[Path, int]]:
        done, folder = ablate(run, Request(plan(run, sets=sets), to=5, name="mine", out=tmp_path))
        for adapter in (arm["adapter"] for arm in json.loads((folder / "report.json").read_text())["arms"]):
            assert hashlib.sha256((folder / adapter["file"]).read_bytes()).hexdigest() == adapter["sha256"]
        return done.reused, written(folder)

    _, before = sweep("algorithm.replay.w1=0", "algorithm.gamma=0.5")
    reused, after = sweep("algorithm.gamma=0.5", "algorithm.replay.capacity=3")
    assert (reused, len(after), len(after.items() & before.items())) == (2, 6, 4)


def test_the_baseline_over_the_whole_journal_is_what_the_run_ended_with(run: Config, tmp_path: Path) -> None:
    ablation, _ = ablate(run, Request(plan(run, sets=["algorithm.replay.w1=0"]), out=tmp_path))
    baseline, other = ablation.arms
    assert ablation.identity.versions == dict.fromkeys(range(2, UPDATES), True)
    assert ablation.identity.checkpoint is True
    for state in (replay(run), replay(run, from_start=True)):
        assert baseline.digests == state.digests()
        assert baseline.adapter == state.policy.adapter()
    assert other.digests["critic"] != baseline.digests["critic"]


@pytest.mark.parametrize("first", [3, 5, 6])
def test_a_range_from_a_later_update_ends_as_the_run_did(run: Config, tmp_path: Path, first: int) -> None:
    ablation, _ = ablate(run, Request(plan(run, sets=["ratio_clip=0.1"]), first=first, out=tmp_path))
    assert ablation.identity.versions == dict.fromkeys(range(first, UPDATES), True)
    assert ablation.identity.checkpoint is True
    assert ablation.arms[0].digests == replay(run).digests()
    assert [u for u, _ in ablation.arms[1].updates] == list(range(first, UPDATES))


@pytest.mark.parametrize(
    ("sets", "asked", "said"),
    [
        ([], {"first": 9}, "--from 0 to 8"),
        ([], {"first": 9, "evaluation": ArmEvaluation(2, Split.TEST)}, "--from 0 to 8"),  # before phones are looked for
        ([], {"to": 40}, "--to 9"),
        (["lora_rank=4"], {"first": 5}, "--from 0"),
        (["warmup.demonstrations=99"], {}, "do not fill one update"),
        ([], {"evaluation": ArmEvaluation(2, Split.TEST)}, "devices.addresses"),
        ([], {"name": "../elsewhere"}, "letters, digits"),
    ],
)
def test_refused_before_anything_is_folded(
    run: Config, tmp_path: Path, sets: list[str], asked: dict[str, Any], said: str
) -> None:
    with pytest.raises(DistrlError) as refusal:
        ablate(run, Request(plan(run, sets=sets), out=tmp_path, **asked))
    assert said in str(refusal.value)
    assert not list(tmp_path.iterdir())


def test_a_run_of_other_settings_is_refused(run: Config, tmp_path: Path) -> None:
    other = run.model_copy(update={"algorithm": run.algorithm.model_copy(update={"gamma": 0.5})})
    with pytest.raises(ConfigError, match="other settings"):
        ablate(other, Request(plan(other), out=tmp_path))


def test_an_unknown_setting_is_refused_before_the_log_is_read(run: Config, tmp_path: Path) -> None:
    done = distrl(run, tmp_path, "--set", "algorithm.replay.w4=1")
    assert done.returncode == 1
    assert "algorithm.gamma" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_log_whose_beginning_is_gone_is_refused_with_the_command_that_works(
    run: Config, s3: settings.StoreSettings, tmp_path: Path
) -> None:
    config = run.model_copy(update={"run": f"gone-{uuid.uuid4().hex[:8]}"})
    replay = config.algorithm.replay.model_copy(update={"capacity": 24})
    config = config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"replay": replay})})
    topic_admin.ensure(config)
    publish(config, range(6), "demonstrations")
    publish(config, range(1000, 1000 + 4 * (UPDATES - 3)), "trajectories")
    learn(config, UPDATES)
    place = TopicPartition(topic_name(config.run, "trajectories"), 0, 3)
    client = admin(config.kafka)
    client.delete_records([place])[place].result(30)
    with pytest.raises(ConfigError) as refusal:
        ablate(config, Request(plan(config), out=tmp_path))
    assert "trajectories[0] from 3" in refusal.value.what
    first = int(refusal.value.hint.partition("--from ")[2].split()[0])
    ablation, _ = ablate(config, Request(plan(config), first=first, out=tmp_path))
    assert ablation.identity.holds


@pytest.fixture
def phones(
    run: Config, adb_server: settings.AdbSettings, free_row: Callable[[int], int], tmp_path: Path
) -> Iterator[Config]:
    """The run's settings with two simulated phones."""
    first = free_row(2)
    served = settings.PhoneSettings(count=2, evaluation_count=0, base_port=first, latency_median_ms=2.0)
    devices = settings.DeviceSettings(addresses=tuple(f"127.0.0.1:{first + number}" for number in range(2)))
    with phones_served(served, tmp_path):
        yield run.model_copy(update={"adb": adb_server, "phones": served, "devices": devices})


def test_success_on_phones_of_each_arm_and_nothing_of_it_in_the_run(phones: Config, tmp_path: Path) -> None:
    before = ends(phones), objects(phones)
    (tmp_path / "played").mkdir()
    done = distrl(phones, tmp_path / "played", "--set", "lora_rank=4", "--evaluate", "3", "--split", "validation")
    assert done.returncode == 0, done.stderr
    assert (ends(phones), objects(phones)) == before
    assert "to baseline" in done.stdout
    arms = report_of(tmp_path / "played")["arms"]
    assert [arm["evaluation"]["to_baseline"]["tasks"] for arm in arms] == [3, 3]
    assert arms[0]["evaluation"]["to_baseline"]["difference"] == 0.0
    for arm in arms:
        played = arm["evaluation"]
        assert (played["split"], played["tasks"], played["episodes"]) == ("validation", 3, 3)
        low, high = played["wilson_interval"]
        assert low <= played["success"] <= high


KILLED_WHILE_PLAYING = """
import os, signal
from distrl.offline.ablation import run as ablate

ablate.greedy = lambda *arguments, **named: os.kill(os.getpid(), signal.SIGKILL)
from distrl.cli.main import main
main()
"""


def test_a_kill_while_an_arm_is_played_costs_the_playing_alone(phones: Config, tmp_path: Path) -> None:
    asked = ("--set", "algorithm.replay.w1=0", "--evaluate", "2")
    (tmp_path / "killed").mkdir()
    killed = distrl(phones, tmp_path / "killed", *asked, program=("-c", KILLED_WHILE_PLAYING))
    assert killed.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "killed").glob("out/ablations/*")
    baseline = written(folder)
    assert len(baseline) == 2, "its adapter, and what it came to"

    again = distrl(phones, tmp_path / "killed", *asked)
    assert again.returncode == 0, again.stderr
    assert "arms reused from an earlier run of this command: 1, 0 of them played" in again.stdout
    assert written(folder).items() >= baseline.items(), "what was folded is not folded again"

    peace, _ = ablate(phones, Request(plan(phones, sets=["algorithm.replay.w1=0"]), out=tmp_path / "peace"))
    arms = report_of(tmp_path / "killed")["arms"]
    assert [arm["digests"] for arm in arms] == [folded.digests for folded in peace.arms]
    assert [arm["evaluation"]["episodes"] for arm in arms] == [2, 2]


def test_arms_whose_episodes_nobody_judged_are_played_again_and_not_folded_again(
    phones: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sweep(tasks: int | None) -> tuple[int, int, list[tuple[int, int]]]:
        """(arms found folded, of them found played, (episodes judged, others) of each arm)."""
        played = None if tasks is None else ArmEvaluation(tasks, Split.TEST)
        done, _ = ablate(phones, Request(plan(phones, sets=["algorithm.replay.w1=0"]), evaluation=played, out=tmp_path))
        assert [folded.adapter for folded in done.arms] == [folded.adapter for folded in unplayed.arms]
        scores = [each.score for each in done.evaluations.values()]
        return done.reused, done.reused_played, [(score.episodes, score.others) for score in scores]

    unplayed, folder = ablate(phones, Request(plan(phones, sets=["algorithm.replay.w1=0"]), out=tmp_path))
    arms = written(folder)
    assert (unplayed.reused, len(arms)) == (0, 4)
    with monkeypatch.context() as patch:
        patch.setattr(ablating, "TRUTH", lambda task, truth: None)
        assert sweep(2) == (2, 0, [(0, 2), (0, 2)])
    assert written(folder) == arms, "success that nobody could judge is not kept"

    assert sweep(2) == (2, 0, [(2, 0), (2, 0)])
    played = written(folder)
    assert sweep(2) == (2, 2, [(2, 0), (2, 0)])
    assert sweep(1) == (2, 0, [(1, 0), (1, 0)])
    assert sweep(None) == (2, 0, [])
    assert sweep(2) == (2, 2, [(2, 0), (2, 0)]), "playing fewer, or none, takes nothing away"
    assert written(folder).items() >= played.items() > arms.items()
