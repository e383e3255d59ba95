"""A prompted agent on a simulated phone behind a real adb server, its model behind a real endpoint that is a script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from appagent import model
from chat.server import Server, body, hangs_up, says, serving, thinks
from device.conftest import LONG_S, given_time
from distrl.appagent import identity, prompt
from distrl.appagent.agent import REFUSED, SILENT, Agent
from distrl.appagent.notes import load, save, with_note
from distrl.chat.endpoint import Endpoint
from distrl.config import AppAgentSettings, Config, DeviceSettings
from distrl.device.server import AdbServer
from distrl.errors import ChatError, ConfigError
from distrl.rollout.episode import Episode
from distrl.rollout.explore import exploration_tasks, explore
from distrl.rollout.phones import Phones
from distrl.rollout.prompted import attempt_on, ready_endpoint
from distrl.tasks.outcome import checked
from distrl.tasks.suite import HomeSuite
from distrl.types import PROMPTED, ActionKind, HeldBack, Outcome, Split, Task, Trajectory
from distrl.wire.codec import decode, encode
from simphone.commands import COMMANDS
from simphone.commands.base import CommandResult, Invocation
from simphone.handset import Handset
from simphone.serve import SimulatedPhone

from rollout.world import Shelf

ANSWER = thinks(model.answer)
SUITE = HomeSuite()


def toggles(split: Split, count: int) -> list[Task]:
    """Tasks that ask for a switch of the settings."""
    return [task for at in range(7 * count) if (task := SUITE.task(at, 5, split)).family == "toggle"]


@pytest.fixture
def configured(
    adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings, tmp_path: Path
) -> Callable[..., Config]:
    def configure(url: str, **more: Any) -> Config:
        devices = timeouts.model_copy(update={"addresses": (phone.address,), "directory": tmp_path / "leases"})
        asked = AppAgentSettings.model_validate(
            {"endpoint": url, "model": "m", "requests_per_minute": 60_000, "timeout_s": 60.0, "rounds": 8} | more
        )
        return Config(adb=adb.adb, devices=devices, appagent=asked)

    return configure


Play = Callable[..., tuple[Trajectory, Agent]]


@pytest.fixture
def play(configured: Callable[..., Config]) -> Play:
    def play(server: Server, task: Task, notes: Any = None, **more: Any) -> tuple[Trajectory, Agent]:
        config = configured(server.url, **more)
        agent = Agent(config.appagent, Endpoint(config.appagent, "appagent"), notes or {})
        with Phones(config) as phones, phones.lease(LONG_S) as leased:
            assert leased is not None
            decider = attempt_on(agent, leased, "ab" * 32)
            return Episode("w", Shelf().keep, checked).run(task, "a", leased, decider), agent

    return play


def test_it_does_home_tasks_by_what_the_prompt_says_alone(play: Play) -> None:
    with serving(ANSWER) as server:
        for task in toggles(Split.TEST, 3):
            server.requests.clear()
            done, agent = play(server, task)
            assert (done.outcome, done.outcome_source) == (Outcome.SUCCESS, "ground-truth")
            assert done.steps[-1].action.kind is ActionKind.COMPLETE
            assert len(server.requests) == len(done.steps)
            assert agent.counters == {"decisions": len(done.steps)}


def test_what_its_prompt_holds(play: Play) -> None:
    (task,) = toggles(Split.TEST, 1)
    with serving(ANSWER) as server:
        play(server, task)
        first, second, *_ = server.requests
    told = model.about(first)
    assert (told["task"], told["app"], told["done_so_far"]) == (task.instruction, "com.sim.launcher", "")
    assert [each["number"] for each in told["elements"]] == list(range(1, 9))
    assert {each["text"] for each in told["elements"]} >= {"settings", "browser", "shop"}
    assert model.about(second)["done_so_far"] == "opened the app"
    assert model.about(second)["app"] == "com.sim.settings"
    assert task.instruction not in model.rules(first), "the task is data"
    (picture,) = model.pictures(first)
    assert picture.size == (512, 1024)


def test_its_steps_say_what_acted_and_no_more(play: Play) -> None:
    (task,) = toggles(Split.TEST, 1)
    with serving(ANSWER) as server:
        done, _ = play(server, task)
    assert decode(encode(done), Trajectory) == done
    for step in done.steps:
        assert (step.version, step.version_sha256) == (PROMPTED, "ab" * 32)
        assert (step.prompt_ids, step.action_ids, step.logprob) == ((), (), 0.0)
        assert step.policy_ms > 0
    assert "DUAL_POINT" in done.steps[0].action_text


def test_an_endpoint_that_stumbles_is_asked_again(play: Play) -> None:
    (task,) = toggles(Split.TEST, 1)
    at_once = {"Retry-After": "0"}
    said = [(b"slow down", 429), (b"broken", 500), (b"<html>a proxy", 200)]
    stumbles = [hangs_up, *(body(words, status, at_once) for words, status in said)]
    with serving(*stumbles, ANSWER) as server:
        done, agent = play(server, task, timeout_s=30.0)
        assert len(server.requests) == len(stumbles) + len(done.steps)
    assert done.outcome is Outcome.SUCCESS
    assert agent.counters == {"decisions": len(done.steps)}


def test_text_that_the_phone_cannot_type_is_recorded_as_refused_and_reported_to_the_model(play: Play) -> None:
    (task,) = toggles(Split.TEST, 1)
    with serving(says(model.acts('text("caf\u00e9")')), ANSWER) as server:
        done, _ = play(server, task)
        first, second, *_ = server.requests
    assert done.outcome is Outcome.SUCCESS
    assert [step.held_back is HeldBack.REFUSED for step in done.steps] == [True] + [False] * (len(done.steps) - 1)
    assert (done.steps[0].action.kind, done.steps[0].action.text) == (ActionKind.TYPE, "caf\u00e9")
    assert "your_last_answer_was_no_action" not in model.about(first)
    assert model.about(second)["your_last_answer_was_no_action"] == REFUSED


def test_what_is_no_action_is_recorded_as_invalid_reported_to_the_model_and_ends_no_episode(play: Play) -> None:
    (task,) = toggles(Split.TEST, 1)
    bad = [
        (says("Sure, I would tap the settings icon."), "Sure, I would"),
        (says(model.acts("tap(99)")), "tap(99,)"),
        (says(model.acts("tap(0)")), "tap(0,)"),
        (says(model.acts("long_press(1)")), "long_press(1)"),
        (says(""), ""),
        (body(b"filtered", 400), "the endpoint does not"),
        (says(json.dumps({"action": "\ud800"})), ""),
    ]
    with serving(*(reply for reply, _ in bad), ANSWER) as server:
        done, agent = play(server, task)
        asked = [model.about(each) for each in server.requests]
    assert done.outcome is Outcome.SUCCESS
    assert agent.counters["invalid"] == len(bad)
    for step, (_, text) in zip(done.steps, bad, strict=False):
        assert step.action.kind is ActionKind.INVALID
        assert step.action.text.startswith(text)
    told = ["your_last_answer_was_no_action" in each for each in asked]
    assert told == [False, *[True] * len(bad), *[False] * (len(asked) - len(bad) - 1)]
    assert decode(encode(done), Trajectory) == done


def test_a_model_that_says_nothing_interrupts_and_is_given_up_after_a_while(play: Play) -> None:
    (task,) = toggles(Split.TEST, 1)

    def is_given_up(seconds: float) -> None:
        with serving(ANSWER) as server:
            server.replies[:] = [ANSWER, body(b"", 500)]
            done, agent = play(server, task, timeout_s=seconds)
            assert done.outcome is Outcome.INTERRUPTED
            assert len(done.steps) == 1, "what was done stands"
            assert "no answer" in done.note
            assert agent.failure is None
            for _ in range(SILENT - 1):
                with pytest.raises(ChatError):
                    agent.ask({})
            assert agent.failure is not None
            asked = len(server.requests)
            with pytest.raises(ChatError):
                agent.ask({})
            assert len(server.requests) == asked

    given_time(is_given_up, (0.3, 5.0, LONG_S))


def test_credentials_that_are_refused_are_reported_before_a_phone_is_touched(configured: Callable[..., Config]) -> None:
    with serving(body(b"who are you", 401)) as server, pytest.raises(ChatError) as told:
        ready_endpoint(configured(server.url), pictures=1)
    assert "appagent.api_key" in told.value.hint
    with pytest.raises(ChatError, match=r"appagent\.endpoint"):
        ready_endpoint(Config(), pictures=1)
    with serving(body(b"one picture at the most", 400)) as server, pytest.raises(ChatError, match="one picture"):
        ready_endpoint(configured(server.url), pictures=2)
    with serving(body(b"", 500)) as server, pytest.raises(ChatError, match="no answer"):
        ready_endpoint(configured(server.url, timeout_s=0.2), pictures=1)


async def never_rests(phone: Handset, call: Invocation) -> CommandResult:
    return CommandResult(stderr=b"ERROR: could not get idle state.\n")


def on_grid(asked: model.Asked) -> str:
    """Touches the middle of the screen, then says that it is done."""
    told = model.about(asked)
    if told["done_so_far"]:
        return model.acts("FINISH")
    grid = told["grid"]
    return model.acts(f'tap({grid["columns"] * (grid["rows"] // 2) + 1}, "center")', "touched")


def test_without_elements_the_grid_has_to_do(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "uiautomator", never_rests)  # type: ignore[misc]
    with serving(thinks(on_grid)) as server:
        done, agent = play(server, toggles(Split.TEST, 1)[0])
        assert {model.rules(asked) for asked in server.requests} == {prompt.ON_GRID}
    assert [step.action.kind for step in done.steps] == [ActionKind.TAP, ActionKind.COMPLETE]
    assert agent.counters == {"decisions": 2, "on_grid": 2, "grid_instead": 2}


def test_the_grid_alone_asks_the_phone_for_no_elements(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def must_not(phone: Handset, call: Invocation) -> CommandResult:
        raise AssertionError("nobody needs it")

    monkeypatch.setitem(COMMANDS, "uiautomator", must_not)  # type: ignore[misc]
    with serving(thinks(on_grid)) as server:
        done, agent = play(server, toggles(Split.TEST, 1)[0], mode="grid")
    assert [step.action.kind for step in done.steps] == [ActionKind.TAP, ActionKind.COMPLETE]
    assert agent.counters == {"decisions": 2, "on_grid": 2}


def test_the_model_may_ask_for_the_grid_itself(play: Play) -> None:
    def answer(asked: model.Asked) -> str:
        return model.acts("grid()") if "elements" in model.about(asked) else model.acts('tap(3, "top")')

    with serving(thinks(answer)) as server:
        done, agent = play(server, toggles(Split.TEST, 1)[0])
        assert len(server.requests) == 2 * len(done.steps), "on the same screen"
    assert {step.action.kind for step in done.steps} == {ActionKind.TAP}
    assert agent.counters["on_grid"] == len(done.steps)


def test_what_exploration_finds_out_is_reported_at_test_time(
    configured: Callable[..., Config], play: Play, tmp_path: Path
) -> None:
    path = tmp_path / "notes.json"
    explored, held_out = toggles(Split.TRAIN, 1), toggles(Split.TEST, 1)
    with serving(ANSWER) as server:
        config = configured(server.url, notes=path)
        steps: list[tuple[int, int]] = []
        found = explore(config, explored, Event(), lambda *at: steps.append(at))
        reflections = [asked for asked in server.requests if model.rules(asked) == prompt.REFLECT]
        assert (found.before, found.tasks, found.interrupted) == (0, 1, 0)
        assert steps == [(0, 1), (1, 1)]
        assert all(len(model.pictures(asked)) == 2 for asked in reflections)
        assert "notes" not in {
            key for asked in server.requests[1:] for each in model.about(asked).get("elements", []) for key in each
        }, "exploration knows none"
        notes = load(path)
        assert notes["com.sim.launcher"]["com.sim.launcher:id/icon settings"] == {"tap": "The element opens an app."}
        assert found.notes == found.counters["reflections"] == len(reflections) >= 2

        server.requests.clear()
        done, _ = play(server, held_out[0], notes)
        told = [each for each in model.about(server.requests[0])["elements"] if "notes" in each]
    assert done.outcome is Outcome.SUCCESS
    assert [(each["text"], each["notes"]) for each in told] == [("settings", {"tap": "The element opens an app."})]


def test_exploration_goes_back_and_leaves_alone_what_led_nowhere(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    offered: list[list[str]] = []

    def answer(asked: model.Asked) -> str:
        told = model.about(asked)
        if model.rules(asked) == prompt.REFLECT:
            return "Decision: BACK\nThought: wrong\nDocumentation: It opens something else."
        offered.append([each["text"] for each in told.get("elements", [])])
        return model.acts("tap(1)")

    with serving(thinks(answer)) as server:
        config = configured(server.url, notes=tmp_path / "n.json", rounds=6)
        explore(config, exploration_tasks(config, 1, ["look around"]), Event(), lambda *at: None)
    first, *later = offered[1:]  # the first question tries the endpoint out
    assert len(first) == 8
    assert [each[0] for each in later] == [first[at] for at in range(1, len(later) + 1)], "each is tried once"
    (notes,) = load(tmp_path / "n.json").values()
    assert len(notes) == len(offered) - 1 == 3


def test_what_does_nothing_is_seen_without_asking_and_not_noted(
    configured: Callable[..., Config], tmp_path: Path
) -> None:
    with serving(says(model.acts('swipe(1, "down", "short")'))) as server:
        config = configured(server.url, notes=tmp_path / "n.json", rounds=4)
        found = explore(config, exploration_tasks(config, 1, ["look around"]), Event(), lambda *at: None)
        assert prompt.REFLECT not in map(model.rules, server.requests)
    assert found.notes == 0
    assert found.counters["decisions"] == 4


def test_exploration_adds_to_the_notes_that_there_are(configured: Callable[..., Config], tmp_path: Path) -> None:
    path = tmp_path / "n.json"
    save(path, with_note({}, "com.other", "e", "tap", "kept"))
    with serving(ANSWER) as server:
        found = explore(configured(server.url, notes=path), toggles(Split.TRAIN, 1), Event(), lambda *at: None)
    assert found.before == 1
    assert load(path)["com.other"]["e"]["tap"] == "kept"
    assert len(load(path)) == 3


def test_exploration_that_cannot_note_anything_is_refused(configured: Callable[..., Config], tmp_path: Path) -> None:
    url = "http://127.0.0.1:9/v1"
    for more, said in (({}, "is not set"), ({"mode": "grid", "notes": tmp_path / "n"}, "grid has none")):
        with pytest.raises(ConfigError, match=said):
            explore(configured(url, **more), toggles(Split.TRAIN, 1), Event(), lambda *at: None)


def test_exploration_tries_training_tasks(configured: Callable[..., Config]) -> None:
    config = configured("http://127.0.0.1:9/v1")
    chosen = exploration_tasks(config, 9, ())
    assert [task.split for task in chosen] == [Split.TRAIN] * 9
    assert {task.max_steps for task in chosen} == {8}
    with pytest.raises(ConfigError, match=r"--instruction: .* held out"):
        exploration_tasks(config, 9, ["open the mails", SUITE.task(0, 1, Split.TEST).instruction])
    (own,) = exploration_tasks(config, 9, ["open the mails"])
    assert (own.split, own.max_steps) == (Split.TRAIN, 8)
    assert own.instruction == "open the mails"
    assert own.setup == "{}"


def test_what_decides_is_named_by_its_description() -> None:
    settings, notes = AppAgentSettings(model="m"), with_note({}, "com.a", "e", "tap", "opens")
    named = identity.description(settings, notes)
    assert identity.named(named) == "AppAgent, m, elements, 1 notes"
    served = AppAgentSettings(model="m", endpoint="https://elsewhere/v1", api_key="s3cret", timeout_s=9)
    assert identity.description(served, notes) == named, "by whom it is served is not what it is"
    others = [(AppAgentSettings(model="n"), notes), (AppAgentSettings(model="m", mode="grid"), notes), (settings, {})]
    assert len({named, *(identity.description(*other) for other in others)}) == 4
    for garbage in (b"", b"[]", b"{}", b'{"notes": 5}', b"\xff", b"[" * 100_000):
        with pytest.raises(ValueError, match=r"."):
            identity.named(garbage)
