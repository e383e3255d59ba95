import io
import itertools
import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phone_hand import SWIPES
from PIL import Image
from simphone import lexicon, machine, popups
from simphone.apps import REGISTRY
from simphone.element import HEIGHT, WIDTH
from simphone.gallery import walk as walk_of
from simphone.generations import NEWEST
from simphone.machine import Event, Key, Open, PhoneMachine, Swipe, Tap, Text, draw, fresh, reduce, widgets
from simphone.state import HOME, State, words_of
from simphone.words import ALL

EVENTS = st.one_of(
    st.builds(Tap, st.integers(0, WIDTH - 1), st.integers(0, HEIGHT - 1)),
    st.builds(Swipe, *[st.integers(0, 255)] * 4),
    st.builds(Text, st.text(max_size=30)),
    st.builds(Key, st.sampled_from(["BACK", "HOME", "ENTER", "DEL", "VOLUME_UP"])),
)
CELLS = [(x, y) for x in range(8, WIDTH, 16) for y in range(8, HEIGHT, 16)]


def walk(seed: int, events: list[Event], popup_probability: float = 0.2) -> list[State]:
    states = [fresh(seed, {}, popup_probability)]
    for event in events:
        states.append(reduce(states[-1], event))
    return states


def wander(seed: int, steps: int) -> list[State]:
    """A walk that reaches deep screens: it mostly taps what can be tapped."""
    rng = random.Random(seed)
    states = [fresh(seed, {}, 0.15)]
    for _ in range(steps):
        reachable = widgets(states[-1])
        event: Event = Key("BACK") if rng.random() < 0.15 or not reachable else Tap(*rng.choice(reachable).centre)
        if rng.random() < 0.1:
            event = Swipe(110, 128, 20, 128) if rng.random() < 0.5 else Swipe(64, 200, 64, 50)
        if states[-1].focused and rng.random() < 0.5:
            event = Text("red lamp")
        states.append(reduce(states[-1], event))
    return states


@given(st.integers(0, 50), st.lists(EVENTS, max_size=25))
def test_equal_events_give_equal_phones_and_the_json_is_the_whole_state(seed: int, events: list[Event]) -> None:
    first, second = walk(seed, events), walk(seed, events)
    assert first == second
    assert State.from_json(json.loads(json.dumps(first[-1].to_json()))) == first[-1]


@given(
    st.sampled_from(sorted(REGISTRY)),
    st.integers(0, NEWEST),
    st.sampled_from(["red lamp", "ebay.com", "photo hub", ": "]),
    st.lists(st.integers(0, 59), max_size=30),
)
@settings(max_examples=150, deadline=None)
def test_no_way_through_an_app_raises_and_each_state_on_it_can_be_drawn_written_and_read(
    app: str, generation: int, text: str, choices: list[int]
) -> None:
    state = reduce(fresh(len(choices), {}, 0.1, generation), Open(app))
    for choice in choices:
        reachable = widgets(state)
        if choice < 40 and reachable:
            event: Event = Tap(*reachable[choice % len(reachable)].centre)
        else:
            event = (Text(text), Key("BACK"), Key("ENTER"), *SWIPES.values())[choice % 7]
        state = reduce(state, event)
        assert State.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert draw(state).size == (WIDTH, HEIGHT)


def test_a_state_that_was_written_before_there_were_toasts_loads_and_more_apps_is_still_read() -> None:
    state = fresh(1, {}, 0.0)
    tree = json.loads(json.dumps(state.to_json()))
    old = {name: value for name, value in tree.items() if name not in ("toast", "loading")}
    old["data"] = {app: tree["data"][app] for app in ("launcher", "settings", "shop", "messages", "notes")}
    old["data"] |= {"browser": {"query": "", "result": ""}, "clock": {"alarms": []}}
    for screen in (HOME, "settings/list", "browser/results", "shop/sites", "clock/face", "messages/list", "notes/new"):
        read = State.from_json({**old, "screen": screen})
        assert draw(read).tobytes() == draw(State.from_json({**tree, "screen": screen})).tobytes()


@given(st.integers(0, 50), st.lists(EVENTS, max_size=15))
@settings(max_examples=40)
def test_whatever_happens_the_screen_can_be_drawn_and_home_is_one_key_away(seed: int, events: list[Event]) -> None:
    last = walk(seed, events)[-1]
    assert draw(last).size == (WIDTH, HEIGHT)
    home = reduce(last, Key("HOME"))
    assert home.screen == HOME
    assert not home.focused


def test_every_widget_of_every_screen_holds_the_middle_of_a_grid_cell_and_lies_on_the_screen() -> None:
    seen = set()
    for state in itertools.chain(*(wander(seed, 60) for seed in range(40)), *map(walk_of, range(NEWEST + 1))):
        seen.add(state.screen)
        for element in widgets(state):
            assert any(element.holds(x, y) for x, y in CELLS), (state.screen, element)
            left, top, right, bottom = element.box
            assert element.holds((left + right) // 32 * 16 + 8, (top + bottom) // 32 * 16 + 8), element
            assert 0 <= left < right <= WIDTH, (state.screen, element)
            assert 0 <= top < bottom <= HEIGHT, (state.screen, element)
    assert {screen.partition("/")[0] for screen in seen} >= set(REGISTRY), "the walk missed an app"
    assert {"browser/page", "shop/done", "messages/chat", "notes/new", "clock/alarms", "clock/timer"} <= seen
    assert {"browser/site", "browser/found", "browser/ware", "browser/cart", "mail/write", "maps/way"} <= seen
    assert {"contacts/new", "phone/call", "calendar/new", "media/player", "store/app", "photo hub/main"} <= seen


def test_every_word_on_a_widget_is_in_one_of_the_two_lists() -> None:
    for seed in range(10):
        for state in (*wander(seed, 60), *walk_of()):
            for element in widgets(state):
                assert set(element.label.split()) <= {*ALL, *lexicon.ALL}, element


@pytest.mark.parametrize("kind", sorted(popups.POPUPS))
def test_a_popup_hides_the_screen_and_its_close_button_back_and_home_all_close_it(kind: str) -> None:
    state = next(s for seed in range(200) for s in wander(seed, 20) if s.dialog == kind)
    assert {element.target for element in widgets(state)} == {"close", "advert"}
    close = next(element for element in widgets(state) if element.target == "close")
    for event in (Tap(*close.centre), Key("BACK"), Key("HOME")):
        assert reduce(state, event).dialog == ""
    opened = reduce(state, Tap(*next(e for e in widgets(state) if e.target == "advert").centre))
    assert opened.screen == "advert/page"
    assert reduce(opened, Key("BACK")).screen == state.screen


def test_text_goes_into_a_focused_field_alone_and_is_bounded() -> None:
    state = fresh(1, {}, 0.0)
    assert reduce(state, Text("red lamp")).typed == ""
    browser = next(element for element in widgets(state) if element.target == "browser")
    state = reduce(state, Tap(*browser.centre))
    assert reduce(state, Text("x")).typed == ""
    state = reduce(state, Tap(*widgets(state)[0].centre))
    assert reduce(state, Text("a\nb  c")).typed == "a b c"
    assert len(reduce(state, Text("a" * 10_000)).typed) == 200


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        ({"camera": {}}, "no such app: camera"),
        ({"settings": {"shows": "wifi lock"}}, "show, on"),
        ({"settings": {"show": "wifi pony"}}, "none of wifi saver"),
        ({"settings": {"show": "wifi lock", "on": "off"}}, "'off' is neither true nor false"),
        ({"settings": {"show": "wifi lock", "on": 0}}, "0 is neither true nor false"),
        ({"settings": {"on": True}}, "together with the switch"),
        ({"messages": {"contact": 7}}, "none of anna lee"),
        ({"messages": "anna lee"}, "an object of contact"),
        ({"clock": {"alarms": []}}, "nothing"),
    ],
)
def test_a_setup_that_the_phone_does_not_know_is_refused_and_changes_nothing(setup: dict[str, Any], says: str) -> None:
    phone = PhoneMachine(0, 0.0)
    before = phone.state()
    with pytest.raises(ValueError, match=says):
        phone.reset(1, setup)
    assert phone.state() == before


def test_a_setup_holds_whatever_the_seed() -> None:
    setup = {"settings": {"show": "wifi lock", "on": True}, "messages": {"contact": "eve fox"}}
    for seed in range(30):
        data = fresh(seed, setup, 0.0).data
        assert "wifi lock" in words_of(data["settings"]["shown"])
        assert "wifi lock" in words_of(data["settings"]["on"])
        assert len(set(words_of(data["settings"]["shown"]))) == 8
        assert "eve fox" in words_of(data["messages"]["contacts"])


def test_all_phones_of_a_process_keep_a_bounded_number_of_drawn_screens_together() -> None:
    machine._png.cache_clear()
    phones = [PhoneMachine(seed, 0.0) for seed in range(3)]
    for element in widgets(fresh(0, {}, 0.0)):
        for phone in phones:
            phone.reset(0, {})
            phone.apply(Tap(*element.centre))
        assert len({id(phone.png()) for phone in phones}) == 1, "drawn once"
    kept = machine._png.cache_info()
    assert (kept.maxsize, kept.currsize) == (machine.DRAWN, 8)


@pytest.mark.parametrize("kind", sorted(popups.POPUPS))
def test_a_popup_of_each_generation_is_drawn_as_its_own(kind: str) -> None:
    for generation in range(NEWEST + 1):
        phone = PhoneMachine(0, 0.0, generation)
        phone._now = replace(phone._now, dialog=kind)
        with Image.open(io.BytesIO(phone.png())) as image:
            assert image.tobytes() == phone.picture().tobytes()


def test_equal_screens_are_equal_bytes_and_another_screen_is_not() -> None:
    phone, other = PhoneMachine(3, 0.0), PhoneMachine(3, 0.0)
    assert phone.png() == other.png()
    with Image.open(io.BytesIO(phone.png())) as image:
        assert image.size == phone.size
    phone.apply(Tap(*widgets(fresh(3, {}, 0.0))[0].centre))
    assert phone.png() != other.png()
    assert phone.focus().startswith("com.sim.")
