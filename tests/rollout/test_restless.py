"""Episodes on phones whose screens never rest, behind a real adb server: a stopwatch, what plays, a blinking cursor."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from device.conftest import LONG_S, StartPhones, given_time
from distrl.appagent.agent import AgentEpisode
from distrl.config import Config, DeviceSettings
from distrl.demonstrations.scripted import Scripted
from distrl.device.screenshot import verified
from distrl.device.server import AdbServer
from distrl.policy.autoui.pretraining.screens import phone_tokenizer
from distrl.rollout.actor_pool import play_all
from distrl.rollout.episode import GROUND_TRUTH, Episode, Phone
from distrl.rollout.phones import Phones, SessionPhone
from distrl.rollout.vocabulary import words_of_all_suites
from distrl.rollout.wiring import TRUTH
from distrl.tasks.oracle import ImperfectScript
from distrl.tasks.suite import suites
from distrl.types import DeviceHealth, ObjectRef, Outcome, Split, Task, Trajectory
from simphone.commands import screen
from simphone.machine import Open
from simphone.serve import SimulatedPhone

from rollout.world import Shelf


@pytest.fixture
def phone(start_phones: StartPhones) -> SimulatedPhone:
    return start_phones(1, profiles=("moving",))[0]


def of_family(suite: str, family: str, instruction: str) -> Task:
    """A task of that family, in the paper's words."""
    tasks = (suites()[suite].task(index, 0, Split.TRAIN) for index in range(1_000))
    return replace(next(task for task in tasks if task.family == family), instruction=instruction)


WATCH = of_family("general", "watch", "Run the stopwatch")
MUSIC = of_family("general", "music", "Play some music")
NOTE = of_family("general", "note", "Write a note")


@dataclass
class Played:
    trajectories: list[Trajectory]
    health: DeviceHealth
    shelf: Shelf

    def shot(self, ref: ObjectRef | None) -> bytes:
        assert ref is not None
        return self.shelf.objects[ref.sha256]


Play = Callable[..., Played]


@pytest.fixture
def play(adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings, tmp_path: Path) -> Play:
    """Has the script play each task once, as a worker's actors do; none is played again."""

    def played(settle_s: float, *tasks: Task) -> Played:
        devices = timeouts.model_copy(
            update={"addresses": (phone.address,), "settle_timeout_s": settle_s, "directory": tmp_path}
        )
        shelf, found = Shelf(), list[Trajectory]()
        codec, episode = phone_tokenizer(words_of_all_suites(phone_tokenizer())), Episode("w", shelf.keep, TRUTH)

        def one(task: Task, phone: Phone) -> Trajectory:
            return episode.run(task, "a", phone, Scripted(ImperfectScript(0, random_share=0.0, stop_share=0.0), codec))

        with Phones(Config(adb=adb.adb, devices=devices)) as phones:
            play_all(
                tasks,
                phones,
                one,
                found.append,
                worker="w",
                retries=0,
                drain_s=1.0,
                stop=threading.Event(),
                give_up=threading.Event(),
            )
            (health,) = phones.health()
        return Played(found, health, shelf)

    return played


def well(health: DeviceHealth) -> bool:
    counted = health.counters
    return health.state == "idle" and not any(
        counted[name] for name in ("interrupted", "quarantines", "app_recoveries")
    )


def test_the_papers_tasks_whose_screens_never_rest_are_judged_and_the_phone_stays_well(play: Play) -> None:
    def are_judged(seconds: float) -> None:
        played = play(seconds, WATCH, MUSIC)
        assert well(played.health)
        for task, trajectory in zip((WATCH, MUSIC), played.trajectories, strict=True):
            assert (trajectory.task.instruction, trajectory.note) == (task.instruction, "")
            assert (trajectory.outcome, trajectory.outcome_source) == (Outcome.SUCCESS, GROUND_TRUTH)
            assert not trajectory.steps[0].restless, "the home screen rests"
            assert trajectory.steps[-1].restless, "it was seen to move, and said that it is done"
            assert trajectory.final_restless
            for ref in (*(step.screenshot for step in trajectory.steps), trajectory.final_screenshot):
                assert verified(played.shot(ref))

    given_time(are_judged)


def test_a_cursor_that_blinks_between_any_two_looks_interrupts_nothing(play: Play, phone: SimulatedPhone) -> None:
    phone.handset.clock = itertools.count(0, 0.5).__next__

    def goes_on(seconds: float) -> None:
        played = play(seconds, NOTE)
        (trajectory,) = played.trajectories
        assert (trajectory.outcome, well(played.health)) == (Outcome.SUCCESS, True)
        moved = [step.restless for step in trajectory.steps]
        assert any(moved)
        assert not all(moved)

    given_time(goes_on)


@pytest.mark.parametrize("idle_s", [0.0, 60.0], ids=["gives up", "takes too long"])
def test_an_app_that_draws_without_end_has_no_elements_and_a_prompted_agent_takes_the_grid(
    adb: AdbServer,
    phone: SimulatedPhone,
    timeouts: DeviceSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    idle_s: float,
) -> None:
    from distrl.appagent.agent import Agent
    from distrl.chat.endpoint import Endpoint
    from distrl.config import AppAgentSettings

    monkeypatch.setattr(screen, "IDLE_S", idle_s)

    def takes_the_grid(seconds: float) -> None:
        settings = AppAgentSettings(endpoint="http://127.0.0.1:1", model="m", dump_timeout_s=seconds)
        agent = Agent(settings, Endpoint(settings, "appagent"), {})
        devices = timeouts.model_copy(
            update={"addresses": (phone.address,), "directory": tmp_path, "settle_timeout_s": seconds}
        )
        with Phones(Config(adb=adb.adb, devices=devices)) as phones, phones.lease(LONG_S) as leased:
            assert isinstance(leased, SessionPhone)
            leased.reset(WATCH)
            attempt = AgentEpisode(agent, lambda: leased.hierarchy(settings.dump_timeout_s))
            assert attempt.look(leased.settle().png) is not None, "the home screen has elements"
            playing = phone.machine.state()["data"]["clock"] | {"watching": True}
            phone.machine.apply(Open("clock"))
            show(phone, "clock/stopwatch", clock=playing)
            seen = leased.settle()
            assert (seen.restless, attempt.look(seen.png)) == (True, None)
            assert agent.counters["grid_instead"] == 1
            assert leased.failure is None

    given_time(takes_the_grid, (2.0, LONG_S))


def show(phone: SimulatedPhone, screen: str, **data: object) -> None:
    now = phone.machine._now
    phone.machine._now = replace(now, screen=screen, data={**now.data, **data})
