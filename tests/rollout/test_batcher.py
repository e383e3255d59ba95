from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from distrl.errors import ComputeError, PolicyError
from distrl.policy.sampling import FULL, Sampling
from distrl.rollout.batcher import MOST_FAILURES, Batcher
from distrl.rollout.decider import PolicyEndedError
from distrl.rollout.episode import Observation, sampling_seed
from distrl.supervised import SupervisedThread
from distrl.types import Action, ScreenSize

from rollout.world import TAP, shot, task, version

BEYOND = 1 << 50
"""Bytes that no machine has."""


@dataclass(frozen=True)
class Row:
    action_ids: tuple[int, ...]
    action: Action
    action_text: str
    logprob: float
    entropy: float | None


@dataclass
class Weights:
    """Writes the adapter's number and the row's screen; notes its batches; stops inside one while `gate` is unset."""

    batches: list[list[bytes]] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)
    adapter: bytes = b""
    gate: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    earlier_screens: int = 0
    earlier: list[list[Sequence[bytes]]] = field(default_factory=list)
    most_rows: int = 1 << 10
    """Beyond them, memory is not enough."""

    def decide(
        self,
        pngs: Sequence[bytes],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        seeds: Sequence[int],
        earlier: Sequence[Sequence[bytes]] = (),
    ) -> list[Row]:
        self.entered.set()
        if self.gate is not None:
            self.gate.wait(10)
        self.batches.append(list(pngs))
        self.earlier.append(list(earlier))
        self.seeds += seeds
        if len(pngs) > self.most_rows:
            torch.empty(BEYOND)
        if shot("broken") in pngs:
            raise PolicyError("screenshot", "is no PNG image", "check the device")
        return [
            Row((len(prompt),), TAP, self.adapter.decode(), math.nan if png == shot("overflows") else -1.0, 0.5)
            for png, prompt in zip(pngs, prompts, strict=True)
        ]

    def load(self, adapter: bytes) -> None:
        if adapter == b"foreign":
            raise PolicyError("adapter", "does not fit", "use another")
        self.adapter = adapter


class Words:
    def encode_prompt(self, instruction: str, previous: Sequence[Action], screen: ScreenSize) -> tuple[int, ...]:
        return tuple(range(1 + len(previous)))


def seen(name: str = "t", png: str = "png", step: int = 0) -> Observation:
    return Observation(task(name), "a", step, shot(png), (TAP,) * step, lambda: None)


Serving = Callable[..., Batcher]


@pytest.fixture
def serving() -> Iterator[Serving]:
    """Batchers whose thread ends with the test."""
    ends: list[Callable[[], None]] = []

    def start(weights: Weights, wait_s: float = 0.0) -> Batcher:
        batcher = Batcher(weights, Words(), sampling=FULL, wait_s=wait_s)
        thread = threading.Thread(target=batcher.serve)
        thread.start()
        ends.append(lambda: (batcher.close(), thread.join())[0])
        return batcher

    yield start
    for end in ends:
        end()


def test_each_row_is_decided_with_its_own_earlier_screens(serving: Serving) -> None:
    weights = Weights(earlier_screens=2)
    batcher = serving(weights)
    batcher.swap(version(5), b"five")
    assert batcher.earlier_screens == 2
    for earlier in ((shot("one"), shot("two")), ()):
        batcher.decide(replace(seen(), earlier=earlier))
        assert weights.earlier[-1] == [earlier]


def test_a_decision_carries_the_version_the_exact_ids_and_the_rows_own_seed(serving: Serving) -> None:
    weights = Weights()
    batcher = serving(weights)
    batcher.swap(version(5), b"five")
    decision = batcher.decide(seen(step=2))
    assert (decision.version, decision.version_sha256) == (5, version(5).adapter.sha256)
    assert (decision.prompt_ids, decision.action_ids, decision.action_text) == ((0, 1, 2), (3,), "five")
    assert weights.seeds == [sampling_seed("t", "a", 2)]


def test_decisions_asked_for_together_share_a_batch(serving: Serving) -> None:
    weights = Weights()
    batcher = serving(weights, wait_s=30.0)
    batcher.swap(version(0), b"zero")
    with batcher.episode(), batcher.episode(), batcher.episode(), ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: batcher.decide(seen(name, name)), "abc"))
    assert [sorted(batch) for batch in weights.batches] == [[shot("a"), shot("b"), shot("c")]]


def test_a_lone_episode_does_not_wait_for_company(serving: Serving) -> None:
    """Were it to wait out wait_s, the test would run into its timeout."""
    batcher = serving(Weights(), wait_s=3_000.0)
    batcher.swap(version(0), b"zero")
    with batcher.episode():
        assert batcher.decide(seen()).version == 0


def test_a_swap_waits_for_the_batch_under_way_and_no_row_is_stamped_with_other_weights(serving: Serving) -> None:
    weights = Weights(gate=threading.Event())
    batcher = serving(weights)
    batcher.swap(version(1), b"one")
    with ThreadPoolExecutor(2) as pool:
        decision = pool.submit(batcher.decide, seen())
        assert weights.entered.wait(10)
        swap = pool.submit(batcher.swap, version(2), b"two")
        assert not swap.done()
        weights.gate.set()  # type: ignore[union-attr]
        assert (decision.result(10).version, decision.result().action_text) == (1, "one")
        swap.result(10)
    after = batcher.decide(seen())
    assert (after.version, after.action_text) == (2, "two")


def test_one_unreadable_screen_does_not_fail_its_neighbours(serving: Serving) -> None:
    batcher = serving(Weights(), wait_s=30.0)
    batcher.swap(version(0), b"zero")
    with batcher.episode(), batcher.episode(), ThreadPoolExecutor(2) as pool:
        good = pool.submit(batcher.decide, seen(png="good"))
        bad = pool.submit(batcher.decide, seen(png="broken"))
        assert good.result(10).version == 0
        with pytest.raises(PolicyError, match="no PNG"):
            bad.result(10)


def test_a_batch_beyond_the_memory_is_decided_row_by_row_and_the_log_names_what_to_lower(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    batcher = serving(Weights(most_rows=1), wait_s=30.0)
    batcher.swap(version(0), b"zero")
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            with batcher.episode(), batcher.episode(), ThreadPoolExecutor(2) as pool:
                asked = [pool.submit(batcher.decide, seen(name)) for name in ("one", "two")]
                assert [each.result(10).version for each in asked] == [0, 0]
    (said,) = (each for each in caplog.messages if "memory is not enough to decide 2 actions at once" in each)
    assert "fewer phones" in said
    assert "policy.max_pixels" in said


def test_a_decision_beyond_the_memory_says_what_to_lower(serving: Serving) -> None:
    batcher = serving(Weights(most_rows=0))
    batcher.swap(version(0), b"zero")
    with pytest.raises(ComputeError, match=r"(?s)^worker\.device: memory is not enough to decide an action") as error:
        batcher.decide(seen())
    for setting in ("worker.device", "policy.max_pixels", "policy.history_screens", "policy.precision=bfloat16"):
        assert setting in error.value.hint


def test_an_adapter_that_does_not_load_leaves_the_old_one(serving: Serving) -> None:
    batcher = serving(Weights())
    batcher.swap(version(1), b"one")
    with pytest.raises(PolicyError, match="does not fit"):
        batcher.swap(version(2), b"foreign")
    assert batcher.loaded == version(1)
    assert batcher.decide(seen()).action_text == "one"


def test_a_thread_that_ends_unexpectedly_frees_who_waits_with_the_reason(serving: Serving) -> None:
    batcher = serving(Weights())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(batcher.decide, seen())
        with pytest.raises(FutureTimeout):
            waiting.result(0.05)
        batcher.fail(ValueError("broken"))
        with pytest.raises(PolicyEndedError, match="thread has ended: ValueError: broken"):
            waiting.result(10)
    for ask in (batcher.check, lambda: batcher.decide(seen()), lambda: batcher.swap(version(0), b"zero")):
        with pytest.raises(PolicyEndedError, match="ValueError: broken"):
            ask()


@pytest.mark.parametrize("at", ["a decision", "a decision alone", "an adapter"])
def test_a_panic_in_the_policys_thread_leaves_nobody_waiting(at: str) -> None:
    class Panic(BaseException):
        """As pyo3's, which is no Exception."""

    class Panicking(Weights):
        def decide(self, *args: Any, **kwargs: Any) -> list[Row]:
            if at == "a decision alone" and len(kwargs.get("pngs", args[0])) > 1:
                raise PolicyError("policy", "is out of memory", "ask one by one")
            raise Panic("a tokenizer")

        def load(self, adapter: bytes) -> None:
            if at == "an adapter":
                raise Panic("safetensors")

    batcher = Batcher(Panicking(), Words(), sampling=FULL, wait_s=0.3)
    thread = SupervisedThread(batcher.serve, "policy", batcher.fail)
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(batcher.swap, version(0), b"zero")]
        if at != "an adapter":
            asked[0].result(10)
            asked = [pool.submit(batcher.decide, seen(name)) for name in ("a", "b")]
        ended = [type(each.exception(10)) for each in asked]
    thread.join(10)
    assert set(ended) <= {Panic, PolicyEndedError}
    with pytest.raises(PolicyEndedError, match="thread has ended: Panic: "):
        batcher.check()
    with pytest.raises(Panic):
        thread.check()


def test_a_log_probability_that_is_not_finite_is_no_decision_and_the_rest_of_its_batch_is(serving: Serving) -> None:
    batcher = serving(Weights())
    batcher.swap(version(0), b"zero")
    with batcher.episode(), batcher.episode(), ThreadPoolExecutor(2) as pool:
        bad, good = (pool.submit(batcher.decide, seen(png=png)) for png in ("overflows", "good"))
        assert good.result(10).logprob == -1.0
        with pytest.raises(PolicyError, match="gives the action 'zero', which it has chosen, the log-probability nan"):
            bad.result(10)


def test_a_policy_that_decides_nothing_any_more_ends_with_the_reason_and_one_that_now_and_then_fails_does_not() -> None:
    batcher = Batcher(Weights(), Words(), sampling=FULL, wait_s=5.0)
    thread = SupervisedThread(batcher.serve, "policy", batcher.fail)
    batcher.swap(version(0), b"zero")

    def fails(times: int) -> None:
        for _ in range(times):
            with pytest.raises(PolicyError, match="no PNG"):
                batcher.decide(seen(png="broken"))

    fails(MOST_FAILURES - 1)
    assert batcher.decide(seen(png="good")).version == 0
    fails(MOST_FAILURES - 1)
    # the first of a batch is the last allowed, and the second has its answer, too
    with batcher.episode(), batcher.episode(), ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(batcher.decide, seen(png="broken")) for _ in range(2)]:
            with pytest.raises(PolicyError, match="no PNG"):
                each.result(10)
    thread.join(10)
    with pytest.raises(PolicyEndedError, match=f"its last {MOST_FAILURES} decisions failed, the last .*no PNG"):
        batcher.check()


def test_nothing_is_decided_before_there_are_weights_and_closing_frees_who_waits(serving: Serving) -> None:
    batcher = serving(Weights())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(batcher.decide, seen())
        assert not batcher.wait_loaded(0, 0.01)
        batcher.close()
        with pytest.raises(PolicyError, match="stopped"):
            waiting.result(10)
    with pytest.raises(PolicyError, match="stopped"):
        batcher.decide(seen())
    with pytest.raises(PolicyError, match="stopped"):
        batcher.swap(version(1), b"one")


def test_waiting_for_a_version_ends_when_it_or_a_newer_one_is_loaded(serving: Serving) -> None:
    batcher = serving(Weights())
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(batcher.wait_loaded, 3, 10.0)
        batcher.swap(version(4), b"four")
        assert waiting.result(10)
    assert not batcher.wait_loaded(5, 0.0)
