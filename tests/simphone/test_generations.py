"""The same phone in another look: everything moves, and nothing that a task depends on does."""

import asyncio
import json
from collections import defaultdict

import pytest
from distrl.tasks.gestures import event_of
from distrl.tasks.oracle import oracle
from distrl.tasks.outcome import succeeded
from distrl.tasks.suite import suites
from distrl.types import Action, ActionKind, Split
from simphone import lexicon
from simphone.element import HEIGHT, WIDTH
from simphone.fleet import FleetSettings
from simphone.gallery import walk
from simphone.generations import MOVED, NAMES, NEWEST, RECOLOURED, RENAMED, RESTYLED
from simphone.machine import PhoneMachine, Tap, Text, draw, fresh, widgets
from simphone.serve import SimulatedPhone
from simphone.state import State
from simphone.words import COLOURS, FIRST_NAMES, HOURS, NOUNS, SITES, SWITCHES

SUITE = suites()["home"]


@pytest.mark.parametrize("generation", range(NEWEST + 1))
def test_the_oracle_does_every_task_in_every_generation(generation: int) -> None:
    won: dict[str, list[bool]] = defaultdict(list)
    for index in range(70):
        task = SUITE.task(index, 0, Split.TEST)
        phone = PhoneMachine(task.phone_seed, 0.1, generation)
        phone.reset(task.phone_seed, json.loads(task.setup))
        for _ in range(task.max_steps):
            action = oracle(task, phone.state())
            if action.kind is ActionKind.COMPLETE:
                break
            _do(phone, action)
        won[task.family].append(succeeded(task, phone.state()))
    assert len(won) == len(SUITE.families)
    assert {family: sum(each) / len(each) for family, each in won.items()} == dict.fromkeys(won, 1.0)


def test_phones_take_turns_with_the_generations_of_a_fleet() -> None:
    async def looks(settings: FleetSettings) -> list[bytes]:
        return [SimulatedPhone(settings, number, "127.0.0.1").machine.png() for number in range(4)]

    turns = asyncio.run(looks(FleetSettings(generations=(0, MOVED))))
    old, new = (asyncio.run(looks(FleetSettings(generation=each))) for each in (0, MOVED))
    assert turns == [old[0], new[1], old[2], new[3]]
    assert old[1] != new[1]


@pytest.mark.parametrize("generation", [RECOLOURED, MOVED, RENAMED, RESTYLED])
def test_each_generation_looks_unlike_the_one_before(generation: int) -> None:
    def screen(of: int) -> bytes:
        return draw(fresh(3, {}, 0.0, of)).tobytes()

    assert screen(generation) != screen(generation - 1)
    assert screen(generation) == screen(generation)


def test_what_was_learned_by_heart_is_wrong_on_a_moved_phone() -> None:
    old, new = (fresh(3, {}, 0.0, generation) for generation in (0, MOVED))
    icons = {element.target: element.box for element in widgets(old)}
    assert all(element.box != icons[element.target] for element in widgets(new)), "every icon is somewhere else"


def test_nothing_leaves_the_screen_or_lies_over_another_widget_in_any_generation() -> None:
    for generation in range(NEWEST + 1):
        for state in _visited(generation):
            boxes = [element.box for element in widgets(state)]
            for left, top, right, bottom in boxes:
                assert 0 <= left < right <= WIDTH
                assert 0 <= top < bottom <= HEIGHT
            for i, one in enumerate(boxes):
                assert not any(_overlap(one, other) for other in boxes[i + 1 :]), f"{state.screen} {generation}"


def test_what_tasks_name_is_never_renamed() -> None:
    things = {*COLOURS, *NOUNS, *SITES, *SWITCHES, *FIRST_NAMES, *HOURS}
    entities = (
        lexicon.PEOPLE,
        lexicon.EVENTS,
        lexicon.SONGS,
        lexicon.VIDEOS,
        lexicon.PLACES,
        lexicon.MAILS,
        lexicon.STORE_APPS,
        lexicon.WARES,
    )
    things |= {word for kind in entities for pair in kind for word in (*pair, " ".join(pair))}
    assert not {*things, *lexicon.SHOP_SITES, *lexicon.MONTHS, *lexicon.MINUTES} & set(NAMES)
    assert len(set(NAMES.values())) == len(NAMES), "two things of one name"


def test_what_a_person_typed_is_shown_as_typed() -> None:
    phone = PhoneMachine(3, 0.0, RENAMED)
    for step in ("browser", "field"):
        _tap(phone, step)
    phone.apply(Text("search"))
    fields = [e for e in widgets(State.from_json(phone.state())) if e.kind == "field"]
    assert [field.text for field in fields] == ["search"]


def _tap(phone: PhoneMachine, target: str) -> None:
    phone.apply(Tap(*next(e for e in widgets(State.from_json(phone.state())) if e.target == target).centre))


def _do(phone: PhoneMachine, action: Action) -> None:
    if (event := event_of(action)) is not None:
        phone.apply(event)


def _visited(generation: int) -> list[State]:
    states = list(walk(generation))
    for index in range(len(SUITE.families)):
        task = SUITE.task(index, 0, Split.TEST)
        phone = PhoneMachine(task.phone_seed, 0.3, generation)
        phone.reset(task.phone_seed, json.loads(task.setup))
        for _ in range(task.max_steps):
            states.append(State.from_json(phone.state()))
            _do(phone, oracle(task, phone.state()))
    return states


def _overlap(one: tuple[int, int, int, int], other: tuple[int, int, int, int]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
