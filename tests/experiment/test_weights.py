"""Real updates in virtual time: the learner's fold, bit for bit, whatever the machine does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import brought
import brought_algorithm
import byte_policy
import pytest
from distrl.broker.topics import topic_name
from distrl.config import Config, load
from distrl.experiment import cells
from distrl.experiment.base_models import grounded
from distrl.experiment.catalogue import EXPERIMENTS
from distrl.experiment.cells import code_of, noted, persisted_by_other_code, results
from distrl.experiment.compute import compute
from distrl.experiment.costs import PAPER, Draws
from distrl.experiment.deciding import PolicyBatches
from distrl.experiment.figure import draw
from distrl.experiment.page import html_page
from distrl.experiment.plan import Arm, Cell, Experiment, Play
from distrl.experiment.report import report_of, to_dict
from distrl.experiment.simulate import Simulated, World, simulate
from distrl.experiment.spent import total
from distrl.experiment.warmup import FOLDER as WARMUPS
from distrl.experiment.warmup import adapter_file, warm_up
from distrl.experiment.weights import Screenshots, WeightsLearning, demonstrations
from distrl.policy.registry import policy_of
from distrl.policy.sampling import Sampling
from distrl.runs.plugin_code import plugin_code
from distrl.store.directory import DirectoryStore
from distrl.types import LoggedTrajectory, LogPosition, Split, Update, Watermark

SMALL = (
    "run=experiment",
    "warmup.demonstrations=4",
    "warmup.updates=2",
    "warmup.minibatches=1",
    "warmup.batch_size=4",
    "algorithm.minibatches=1",
    "algorithm.batch_size=4",
    "algorithm.critic_warmup_updates=1",
    "learner.trajectories_per_update=3",
)


MIXED = ("phones.generations=[0, 1]",)
PLAYS = (Play("train", split=Split.TRAIN), Play("generation 4", generation=4), Play("app", novelty="app"))


@pytest.fixture(scope="module")
def settings() -> Config:
    return load(environ={}, sets=SMALL)


def ran(settings: Config, folder: Path) -> tuple[Simulated, WeightsLearning, Screenshots]:
    """Three phones for half a virtual hour, with the shipped policy."""
    store, screenshots = DirectoryStore(folder), Screenshots()
    learning = WeightsLearning(settings, store, screenshots)

    def worker(number: int) -> PolicyBatches:
        return PolicyBatches(
            policy_of(settings.policy), Sampling.of(settings.worker), lambda version: store.get(version.adapter)
        )

    world = World(Draws(PAPER, 0), 3, worker, learning, screenshots.keep, drawn=True)
    return simulate(settings, world, 1800.0), learning, screenshots


def test_the_weights_are_those_of_the_fold_over_the_same_log_and_equal_each_time(
    settings: Config, tmp_path: Path
) -> None:
    run, learning, screenshots = ran(settings, tmp_path / "one")
    assert len(run.folded) >= 3
    assert [version.version for version in learning.versions] == list(range(len(learning.versions)))
    again, same, _ = ran(settings, tmp_path / "other")
    assert [each.trajectory for each in again.played] == [each.trajectory for each in run.played]
    assert same.state.digests() == learning.state.digests()
    assert {step.version for each in run.played for step in each.trajectory.steps} > {0}

    topic = "distrl.experiment.trajectories"
    fresh = WeightsLearning(settings, DirectoryStore(tmp_path / "fresh"), screenshots)
    assert fresh.state.u == 2
    logged = [LoggedTrajectory(LogPosition(topic, 0, place), each.trajectory) for place, each in enumerate(run.played)]
    for begin in range(0, 3 * (learning.u - 2), 3):
        marks = {mark.topic: mark for mark in fresh.watermarks} | {topic: Watermark(topic, 0, begin + 3)}
        update = Update(fresh.u, tuple(marks[name] for name in sorted(marks)), "", 0)
        fresh.fold(logged[begin : begin + 3], update)
    assert fresh.state.digests() == learning.state.digests()
    assert fresh.state.meta() == learning.state.meta()


def test_a_shared_warm_up_leaves_the_learner_as_its_own_would(settings: Config, tmp_path: Path) -> None:
    """Also under another algorithm, and after an update that looks at what the memories hold."""
    screenshots = Screenshots()
    for kind in ("aride", "digirl"):
        cell = Cell(Arm(kind, 3, PAPER, (*SMALL[1:-1], f"algorithm.type={kind}"), learns=True), 0, 1.0)
        config = cell.arm.config(0)
        own = WeightsLearning(config, DirectoryStore(tmp_path / kind), screenshots)
        file = adapter_file(cell, tmp_path)
        if kind == "aride":
            file.parent.mkdir()
            warm_up(cell, file)
        shared = WeightsLearning(config, DirectoryStore(tmp_path / f"{kind} shared"), screenshots, file.read_bytes())
        topic = topic_name(config.run, "trajectories")
        window = [
            LoggedTrajectory(LogPosition(topic, 0, place), each)
            for place, each in enumerate(demonstrations(config, own.state.policy.tokenizer, screenshots))
        ]
        marks = (*own.watermarks, Watermark(topic, 0, len(window)))
        for learning in (own, shared):
            assert learning.u == 2
            learning.fold(window, Update(2, marks, "", 0))
        assert shared.state.digests() == own.state.digests()
        assert shared.state.meta() == own.state.meta()


def test_an_arm_that_learns_has_a_curve_and_both_ends(tmp_path: Path) -> None:
    """Its warm-up is shared with the other arm of the seed, which changes no figure."""
    few = (*SMALL[1:-1], "evaluate.validation_episodes=2", "evaluate.episodes=2")
    arms = [
        Arm(name, 3, PAPER, (*few, f"feeder.max_lag={lag}", *MIXED), "home", learns=True, plays=PLAYS)
        for name, lag in (("async", 9), ("sync", 0))
    ]
    arms.append(replace(arms[0], name="base model", until=1.0))
    until = MappingProxyType({"quick": 700.0, "full": 700.0})
    experiment = Experiment("tiny", "A tiny one", "For tests.", lambda preset: arms, until, "success_last")
    cells = experiment.cells("quick", (0,))
    found = results(cells, tmp_path, lambda cell: None, processes=1)
    assert len(list((tmp_path / WARMUPS).iterdir())) == 1
    assert found[1] == compute(cells[1])
    report = report_of(experiment, "quick", (0,), cells, found)
    *trained, base = to_dict(report)["arms"]
    for each in trained:
        (curve,) = each["curve"]
        assert [at for at, _, _ in curve] == [700.0 * point / 6 for point in range(7)]
        learned = [trajectories for _, trajectories, _ in curve]
        assert learned == sorted(learned)
        assert learned[0] == 0 < learned[-1] <= each["figures"]["trajectories"]["mean"]
        assert all(0 <= success <= 1 for _, _, success in curve)
    assert base["by_seed"][0]["success_last"] == trained[0]["by_seed"][0]["success_first"]
    assert (base["by_seed"][0]["trajectories"], base["by_seed"][0]["updates"]) == (0, 0)
    starts = [each.results[0]["curve"][0] for each in report.arms]
    assert {"train", "generation 4", "app"} <= set(report.arms[0].figures)
    assert report.arms[0].results[0]["figures"]["app"] is None, "no task of the suite is in an app that it lacks"
    assert starts[0] == starts[1], "arms of a seed begin with the same version 0"
    assert "held-out, last" in html_page(report, draw(report))


def test_without_a_warm_up_the_first_update_folds_the_demonstrations(tmp_path: Path) -> None:
    """R2D3 without pre-training, over a recurrent Q: demonstrations come with the first trajectories."""
    sets = (
        "algorithm.type=r2d3",
        "warmup.demonstrations=4",
        "warmup.updates=0",
        "algorithm.minibatches=1",
        "algorithm.batch_size=4",
    )
    cell = grounded(Cell(Arm("r2d3", 3, PAPER, sets, "home", learns=True, recurrent=True), 0, 1.0), tmp_path)
    config, store, screenshots = cell.config, DirectoryStore(tmp_path / "store"), Screenshots()
    learning = WeightsLearning(config, store, screenshots)
    assert (learning.u, len(learning.unfolded)) == (0, 4)

    def worker(number: int) -> PolicyBatches:
        policy = policy_of(config.policy)
        return PolicyBatches(policy, Sampling.of(config.worker), lambda version: store.get(version.adapter))

    run = simulate(config, World(Draws(PAPER, 0), 3, worker, learning, screenshots.keep, drawn=True), 700.0)
    assert [len(each.lags) for each in run.folded] == [3] * len(run.folded), "lags are those of the agent's episodes"
    assert run.folded
    buffers = learning.state.algorithm.memory.buffers
    assert len(buffers["demonstrations"].entries) == 4
    assert len(buffers["agent"].entries) == 3 * learning.u


def test_cells_name_the_code_of_the_package_that_brings_their_policy_and_those_of_other_code_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "code_version", lambda: "abc")
    site, base, out = brought.install(tmp_path / "site"), byte_policy.save(tmp_path / "base"), tmp_path / "out"
    brought.use(site, monkeypatch)
    few = (*SMALL[1:-1], "evaluate.validation_episodes=2", "evaluate.episodes=2")
    learning = [Cell(Arm("few", 3, PAPER, few, "home", learns=True, points=1), 0, 1.0, base)]
    code = code_of(learning)
    assert code == f"{plugin_code(learning[0].config)['plugin.policy']}, abc"
    results(learning, out, lambda cell: None, 1)
    assert total(out, noted(learning, out))["code"] == [code], "of the cell and of its warm-up"
    assert persisted_by_other_code(learning, out, code_of(learning)) == {}
    brought.edit(site)
    brought.use(site, monkeypatch)
    assert persisted_by_other_code(learning, out, code_of(learning)) == {code: 2}


def test_cells_name_the_code_of_the_package_that_brings_the_algorithm_of_some_arm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cells, "code_version", lambda: "abc")
    brought_algorithm.use(brought_algorithm.install(tmp_path), monkeypatch)
    both = [
        Cell(Arm(name, 3, PAPER, (f"algorithm.type={name}",), "home", learns=True, points=1), 0, 1.0)
        for name in ("cloning", brought_algorithm.TYPE)
    ]
    assert code_of(both) == f"{plugin_code(both[1].config)['plugin.algorithm']}, abc"


def test_cells_of_distrls_own_policies_name_no_other_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "code_version", lambda: "abc")
    for name in ("collection", "drift"):
        assert code_of(EXPERIMENTS[name].cells("quick", (0,))) == "abc"
