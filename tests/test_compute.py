"""Shards: their gradients sum to that of the whole, and which of them was computed first changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from distrl.compute import Compute, ShardResult, pieces
from distrl.config import Config
from distrl.errors import StoreError
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.protocol import trajectory_steps
from distrl.runs.settings import learning_fingerprint
from hypothesis import given
from hypothesis import strategies as st
from learner.world import Screens, config, save_tiny_base, update_of, windows
from torch import Tensor, nn

UPDATES = 6
"""Three of cloning, one of the critics alone, two of A-RIDE."""


@given(st.integers(0, 200), st.integers(1, 64))
def test_every_row_is_in_one_piece_and_none_is_empty(rows: int, shards: int) -> None:
    found = pieces(rows, shards)
    assert [row for piece in found for row in range(rows)[piece]] == list(range(rows))
    sizes = [piece.stop - piece.start for piece in found]
    assert len(sizes) == min(rows, shards)
    assert max(sizes, default=0) - min(sizes, default=0) <= 1


def of(shards: int) -> Compute:
    return Compute(Config.model_validate({"learner": {"shards": shards}}))


def gradients(shards: int, weights: list[nn.Parameter], inputs: Tensor) -> list[Tensor | None]:
    def part(piece: slice) -> ShardResult:
        out = (inputs[piece] @ weights[0]).tanh() @ weights[1]
        return ShardResult(out.square().mean(), {"out": out.detach()})

    found, rows = of(shards).gradients(weights, len(inputs), part, "a test", 0)
    assert torch.allclose(rows["out"], ((inputs @ weights[0]).tanh() @ weights[1]).detach(), atol=1e-6)
    return found


@given(st.integers(1, 40), st.integers(1, 9))
def test_the_shards_sum_to_the_gradient_of_the_whole(rows: int, shards: int) -> None:
    torch.manual_seed(rows)
    weights = [nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(3))]
    inputs = torch.randn(rows, 4)
    whole, sharded = gradients(1, weights, inputs), gradients(shards, weights, inputs)
    assert whole[2] is None
    assert sharded[2] is None, "a parameter that no shard uses has no gradient"
    for one, other in zip(whole[:2], sharded[:2], strict=True):
        assert one is not None
        assert other is not None
        assert torch.allclose(one, other, atol=1e-5)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    save_tiny_base(tmp_path / "base")
    return tmp_path / "base"


def folded(base: Path, shards: int) -> LearnerState:
    torch.set_num_threads(1)
    settings, screens = config(base, f"learner.shards={shards}"), Screens()
    state = LearnerState(settings)
    for u, window in enumerate(windows(screens, settings, UPDATES)):
        fold(state, window, update_of(u, window, state.watermarks, settings), screens, settings)
    return state


@pytest.mark.parametrize("shards", [2, 3, 64])
def test_a_sharded_run_is_reproducible_and_another_run_than_one_in_a_piece(base: Path, shards: int) -> None:
    one, again, whole = folded(base, shards), folded(base, shards), folded(base, 1)
    assert one.digests() == again.digests()
    assert one.digests()["adapter"] != whole.digests()["adapter"], "dropout and rounding are by the shard"
    assert learning_fingerprint(one.context.config) != learning_fingerprint(whole.context.config)


def test_a_shard_does_not_depend_on_what_was_drawn_before_it(base: Path) -> None:
    """Computed elsewhere, where nobody has drawn anything, a shard gives the same bits."""
    state = folded(base, 2)
    compute, context = state.context.compute, state.context
    steps = trajectory_steps(state.entries()[0].logged.trajectory)[:4]
    drawn = []
    for before in (0, 7):
        torch.rand(before)

        def part(piece: slice) -> ShardResult:
            logprob = context.score(steps[piece]).logprob
            return ShardResult(-logprob.mean(), {"logprob": logprob.detach()})

        with context.policy.dropout():
            found, _ = compute.gradients(list(context.policy.parameters().values()), len(steps), part, "dropout 0", 0)
        drawn.append(found)
    for one, other in zip(*drawn, strict=True):
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


def test_an_error_in_a_shard_leaves_torch_as_it_was(base: Path) -> None:
    before = torch.get_rng_state()

    def part(piece: slice) -> ShardResult:
        torch.rand(3)
        raise StoreError("an object", "is gone", "bring it back")

    with pytest.raises(StoreError):
        of(2).gradients([], 4, part, "a test", 0)
    assert torch.equal(before, torch.get_rng_state())
