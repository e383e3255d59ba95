"""Demonstrations by hand: what a page asks for, over HTTP, on a simulated phone behind a real adb server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from device.conftest import hurried
from device.test_play import JSON, Browser
from distrl.config import Config, DeviceSettings
from distrl.demonstrations import human as record_module
from distrl.demonstrations.human import FREE, PERSON, Recorder, offered_tasks, recorder_of
from distrl.device import keyboard
from distrl.device.allow_list import PackageAllowList
from distrl.device.play import PlayServer
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.learner.fold import is_usable
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.rollout.episode import GROUND_TRUTH, Episode
from distrl.rollout.phones import SessionPhone
from distrl.rollout.wiring import TRUTH
from distrl.tasks.held_out import held_out
from distrl.tasks.oracle import oracle
from distrl.tasks.suite import HomeSuite
from distrl.types import SCRIPTED, Action, ActionKind, LogPosition, ObjectRef, Outcome, Point, Split, Trajectory
from rollout.world import Shelf
from simphone.faults import Fault
from simphone.machine import Open
from simphone.serve import SimulatedPhone
from simphone.words import ALL

CODEC = WordTokenizer(ALL)


@dataclass
class Topic:
    """Acknowledges at once, unless `holds`; refuses with `fails`."""

    taken: list[Trajectory] = field(default_factory=list)
    holds: bool = False
    fails: BrokerError | None = None
    waiting: list[Future[LogPosition]] = field(default_factory=list)

    def publish(self, record: Trajectory) -> Future[LogPosition]:
        future: Future[LogPosition] = Future()
        if self.fails is not None:
            future.set_exception(self.fails)
            return future
        self.taken.append(record)
        self.waiting.append(future)
        if not self.holds:
            self.answer()
        return future

    def answer(self) -> None:
        while self.waiting:
            self.waiting.pop().set_result(LogPosition("demonstrations", 0, len(self.taken) - 1))


class AwayShelf(Shelf):
    away = False

    def keep(self, png: bytes) -> ObjectRef:
        if self.away:
            raise StoreError("store.url", "is away", "bring it back")
        return super().keep(png)


class Person(Browser):
    """What a person at the page does."""

    def post(self, what: str, **asked: object) -> tuple[int, Any]:
        status, said, _ = self.ask("POST", f"{self.path}{what}", json.dumps(asked).encode(), JSON)
        return status, json.loads(said) if status == 200 else said.decode()

    def state(self) -> Any:
        status, said, _ = self.ask("GET", f"{self.path}recording")
        assert status == 200
        return json.loads(said)

    def does(self, action: Action) -> int:
        places = {name: [at.x, at.y] for name, at in (("touch", action.touch), ("lift", action.lift)) if at}
        text = {"text": action.text} if action.kind is ActionKind.TYPE else {}
        return self.act(kind=action.kind.value, **places, **text)


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def shelf() -> AwayShelf:
    return AwayShelf()


@pytest.fixture
def session(adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings) -> AdbSession:
    adb.connect(phone.address)
    return AdbSession(adb, phone.address, timeouts)


@pytest.fixture
def person(session: AdbSession, timeouts: DeviceSettings, topic: Topic, shelf: AwayShelf) -> Iterator[Person]:
    recorder = Recorder(
        SessionPhone(session, PackageAllowList(session, timeouts)),
        CODEC,
        Episode("play", shelf.keep, TRUTH, is_expert=True),
        offered_tasks(Config()),
        held_out(Config().feeder),
        topic.publish,
    )
    with PlayServer(session, recorder=recorder) as played:
        yield Person(played)


def test_a_task_of_the_suite_is_recorded_as_the_script_s_would_be_and_the_learner_can_use_it(
    person: Person, phone: SimulatedPhone, topic: Topic, shelf: AwayShelf
) -> None:
    number = 3
    task = offered_tasks(Config())[number]
    assert person.state()["tasks"][number] == task.instruction
    status, state = person.post("record", task=number)
    assert (status, state["recording"]["steps"], state["recording"]["instruction"]) == (200, 0, task.instruction)
    while (action := oracle(task, phone.machine.state())).kind is not ActionKind.COMPLETE:
        assert person.does(action) == 204
    status, told = person.post("done", well=True)
    assert (status, told["outcome"], told["source"], told["offset"]) == (200, "success", GROUND_TRUTH, 0)
    (made,) = topic.taken
    assert (made.is_expert, made.outcome, made.task.split) == (True, Outcome.SUCCESS, Split.TRAIN)
    assert made.task_id.startswith("played-"), "the ids of the script's stay free"
    assert (made.task.family, made.task.params, made.task.setup) == (task.family, task.params, task.setup)
    assert made.steps[-1].action.kind is ActionKind.COMPLETE
    assert is_usable(made, CODEC)
    actions = [step.action for step in made.steps]
    for index, step in enumerate(made.steps):
        assert CODEC.decode_action(step.action_ids) == step.action
        assert step.prompt_ids == CODEC.encode_prompt(task.instruction, actions[:index])
        assert (step.logprob, step.version, step.version_sha256) == (0.0, SCRIPTED, "")
        assert step.screenshot.sha256 in shelf.objects
    assert made.final_screenshot is not None
    assert shelf.objects[made.final_screenshot.sha256] == phone.machine.png()
    assert person.state()["recording"] is None


def test_a_tap_is_done_and_recorded_in_the_middle_of_its_cell_and_a_drag_as_one_of_four(
    person: Person, topic: Topic
) -> None:
    person.post("record", instruction="look at the page")
    assert person.act(kind="tap", touch=[0.01, 0.99]) == 204
    assert person.act(kind="swipe", touch=[0.3, 0.9], lift=[0.35, 0.4]) == 204
    person.post("done", well=False)
    tap, swipe = topic.taken[0].steps
    assert tap.action.touch == Point(0.5 / 8, 15.5 / 16)
    assert swipe.action == Action(ActionKind.SWIPE, Point(0.5, 0.8), Point(0.5, 0.2))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("xyzzy", "cannot be written with this base model"),
        ("Red lamp", "it would type 'red lamp'"),
        ("red  lamp", "it would type 'red lamp'"),
        ("red, lamp", "it would type 'red lamp'"),
        ("café", "cannot be written"),
        ("red lamp red lamp red", "cannot be written"),
        ("", "cannot be written"),
        ("<tap>", "cannot be written"),
    ],
)
def test_what_the_tokens_cannot_say_is_refused_and_neither_done_nor_recorded(
    person: Person, phone: SimulatedPhone, text: str, why: str
) -> None:
    person.post("record", instruction="write a note")
    before = phone.machine.state()
    status, said = person.post("act", kind="type", text=text)
    assert (status, why in said) == (409, True), said
    assert phone.machine.state() == before
    assert person.state()["recording"]["steps"] == 0
    assert person.act(kind="type", text="red lamp") == 204


@pytest.mark.parametrize(("well", "outcome"), [(True, "success"), (False, "failure")])
def test_of_a_task_without_a_check_the_person_s_word_counts(
    person: Person, topic: Topic, well: bool, outcome: str
) -> None:
    person.post("record", instruction="  look at   the clock ")
    person.act(kind="home")
    status, told = person.post("done", well=well)
    assert (status, told["outcome"], told["source"]) == (200, outcome, PERSON)
    (made,) = topic.taken
    assert (made.task.instruction, made.task.suite) == ("look at the clock", FREE)
    kinds = [step.action.kind for step in made.steps]
    assert kinds == [ActionKind.HOME, ActionKind.COMPLETE][: 2 if well else 1], "giving up is no claim to be done"


def test_the_phone_s_state_counts_more_than_the_person_s_word(person: Person, topic: Topic) -> None:
    person.post("record", task=0)
    assert person.post("done", well=True)[1]["outcome"] == "failure"
    assert topic.taken[0].outcome_source == GROUND_TRUTH


def test_what_is_done_before_and_after_a_demonstration_is_in_none(
    person: Person, phone: SimulatedPhone, topic: Topic
) -> None:
    assert person.act(kind="type", text="Anything") == 204
    person.post("record", instruction="close the page")
    person.act(kind="home")
    person.post("discard")
    assert (topic.taken, person.state()["recording"]) == ([], None)
    person.act(kind="back")
    person.post("record", instruction="close the page")
    person.act(kind="home")
    person.post("done", well=True)
    assert [len(each.steps) for each in topic.taken] == [2]


def test_what_is_no_task_is_refused(person: Person) -> None:
    refused: list[tuple[dict[str, object], str]] = [
        ({"task": 28}, "there is no task 28"),
        ({"task": -1}, "there is no task -1"),
        ({"task": True}, "there is no task True"),
        ({"task": [0]}, "there is no task"),
        ({}, "`instruction` is no text"),
        ({"instruction": "  "}, "0 characters"),
        ({"instruction": "x" * 2001}, "2001 characters"),
        ({"instruction": "a\u200bb"}, "invisible character U+200B"),
    ]
    for asked, why in refused:
        status, said = person.post("record", **asked)
        assert (status, why in said) == (409, True), said
        assert person.state()["recording"] is None


def test_an_instruction_that_the_base_model_cannot_read_is_refused(person: Person, topic: Topic) -> None:
    status, said = person.post("record", instruction="Book a zeppelin in Uqbar")
    assert (status, person.state()["recording"]) == (409, None)
    assert "the base model lacks 2 words of the instruction: uqbar, zeppelin" in said
    assert "with --words FILE" in said
    assert person.post("record", instruction="Look at the clock!")[0] == 200


@pytest.mark.parametrize("split", [Split.VALIDATION, Split.TEST])
def test_a_held_out_task_is_demonstrated_by_nobody(person: Person, split: Split) -> None:
    task = HomeSuite().task(0, 5, split)
    status, said = person.post("record", instruction=task.instruction.upper())
    assert (status, "which is held out" in said, person.state()["recording"]) == (409, True, None)


def test_what_makes_no_sense_now_is_refused(person: Person) -> None:
    for what in ("done", "discard"):
        status, said = person.post(what, well=True)
        assert (status, what == "discard" or "press record first" in said) == (200 if what == "discard" else 409, True)
    person.post("record", instruction="close the page")
    assert "under way" in person.post("record", task=0)[1]
    assert "nothing was done yet" in person.post("done", well=False)[1]
    assert person.ask("POST", f"{person.path}record", b"[]", JSON)[0] == 400
    assert person.ask("POST", f"{person.path}done", b"{", JSON)[0] == 400


def test_once_the_steps_are_used_up_no_further_action_is_done(
    person: Person, phone: SimulatedPhone, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "FREE_STEPS", 2)
    person.post("record", instruction="go on")
    for _ in range(2):
        assert person.act(kind="home") == 204
    assert person.state()["recording"]["over"]
    status, said = person.post("act", kind="tap", touch=[0.5, 0.5])
    assert (status, "its 2 steps are used up" in said) == (409, True)
    assert person.post("done", well=True)[0] == 200
    assert len(topic.taken[0].steps) == 2


def test_a_broker_that_is_away_loses_no_demonstration_and_gets_it_once(
    person: Person, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_module, "ACKNOWLEDGE_S", 0.05)
    person.post("record", instruction="close the page")
    person.act(kind="home")
    topic.fails = BrokerError("kafka", "not allowed", "give the right")
    assert person.post("done", well=True)[0] == 503
    topic.fails, topic.holds = None, True
    status, said = person.post("done", well=True)
    assert (status, "not acknowledged within" in said) == (503, True)
    assert person.state()["recording"]["over"]
    assert person.act(kind="home") == 409
    assert "waits for Kafka" in person.post("discard")[1]
    topic.answer()
    assert person.post("done", well=True)[1]["outcome"] == "success"
    assert len(topic.taken) == 1
    assert person.state()["recording"] is None


def test_what_the_allow_list_drops_is_reported_and_no_part_of_a_demonstration(
    session: AdbSession, timeouts: DeviceSettings, topic: Topic, shelf: AwayShelf, phone: SimulatedPhone
) -> None:
    fenced = timeouts.model_copy(update={"allowed_packages": ("com.sim.settings",)})
    apply = phone.machine.apply
    kept: list[bytes] = []

    def keep(png: bytes) -> ObjectRef:
        kept.append(png)
        if len(kept) == 2:  # a person looks at the second screen: meanwhile another app comes to the front
            apply(Open("clock"))
        return shelf.keep(png)

    recorder = Recorder(
        SessionPhone(session, PackageAllowList(session, fenced)),
        CODEC,
        Episode("play", keep, TRUTH, is_expert=True),
        [],
        held_out(Config().feeder),
        topic.publish,
    )
    with PlayServer(session, recorder=recorder) as played:
        person = Person(played)
        person.post("record", instruction="close the page")
        assert person.act(kind="home") == 204
        status, said = person.post("act", kind="tap", touch=[0.5, 0.5])
        assert (status, "another app came to the front" in said) == (409, True)
        assert person.state()["recording"]["steps"] == 1
        assert person.act(kind="back") == 204
        person.post("done", well=True)
    (made,) = topic.taken
    assert [step.action.kind.value for step in made.steps] == ["home", "back", "complete"]
    assert {step.held_back.value for step in made.steps} == {"no"}
    assert "com.sim.clock (HOME), its action was not sent" in made.note


def test_where_a_screen_cannot_be_kept_its_action_is_not_done(
    person: Person, phone: SimulatedPhone, shelf: AwayShelf
) -> None:
    person.post("record", instruction="open the clock")
    before, shelf.away = phone.machine.state(), True
    status, said = person.post("act", kind="tap", touch=[0.5, 0.5])
    assert (status, "is away" in said) == (503, True)
    assert phone.machine.state() == before
    shelf.away = False
    assert person.act(kind="home") == 204
    shelf.away = True
    assert person.post("done", well=True)[0] == 503
    shelf.away = False
    assert person.post("done", well=True)[1]["steps"] == 2


def test_what_the_phone_cannot_type_is_reported_and_no_part_of_a_demonstration(
    person: Person, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    person.post("record", instruction="close the page")
    before = phone.machine.state()
    with monkeypatch.context() as short:
        short.setattr(keyboard, "MAX_CHARACTERS", 2)
        status, said = person.post("act", kind="type", text="red")
    assert (status, "the phone cannot do this; nothing was done" in said) == (409, True)
    assert phone.machine.state() == before
    assert person.act(kind="home") == 204
    assert person.post("done", well=True)[1]["steps"] == 2, "the home key and the end"


def test_what_a_phone_interrupts_is_no_demonstration(
    person: Person, session: AdbSession, phone: SimulatedPhone, topic: Topic
) -> None:
    person.post("record", instruction="close the page")
    phone.faults.set(Fault.SILENT)
    with hurried(session):
        status, said = person.post("act", kind="home")
    assert (status, "the phone failed" in said) == (409, True)
    assert person.state()["recording"]["failed"].startswith("DeviceTimeout")
    assert person.post("done", well=True)[0] == 409
    phone.faults.clear()
    assert person.post("discard")[0] == 200
    assert topic.taken == []
    assert person.post("record", instruction="close the page")[0] == 200


def test_a_page_without_a_recorder_says_how_one_is_had(session: AdbSession) -> None:
    with PlayServer(session) as played:
        person = Person(played)
        assert person.ask("GET", f"{person.path}recording")[0] == 204
        status, said = person.post("record", task=0)
        assert (status, "--record" in said) == (400, True)
        assert person.act(kind="home") == 204


def test_an_emulator_that_a_worker_would_put_back_to_its_snapshot_is_refused(
    adb: AdbServer, timeouts: DeviceSettings, topic: Topic, tmp_path: Path
) -> None:
    emulators = {"avd": "small", "count": 2, "snapshot": "ready"}
    config = Config.model_validate({"devices": {"emulators": emulators}, "store": {"url": f"file://{tmp_path}"}})
    with pytest.raises(ConfigError, match="emulator-5556 would not begin at its snapshot"):
        recorder_of(config, AdbSession(adb, "emulator-5556", timeouts), topic.publish)
    assert not recorder_of(config, AdbSession(adb, "emulator-5558", timeouts), topic.publish).recording


def test_a_short_list_is_offered_once(tmp_path: Path) -> None:
    (tmp_path / "own_train.jsonl").write_text("".join(f'{{"instruction": "do {each}"}}\n' for each in ("a", "b", "c")))
    config = Config.model_validate({"feeder": {"tasks": tmp_path / "own_train.jsonl"}})
    assert sorted(task.instruction for task in offered_tasks(config)) == ["do a", "do b", "do c"]
    assert len({task.instruction for task in offered_tasks(Config())}) == len(offered_tasks(Config())) > 20
