"""Devices, precision and memory: what they change, what they do not, and what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from distrl.accelerator import device_of, explained, kind_of
from distrl.algorithms.descent import passes
from distrl.algorithms.registry import ALGORITHMS
from distrl.compute import Compute, ShardResult, reproducible
from distrl.config import Config
from distrl.errors import ComputeError, ConfigError
from distrl.learner.fold import fold
from distrl.learner.ranks import Leader
from distrl.learner.recover import unfolded
from distrl.learner.state import LearnerState
from distrl.policy.features import Features
from distrl.policy.frugal import recompute_layers
from distrl.policy.sampling import FULL
from distrl.ranks.group import ALONE
from distrl.rollout.serving import serving
from distrl.runs.settings import learning_fingerprint
from distrl.types import LoggedTrajectory
from policy.autoui_t5.parts import base_model
from policy.vlm.models import FAMILIES
from torch import nn

from learner.test_vision_language import in_its_words
from learner.world import Screens, config, save_tiny_base, update_of, windows

UPDATES = 5
"""Three of cloning, one of the critics alone, one of A-RIDE."""
IN_WORDS = ("policy.dialect=json", "policy.system_prompt=Act.", "policy.action_tokens=48")
BEYOND = 1 << 50
"""Bytes that no machine has."""

World = tuple[Callable[..., Config], Screens, list[list[LoggedTrajectory]]]


def base_of(family: str, directory: Path) -> tuple[Path, tuple[str, ...]]:
    """A small base model of that family, and the settings that it needs."""
    if family == "autoui_t5":
        return base_model(directory), ("policy.action_tokens=128",)
    (save_tiny_base if family == "autoui" else FAMILIES[family])(directory)
    return directory, () if family == "autoui" else IN_WORDS


@pytest.fixture(params=["autoui", "autoui_t5", "qwen25"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """Settings with a base model, screens, and the windows of updates."""
    base, own = base_of(request.param, tmp_path)
    torch.set_num_threads(1)

    def settings(*sets: str) -> Config:
        return config(base, "learner.device=cpu", *own, *sets)

    screens = Screens()
    records = in_its_words(settings(), screens, UPDATES) if own else windows(screens, settings(), UPDATES)
    return settings, screens, records


def run(state: LearnerState, world: World) -> LearnerState:
    _, screens, records = world
    for window in records[state.u :]:
        update = update_of(state.u, window, state.watermarks, state.context.config)
        fold(state, window, update, screens, state.context.config)
    return state


def test_layers_that_are_computed_twice_change_no_bit(world: World) -> None:
    settings = world[0]
    plain, frugal = settings(), settings("learner.gradient_checkpointing=true")
    assert learning_fingerprint(plain) == learning_fingerprint(frugal), "it may change within a run"
    assert run(LearnerState(plain), world).digests() == run(LearnerState(frugal), world).digests()


def test_a_layer_whose_memory_is_saved_is_computed_again_for_its_gradient(tmp_path: Path) -> None:
    save_tiny_base(tmp_path)
    state = LearnerState(config(tmp_path, "learner.device=cpu"))
    model: Any = state.policy.model  # type: ignore[attr-defined]  # of the family
    kept = [0, 0]
    for saved in (False, True):
        calls = []
        handle = model.t5.encoder.block[0].layer[0].register_forward_hook(lambda *_, calls=calls: calls.append(1))
        states, _ = model.encode(torch.zeros(2, 32, 32), torch.ones((2, 4), dtype=torch.long))
        torch.autograd.grad(states.sum(), list(state.policy.parameters().values()), allow_unused=True)
        handle.remove()
        kept[saved] = len(calls)
        assert state.policy.save_memory() is not saved, "the second time there is nothing left"
    assert kept == [1, 2]
    assert not recompute_layers(nn.Linear(2, 2))


def test_a_pass_without_memory_is_repeated_with_less_and_the_same_bits(world: World) -> None:
    """Every pass with gradient of one update asks for more than there is, until layers are computed twice."""
    settings = world[0]()
    whole, starved = run(LearnerState(settings), world), LearnerState(settings)
    failed = []
    saved = False

    def save() -> bool:
        nonlocal saved
        saved, before = starved.policy.save_memory(), saved
        return saved and not before

    score, starved.context.compute = starved.context.score, Compute(settings, save)

    def starving(steps: Any, *screens: Any) -> Any:
        made = score(steps, *screens)
        if torch.is_grad_enabled() and not saved and starved.u == 1:
            torch.rand(3)  # what a failed pass has drawn is drawn again
            failed.append(len(steps))
            torch.empty(BEYOND)
        return made

    starved.context.score = starving  # type: ignore[method-assign]
    assert run(starved, world).digests() == whole.digests()
    assert len(failed) == 1, "later passes go on with less"


def test_a_pass_that_lacks_memory_for_its_gradient_holds_nothing_while_it_is_repeated(world: World) -> None:
    """What the failed pass keeps for its gradient may be what it lacked."""
    held: list[int] = []

    class Starved(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            if len(held) == 1:
                torch.empty(BEYOND)
            return gradient

    class Kept:
        pass

    kept: weakref.WeakSet[Kept] = weakref.WeakSet()
    weight = nn.Parameter(torch.ones(3))

    def part(piece: slice) -> ShardResult:
        held.append(len(kept))
        loss, its = cast(torch.Tensor, Starved.apply(weight)).sum(), Kept()
        kept.add(its)
        loss.grad_fn.metadata["its"] = its  # type: ignore[union-attr]
        return ShardResult(loss, {})

    gradients, _ = Compute(world[0](), lambda: len(held) == 1)._pass([weight], 1, slice(0, 1), part)
    assert held == [0, 0]
    assert torch.equal(cast(torch.Tensor, gradients[0]), torch.ones(3))


def test_where_nothing_can_be_saved_the_error_names_the_setting_and_a_number(world: World) -> None:
    settings, screens, records = world
    starved = LearnerState(settings("learner.microbatch=6", "learner.gradient_checkpointing=true"))
    starved.context.score = lambda *asked: torch.empty(BEYOND)  # type: ignore[method-assign, assignment, return-value]
    update = update_of(0, records[0], (), starved.context.config)
    with pytest.raises(ComputeError, match=r"learner\.microbatch=3"):
        fold(starved, records[0], update, screens, starved.context.config)


def test_where_a_pass_has_one_row_the_error_names_what_makes_it_smaller(world: World) -> None:
    settings, screens, records = world
    starved = LearnerState(settings("learner.microbatch=1", "learner.gradient_checkpointing=true"))
    starved.context.score = lambda *asked: torch.empty(BEYOND)  # type: ignore[method-assign, assignment, return-value]
    update = update_of(0, records[0], (), starved.context.config)
    with pytest.raises(ComputeError, match=r"lower policy\.max_pixels") as error:
        fold(starved, records[0], update, screens, starved.context.config)
    assert "microbatch" not in str(error.value)


def test_a_look_without_memory_names_the_pixels_as_screens_arrive_and_in_the_fold(world: World) -> None:
    settings, screens, records = world
    starved = LearnerState(settings())
    starved.features = Features(lambda png: torch.empty(BEYOND), 1, starved.features.store)  # type: ignore[arg-type, return-value]
    refs = [step.screenshot for logged in records[0] for step in logged.trajectory.steps]
    leader = Leader(starved.context.config, ALONE, screens, threading.Event())
    leader.begin(starved)
    leader.want(refs)
    with pytest.raises(ComputeError, match="look at a screenshot") as arrived:
        any(iter(leader.load_arrived, True))  # until one has come
    leader.close()
    update = update_of(0, records[0], (), starved.context.config)
    with pytest.raises(ComputeError, match="look at a screenshot") as folded:
        fold(starved, records[0], update, screens, starved.context.config)
    for error in (arrived.value, folded.value):
        assert error.where == "policy.max_pixels"
        assert "lower policy.max_pixels, or policy.precision=bfloat16" in error.hint
        assert "microbatch" not in str(error)


def test_a_model_larger_than_the_device_names_the_precision_and_the_device(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def beyond(*_: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    config = world[0]("worker.device=cpu")
    monkeypatch.setattr(type(LearnerState(config).policy), "place", beyond)
    for begin in (lambda: LearnerState(config), lambda: serving(config, FULL).__enter__()):
        with pytest.raises(ComputeError, match=r"policy\.base_model: memory is not enough on cpu") as error:
            begin()
        for setting in ("policy.precision=bfloat16", "learner.device", "worker.device"):
            assert setting in error.value.hint


def test_an_operation_without_a_deterministic_kernel_is_refused() -> None:
    with pytest.raises(ComputeError, match="no deterministic kernel"), explained(8), reproducible(1):
        torch.zeros(3).put_(torch.tensor([0, 0]), torch.tensor([1.0, 2.0]))
    with pytest.raises(RuntimeError, match="size"), explained(8):
        torch.zeros(3) + torch.zeros(4)


def test_micro_batches_sum_to_the_gradient_of_the_whole_and_belong_to_the_run(world: World) -> None:
    settings = world[0]
    assert learning_fingerprint(settings()) != learning_fingerprint(settings("learner.microbatch=3"))
    torch.manual_seed(0)
    weights, inputs = [nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(3))], torch.randn(11, 4)
    seen: list[int] = []

    def part(piece: slice) -> ShardResult:
        seen.append(piece.stop - piece.start)
        out = (inputs[piece] @ weights[0]).tanh().sum(1)
        return ShardResult(out.square().mean(), {"out": out.detach()})

    whole, _ = Compute(settings()).gradients(weights, 11, part, "a test", 0)
    seen.clear()
    made, rows = Compute(settings("learner.microbatch=3", "learner.shards=2")).gradients(weights, 11, part, "", 0)
    assert seen == [3, 2, 3, 3], "in each shard for itself"
    assert torch.equal(rows["out"], (inputs @ weights[0]).tanh().sum(1).detach())
    assert whole[0] is not None
    assert made[0] is not None
    assert torch.allclose(whole[0], made[0], atol=1e-6)
    assert made[1] is None
    steps = [step for logged in world[2][0] for step in logged.trajectory.steps]
    assert max(map(len, passes(steps, 3))) == 3
    assert sorted(row for rows in passes(steps, 3) for row in rows) == list(range(len(steps)))


def test_half_precision_trains_float32_adapters_and_restarts_with_equal_digests(world: World) -> None:
    settings = world[0]("policy.precision=bfloat16", "learner.microbatch=3")
    whole, halted = run(LearnerState(settings), world), LearnerState(settings)
    frozen = {each.dtype for each in _modules(whole) if each.is_floating_point() and not each.requires_grad}
    assert torch.bfloat16 in frozen
    assert {each.dtype for each in whole.parameters()} == {torch.float32}
    moments = [
        value
        for each in whole.algorithm.optimisers().values()
        for of_one in each.optimiser.state.values()
        for value in of_one.values()
    ]
    assert moments
    assert {each.dtype for each in moments} == {torch.float32}
    for window in world[2][:2]:
        fold(halted, window, update_of(halted.u, window, halted.watermarks, settings), world[1], settings)
    log = [each for window in world[2] for each in window]
    again = LearnerState.restore(settings, halted.meta(), halted.tensors(), log)
    assert again.digests() == halted.digests()
    assert run(again, world).digests() == whole.digests()
    assert learning_fingerprint(settings) != learning_fingerprint(world[0]("learner.microbatch=3"))


def test_half_precision_acts_and_scores_alike(world: World) -> None:
    """ρ at equal weights: a batch of one and of six differ by more than in float32, and by little."""
    settings, screens, _ = world
    state = LearnerState(settings("policy.precision=bfloat16"))
    found = [step for window in world[2] for logged in window for step in logged.trajectory.steps][:6]
    pngs, prompts = [screens(step.screenshot) for step in found], [step.prompt_ids for step in found]
    drawn = state.policy.decide(pngs, prompts, FULL, range(6))
    steps = [replace(step, action_ids=each.action_ids) for step, each in zip(found, drawn, strict=True)]
    features = [state.policy.image_features(png) for png in pngs]
    with torch.no_grad():
        together = state.policy.score(steps, features).logprob.numpy()
        alone = [float(state.policy.score([step], [each]).logprob) for step, each in zip(steps, features, strict=True)]
    tokens = np.array([len(step.action_ids) for step in steps])
    acted = np.array([each.logprob for each in drawn])
    assert np.abs((together - acted) / tokens).max() < 0.02
    assert np.abs((np.array(alone) - acted) / tokens).max() < 0.02


def test_all_of_a_language_part_is_not_trained_in_half_precision(tmp_path: Path) -> None:
    FAMILIES["qwen25"](tmp_path)
    settings = config(tmp_path, *IN_WORDS, "policy.precision=bfloat16", "policy.trains=all")
    with pytest.raises(Exception, match=r"set policy\.trains=lora"):
        LearnerState(settings)


@pytest.mark.parametrize("chosen", ["cuda", "cuda:63"])
def test_a_gpu_that_is_not_there_is_refused_by_its_setting_before_any_work(tmp_path: Path, chosen: str) -> None:
    if chosen == "cuda" and torch.cuda.is_available():
        chosen = "cuda:62"
    save_tiny_base(tmp_path)
    settings = config(tmp_path, f"learner.device={chosen}", f"worker.device={chosen}")
    with pytest.raises(ConfigError, match=r"learner\.device"):
        LearnerState(settings)
    with pytest.raises(ConfigError, match=r"worker\.device"), serving(settings, FULL):
        pass


def test_auto_is_the_cpu_where_there_is_no_gpu() -> None:
    assert device_of("auto", "learner.device").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert kind_of(torch.device("cpu")) == "cpu"


def test_a_run_stays_on_one_kind_of_processor(world: World) -> None:
    state = LearnerState(world[0]())
    update = update_of(0, world[2][0], (), state.context.config)
    assert unfolded([replace(update, device="cpu")], state, state.context.config)
    assert unfolded([update], state, state.context.config), "older lines do not say"
    with pytest.raises(ConfigError, match="computed on NVIDIA H200, and this is cpu"):
        unfolded([replace(update, device="NVIDIA H200")], state, state.context.config)


@pytest.mark.parametrize("family", ["autoui", "qwen25"])
def test_all_of_a_fold_is_on_the_device_that_is_chosen(tmp_path: Path, family: str) -> None:
    """On a second device that refuses whatever lies on another one; no GPU is needed."""
    base, sets = base_of(family, tmp_path)
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-m", "learner.on_second_device", str(base), *sets]
    done = subprocess.run(command, cwd=tests, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    assert found["device"] == "second:0"
    assert found["moments"] == ["second"]
    assert found["refuses strangers"]
    assert found["drawn"] == 3
    assert found["algorithms"] == (len(ALGORITHMS) if family == "autoui" else 1)
    assert found["whole"] == found["again"], "restored in the middle"
    for name, there in found["tensors"].items():
        assert np.allclose(there, found["cpu"][name], atol=2e-3), name


def _modules(state: LearnerState) -> list[torch.Tensor]:
    policy: Any = state.policy
    module = policy.model.t5 if hasattr(policy, "model") else policy._model.whole
    return list(module.parameters())
