from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import factories
import pytest
from distrl.tasks.check import holds, parse_check, remembered
from distrl.tasks.outcome import CHECK, succeeded
from distrl.types import Task
from hypothesis import given
from hypothesis import strategies as st
from simphone.gallery import walk
from simphone.machine import fresh
from simphone.screens import SCREENS, refuse_unknown
from simphone.state import ADVERT, State

ON = {"app": "settings", "path": "on", "contains": "wifi sync"}


def phone(**apps: dict[str, Any]) -> State:
    state = fresh(1, {}, 0.0)
    for app, values in apps.items():
        state = state.remember(app, **values)
    return state


def task(check: object, **changes: str) -> Task:
    given = factories.task(suite="mine", params={CHECK: json.dumps(check)})
    return replace(given, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("check", "so", "not_so"),
    [
        (ON, {"settings": {"on": ("data lock", "wifi sync")}}, {"settings": {"on": ("data lock",)}}),
        ({**ON, "contains": "wifi"}, None, {"settings": {"on": ("wifi sync",)}}),
        (
            {"app": "settings", "path": "on", "lacks": "wifi sync"},
            {"settings": {"on": ()}}, {"settings": {"on": ("wifi sync",)}},
        ),
        (
            {"app": "clock", "path": "alarms", "equals": ["8 am", "6 pm"]},
            {"clock": {"alarms": ("6 pm", "8 am")}}, {"clock": {"alarms": ("6 pm", "8 am", "9 am")}},
        ),
        (
            {"app": "browser", "path": "query", "contains": "lamp"},
            {"browser": {"query": "red lamp"}}, {"browser": {"query": "red bag"}},
        ),
        ({"app": "settings", "path": "page", "equals": 1}, {"settings": {"page": 1}}, {"settings": {"page": 0}}),
        ({"app": "media", "path": "playing", "equals": True}, {"media": {"playing": True}}, {}),
        (
            [ON, {"app": "notes", "path": "notes", "equals": []}],
            {"settings": {"on": ("wifi sync",)}}, {"settings": {"on": ("wifi sync",)}, "notes": {"notes": ("x",)}},
        ),
    ],
)  # fmt: skip
def test_a_check_holds_where_the_phone_is_as_it_says_and_nowhere_else(
    check: object, so: dict[str, Any] | None, not_so: dict[str, Any]
) -> None:
    if so is not None:
        assert holds(parse_check(check), phone(**so))
    assert not holds(parse_check(check), phone(**not_so))


def test_every_screen_that_a_tour_of_the_phone_shows_can_be_named_and_every_app_has_some() -> None:
    seen = {state.screen for state in walk()} - {ADVERT}
    for screen in seen:
        refuse_unknown(screen)
    named = {f"{app}/{name}" for app, names in SCREENS.items() for name in names}
    assert named - seen <= {"launcher/page3"}, "nothing is named that no visitor has seen"
    assert set(SCREENS) == set(remembered())


def test_the_screens_of_the_documentation_are_those_of_the_phone() -> None:
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    for app, names in SCREENS.items():
        assert f"| `{app}` | {', '.join(f'`{name}`' for name in names)} |\n" in text


def test_the_state_paths_of_the_documentation_are_those_of_the_phone() -> None:
    """Each app's row names its paths and nothing else, but for what stands in brackets."""
    text = (Path(__file__).parents[2] / "docs" / "tasks.md").read_text()
    table = text.split("| app | paths: the values in the app's state |\n")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    told = {app: sorted(re.findall(r"`([^`]*)`", re.sub(r"\([^()]*\)", "", row))) for app, row in rows.items()}
    assert told == {app: sorted(paths) for app, paths in remembered().items()}


def test_a_check_of_the_screen_looks_at_the_screen() -> None:
    check = parse_check({"screen": "notes/list"})
    assert holds(check, phone().goto("notes/list"))
    assert not holds(check, phone())


def test_nothing_is_done_while_something_is_in_front() -> None:
    state = phone(settings={"on": ("wifi sync",)})
    assert succeeded(task(ON), state.to_json()) is True
    assert succeeded(task(ON), replace(state, dialog="sale").to_json()) is False
    assert succeeded(task(ON), replace(state, screen=ADVERT).to_json()) is False


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "1 to 16 conditions"),
        ([ON] * 17, "1 to 16 conditions"),
        ("on", "is an object"),
        ({}, "exactly the fields"),
        ({**ON, "lacks": "x"}, "exactly the fields"),
        ({**ON, "equal": "x"}, "exactly the fields"),
        ({"app": "settings", "path": "on"}, "exactly the fields"),
        ({**ON, "app": "camera"}, "no app 'camera': a simulated phone has launcher, settings"),
        ({**ON, "path": "off"}, "settings remembers no 'off': it has shown, on, page"),
        ({**ON, "contains": 3}, "`contains` takes a text"),
        ({**ON, "contains": "x" * 201}, "at most 200"),
        ({"app": "settings", "path": "page", "contains": "1"}, "a number"),
        ({"app": "settings", "path": "page", "equals": True}, "a number"),
        ({"app": "media", "path": "playing", "equals": 1}, "true or false"),
        ({"app": "settings", "path": "on", "equals": "wifi sync"}, "a list of texts"),
        ({"screen": 3}, "`screen` takes a text"),
        ({"screen": "launcher/mail"}, "no screen 'launcher/mail': there are launcher/home"),
        ({"screen": "notes/lsit"}, "no screen 'notes/lsit': there are notes/list, notes/new"),
        ({"screen": "camera/list"}, "no screen 'camera/list': there are screens of launcher, settings"),
    ],
)
def test_what_is_no_check_is_refused_with_what_is_wrong(given: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_check(given)


def test_a_task_without_a_check_that_can_be_read_is_left_to_a_judge() -> None:
    state = phone().to_json()
    bare = task(ON, suite="mine")
    for params in ({}, {CHECK: "{"}, {CHECK: "[" * 100_000}, {CHECK: "null"}, {CHECK: '{"app": "settings"}'}):
        assert succeeded(replace(bare, params=params), state) is None
    assert succeeded(task(ON, suite="home", family="unheard of"), state) is None


def test_a_family_of_the_built_in_suite_means_nothing_in_another() -> None:
    """A list may call its families as it likes: their names must not run a check whose parameters it has not."""
    named = factories.task(suite="mine", family="alarm", instruction="wake me", params={"time": "8 am"})
    assert succeeded(named, phone(clock={"alarms": ("8 am",)}).to_json()) is None
    assert succeeded(replace(named, suite="home"), phone(clock={"alarms": ("8 am",)}).to_json()) is True


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["app", "path", "contains", "lacks", "equals", "screen"]), inner, max_size=4)
    ),
)
conditions = st.one_of(
    st.fixed_dictionaries(
        {"app": st.just(app), "path": st.sampled_from(sorted(data)), operation: values}
    )
    for app, data in remembered().items()
    for operation in ("contains", "lacks", "equals")
)  # fmt: skip


@given(values | conditions, st.integers(0, 50))
def test_any_json_is_a_check_that_can_be_asked_of_any_phone_or_is_refused(given: object, seed: int) -> None:
    try:
        check = parse_check(given)
    except ValueError:
        return
    assert holds(check, fresh(seed, {}, 0.0)) in (True, False)
