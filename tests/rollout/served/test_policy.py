"""Acting through a server that is slow, full, starts again, loses adapters, and answers under other names."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from distrl.clock import SYSTEM_CLOCK
from distrl.errors import ConfigError, PolicyError
from distrl.policy.adapters import WEIGHTS
from distrl.policy.registry import tokenizer_of
from distrl.policy.vlm.chat import MOST_BIASES, STOPPED, ChatForm, Written
from distrl.policy.vlm.tokenizer import VlmTokenizer
from distrl.rollout.decider import PolicyClosedError, PolicyEndedError
from distrl.rollout.reload import Reloader
from distrl.rollout.served import policy as room
from distrl.rollout.served.names import is_of, name_of
from distrl.rollout.served.server import RefusedError, ServerError
from distrl.supervised import StoppableThread
from distrl.types import Version
from model_server import ModelServer

from rollout.served.world import RUN, Learned, Process, form_of, process, seen, settings


@dataclass(frozen=True)
class Coming:
    """The one version that there is."""

    version: Version

    def latest(self) -> Version:
        return self.version

    def wait_newer(self, than: int | None, timeout_s: float) -> Version | None:
        return self.version if than is None else None


def loads(server: ModelServer) -> list[str]:
    return [name for what, name in server.events if what == "load"]


def test_a_name_is_of_its_run_version_and_bytes(learner: Learned) -> None:
    version, _ = learner.version(7)
    name = name_of(RUN, version)
    assert name == f"served-v7-{version.adapter.sha256[:8]}"
    assert is_of(RUN, name)
    assert not is_of("serve", name)
    assert not is_of(RUN, f"served-2-v7-{version.adapter.sha256[:8]}")
    assert not is_of(RUN, f"{name}.lock")


def test_load_switch_drain_unload_in_that_order(server: ModelServer, start: Process, learner: Learned) -> None:
    """A decision that is on its way when newer weights come is finished, and stamped, by the old ones; those are
    unloaded afterwards."""
    old, new = learner.version(1), learner.version(2)
    with start() as policy, ThreadPoolExecutor(2) as pool:
        policy.swap(*old)
        server.hold = threading.Event()
        server.asked.clear()
        early = pool.submit(policy.decide, seen())
        assert server.asked.wait(30)
        server.hold, held = None, server.hold
        swapped = pool.submit(policy.swap, *new)
        assert policy.wait_loaded(2, 30)
        late = policy.decide(seen(1))
        assert not swapped.done(), "it drains"
        held.set()
        assert (early.result(30).version, late.version) == (1, 2)
        swapped.result(30)
        first, second = name_of(RUN, old[0]), name_of(RUN, new[0])
        assert list(server.adapters) == [second]
        assert server.events.index(("load", second)) < server.events.index(("unload", first))
        last = max(place for place, each in enumerate(server.events) if each == ("answer", first))
        assert last < server.events.index(("unload", first))
    assert not server.adapters, "who leaves last unloads"


def test_workers_share_a_server_one_loads_and_the_last_unloads(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    old, new = learner.version(1), learner.version(2)
    with start() as one, start() as other, ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda policy: policy.swap(*old), (one, other)))
        assert loads(server) == [name_of(RUN, old[0])]
        one.swap(*new)
        assert set(server.adapters) == {name_of(RUN, old[0]), name_of(RUN, new[0])}, "the other one still needs it"
        assert other.decide(seen()).version == 1
        other.swap(*new)
        assert set(server.adapters) == {name_of(RUN, new[0])}
        assert len(loads(server)) == 2
    assert not server.adapters


def test_what_a_killed_process_has_left_is_unloaded_by_the_next(
    server: ModelServer, base: Path, tmp_path: Path, start: Process, learner: Learned
) -> None:
    killed = process(settings(base, tmp_path / "adapters", server.url))
    killed.swap(*learner.version(1))
    assert killed._current is not None
    killed._current.hold.release()  # as the system does
    (tmp_path / "adapters" / f".{name_of(RUN, learner.version(1)[0])}-0123abcd").mkdir()  # killed while it wrote
    server.max_adapters = 1
    with start() as policy:
        policy.swap(*learner.version(2))
        name = name_of(RUN, learner.version(2)[0])
        assert list(server.adapters) == [name]
        assert sorted(each.name for each in (tmp_path / "adapters").iterdir()) == [name, f"{name}.lock"]


def test_an_adapter_that_was_being_deleted_at_a_kill_is_written_again(
    server: ModelServer,
    base: Path,
    tmp_path: Path,
    start: Process,
    learner: Learned,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def killed(made: Path, **_: object) -> None:
        (made / WEIGHTS).unlink()
        raise KeyboardInterrupt

    last = process(settings(base, tmp_path / "adapters", server.url))
    last.swap(*learner.version(1))
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            last.leave()
    with start() as policy:
        policy.swap(*learner.version(1))
        assert policy.decide(seen()).version == 1


def test_adapters_that_a_restart_has_lost_are_loaded_again_under_their_names(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    version, adapter = learner.version(1)
    with start() as policy, ThreadPoolExecutor(3) as pool:
        policy.swap(version, adapter)
        before = policy.decide(seen())
        server.restart()
        again = list(pool.map(lambda _: policy.decide(seen()), range(3)))
        assert {each.action_ids for each in again} == {before.action_ids}
        assert {each.version_sha256 for each in again} == {version.adapter.sha256}
        assert loads(server) == [name_of(RUN, version)] * 2, "once for all who miss it"


def test_an_answer_under_another_name_or_to_another_prompt_is_refused(
    server: ModelServer, start: Process, learner: Learned, caplog: pytest.LogCaptureFixture
) -> None:
    with start() as policy:
        policy.swap(*learner.version(1))
        right = policy.decide(seen())
        server.wrong_names = 1
        assert policy.decide(seen()).action_ids == right.action_ids
        assert "came from 'base'" in caplog.text
        server.other_prompts = 1
        assert policy.decide(seen()).action_ids == right.action_ids
        assert "recorded prompt" in caplog.text
        server.wrong_names = 3
        with pytest.raises(ServerError, match="came from 'base'"):
            policy.decide(seen())
        assert policy.decide(seen()).action_ids == right.action_ids


def test_a_busy_server_and_one_that_is_away_are_waited_for_and_then_interrupt_the_episode(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    with start(wait_s=0.2) as policy, start() as patient:
        for each in (policy, patient):
            each.swap(*learner.version(1))
        server.failures = 1
        assert patient.decide(seen()).version == 1
        server.away = True
        with pytest.raises(ServerError, match="does not answer"):
            policy.decide(seen())
        server.away = False
        assert policy.decide(seen()).version == 1


def test_a_request_that_the_server_refuses_is_not_repeated_for_minutes(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    with start() as policy:
        policy.swap(*learner.version(1))
        server.most_tokens, server.events[:] = 1, []
        with pytest.raises(RefusedError, match="maximum context length") as refused:
            policy.decide(seen())
        assert "--max-model-len" in refused.value.hint
        server.most_tokens = 0
        with pytest.raises(ConfigError, match="maximum context length"):
            policy.swap(*learner.version(2))


def test_a_server_that_takes_fewer_screenshots_than_a_prompt_has_is_refused_before_a_decision(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    server.most_pictures = 1
    with start(history_screens=1) as policy:
        with pytest.raises(ConfigError, match="At most 1 image") as refused:
            policy.swap(*learner.version(1))
        assert "--limit-mm-per-prompt" in refused.value.hint
        server.most_pictures = 2
        policy.swap(*learner.version(1))
        assert policy.decide(seen(3, history_screens=1)).version == 1


def test_an_adapter_that_cannot_be_unloaded_keeps_no_newer_one_out(
    server: ModelServer, start: Process, learner: Learned, tmp_path: Path
) -> None:
    """Its files go where the server's engine has let go of it; where unloading fails otherwise, they wait."""
    with start() as policy:
        policy.swap(*learner.version(1))
        server.evicted = True
        policy.swap(*learner.version(2))
        assert policy.decide(seen()).version == 2
        assert [name_of(RUN, learner.version(2)[0])] == [each.name for each in (tmp_path / "adapters").glob("*[!k]")]


def test_a_slow_server_ends_in_an_error_that_names_the_setting(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    with start() as policy, start(timeout_s=0.3, wait_s=0.1) as hasty:
        policy.swap(*learner.version(1))
        server.hold = threading.Event()
        with pytest.raises(ServerError) as slow:
            hasty.swap(*learner.version(1))
        server.hold.set()
        assert "policy.server.timeout_s" in slow.value.hint


def test_a_full_server_keeps_the_old_version_until_there_is_room(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    server.max_adapters = 1
    with start() as policy:
        policy.swap(*learner.version(1))
        with pytest.raises(ServerError, match="No free lora slots") as full:
            policy.swap(*learner.version(2))
        assert "--max-loras" in full.value.hint
        assert policy.decide(seen()).version == 1
        server.max_adapters = 2
        policy.swap(*learner.version(2))
        assert policy.decide(seen()).version == 2


@pytest.mark.parametrize(
    ("wrong", "message", "hint"),
    [
        ({"lora": False}, "not enabled", "--enable-lora"),
        ({"runtime_updates": False}, "load_lora_adapter", "VLLM_ALLOW_RUNTIME_LORA_UPDATING"),
        ({"max_rank": 2}, "max_lora_rank 2", "--max-lora-rank"),
        ({"processed": False}, "certain", "--logprobs-mode processed_logprobs"),
        ({"key": "secret"}, "401", "--api-key"),
        ({"other_prompts": 1}, "recorded prompt", "policy.base_model"),
        ({"wrong_names": 1}, "came from", "proxy"),
        ({"without_ids": 1}, "without token ids", "docs/serving.md"),
    ],
)
def test_a_server_that_is_set_up_wrong_is_refused_with_what_helps(
    server: ModelServer, start: Process, learner: Learned, wrong: dict[str, object], message: str, hint: str
) -> None:
    for name, value in wrong.items():
        setattr(server, name, value)
    with start() as policy, pytest.raises(ConfigError, match=message) as refused:
        policy.swap(*learner.version(1))
    assert hint in refused.value.hint
    assert policy.loaded is None


def test_a_folder_that_the_server_does_not_see_is_named(server: ModelServer, start: Process, learner: Learned) -> None:
    with start(adapters_there="/nowhere") as policy, pytest.raises(ConfigError, match="No adapter found") as refused:
        policy.swap(*learner.version(1))
    assert "policy.server.adapters_there" in refused.value.hint


def test_an_adapter_of_another_model_is_never_sent(server: ModelServer, start: Process, learner: Learned) -> None:
    version, adapter = learner.version(1)
    with start() as policy:
        policy.swap(version, adapter)
        for spoilt in (b"nothing", adapter.replace(learner.policy.base_sha256.encode(), b"0" * 64)):
            with pytest.raises(PolicyError, match="adapter"):
                policy.swap(learner.version(2)[0], spoilt)
        assert policy.loaded == version
        assert len(loads(server)) == 1


def test_a_name_that_stands_for_other_bytes_is_refused(
    server: ModelServer, start: Process, learner: Learned, tmp_path: Path
) -> None:
    version, adapter = learner.version(1)
    with start() as policy:
        policy.swap(version, adapter)
        file = tmp_path / "adapters" / name_of(RUN, version) / "adapter_model.safetensors"
        file.write_bytes(learner.version(2)[1])
        with start() as other, pytest.raises(PolicyError, match="holds other bytes"):
            other.swap(version, adapter)


def test_a_server_that_is_set_up_wrong_after_a_restart_ends_the_process(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    with start() as policy:
        policy.swap(*learner.version(1))
        server.restart()
        server.processed = False
        with pytest.raises(PolicyEndedError, match="certain"):
            policy.decide(seen())
        with pytest.raises(PolicyEndedError, match="certain"):
            policy.check()


def test_greedy_decisions_and_those_of_equal_seeds_repeat(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    with start(None) as greedy, start() as drawing:
        for policy in (greedy, drawing):
            policy.swap(*learner.version(1))
        assert greedy.decide(seen()).action_ids == greedy.decide(seen(name="other")).action_ids
        drawn = [drawing.decide(seen(name=name)).action_ids for name in ("a", "a", "b", "c", "d")]
        assert drawn[0] == drawn[1]
        assert len(set(drawn)) > 1


def test_a_model_with_more_empty_ids_than_a_server_can_be_forbidden_is_refused(base: Path, tmp_path: Path) -> None:
    tokenizer = tokenizer_of(settings(base, tmp_path, "http://127.0.0.1:1/v1"))
    assert isinstance(tokenizer, VlmTokenizer)
    tokenizer.processor.vocabulary = tokenizer.processor.size + MOST_BIASES
    with pytest.raises(PolicyError, match=f"more than {MOST_BIASES}"):
        ChatForm(tokenizer)


def test_a_process_ends_although_the_server_hangs(
    server: ModelServer,
    start: Process,
    learner: Learned,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What loads ends with the request under way, and leaving waits for no more than LEAVE_S."""
    monkeypatch.setattr(room, "DRAIN_S", 0.1)
    monkeypatch.setattr(room, "LEAVE_S", 0.3)
    with start() as policy, ThreadPoolExecutor(1) as pool:
        policy.swap(*learner.version(1))
        server.asked.clear()
        server.hold = threading.Event()
        swapping = pool.submit(policy.swap, *learner.version(2))
        assert server.asked.wait(30)
        server.hangs = threading.Event()
        began = time.monotonic()
        policy.leave()
        assert time.monotonic() - began < 10, "and not policy.server.timeout_s, which is 20"
        assert "stays loaded" in caplog.text
        server.hangs.set()
        server.hold.set()
        with pytest.raises(PolicyClosedError):
            swapping.result(30)


def test_a_worker_that_stops_waits_for_no_more_than_one_request_of_a_version_that_loads(
    server: ModelServer, start: Process, learner: Learned, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    version, adapter = learner.version(1)
    with start() as policy:
        server.asked.clear()
        server.hold = threading.Event()
        reloader = Reloader(Coming(version), lambda ref: adapter, learner.policy.base_sha256, policy, SYSTEM_CLOCK)
        following = StoppableThread(reloader.run, "versions")
        assert server.asked.wait(30)
        asked = len(server.events)

        def release() -> None:
            policy.close()
            assert server.hold is not None
            server.hold.set()

        following.stop(release)
        following.check()
        assert server.events[asked:] == [("answer", name_of(RUN, version))], "it is asked nothing more"
        assert (reloader.state.reloads, reloader.state.alerts) == (0, 0)
        assert "is not loaded any more" in caplog.text


def test_a_version_that_comes_after_the_end_is_neither_written_nor_asked_about(
    server: ModelServer, start: Process, learner: Learned, tmp_path: Path
) -> None:
    with start() as policy:
        policy.close()
        server.away = True
        with pytest.raises(PolicyClosedError):
            policy.swap(*learner.version(1))
    assert not (tmp_path / "adapters").exists()


def test_a_process_that_ends_within_its_first_load_leaves_no_adapter(
    server: ModelServer, start: Process, learner: Learned
) -> None:
    with start() as policy, ThreadPoolExecutor(1) as pool:
        server.asked.clear()
        server.hold = threading.Event()
        swapping = pool.submit(policy.swap, *learner.version(1))
        assert server.asked.wait(30)
        policy.close()
        server.hold.set()
        with pytest.raises(PolicyClosedError):
            swapping.result(30)
        assert list(server.adapters) == [name_of(RUN, learner.version(1)[0])]
    assert not server.adapters


@pytest.mark.parametrize(("more", "is_taken"), [(-1, True), (0, True), (1, False), (5000, False)])
def test_an_answer_that_is_longer_than_an_action_is_refused(base: Path, more: int, is_taken: bool) -> None:
    """Of a server or proxy that drops max_completion_tokens: a learner would skip the episode, or mask its end."""
    form = form_of(settings(base, base, "http://127.0.0.1:1/v1"))
    question = form.question(seen().png, "open the settings", ())
    ids = (form.probe_tokens()[0],) * (form.tokenizer.action_length - 2 + more) + form.tokenizer.ends[:1]
    names = tuple(f"token_id:{token}" for token in ids)
    written = Written("name", question.read_ids, ids, names, (-0.5,) * len(ids), STOPPED)
    if is_taken:
        assert form.sampled("name", question, written).action_ids == ids
    else:
        with pytest.raises(PolicyError, match=f"after {len(ids)} of {len(ids) - more} tokens"):
            form.sampled("name", question, written)


def test_who_waits_is_released_at_the_end(server: ModelServer, start: Process, learner: Learned) -> None:
    with start() as policy, ThreadPoolExecutor(1) as pool:
        early = pool.submit(policy.decide, seen())
        assert not policy.wait_loaded(0, 0.05)
        policy.close()
        with pytest.raises(PolicyError, match="stopped"):
            early.result(30)
