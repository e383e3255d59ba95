from collections.abc import Iterator
from dataclasses import replace

from phone_hand import SWIPES, back, swipe, touch
from simphone.apps import REGISTRY
from simphone.apps.launcher import PER_PAGE
from simphone.canvas import draw
from simphone.lexicon import MORE_APPS, STORE_APPS, named
from simphone.machine import Key, PhoneMachine, fresh, reduce, widgets
from simphone.state import HOME, State
from simphone.words import APPS


def pages(state: State) -> Iterator[State]:
    """Every page of the launcher, by swipes alone."""
    yield state
    while (after := swipe(state, "left")).screen != state.screen:
        state = after
        yield state


def test_every_app_is_reached_by_swipes_and_taps_alone() -> None:
    reached = {}
    for page in pages(fresh(4, {}, 0.0)):
        for icon in widgets(page):
            state = touch(page, icon.target)
            reached[state.app] = state.screen
            assert back(state if not state.dialog else touch(state, "deny")).screen == page.screen
    assert set(reached) >= set(REGISTRY) - {"launcher"}
    assert all(reached[name] == REGISTRY[name].start for name in REGISTRY if name != "launcher")


def test_the_first_page_has_the_icons_that_it_always_had_and_the_others_follow() -> None:
    first, second = list(pages(fresh(4, {}, 0.0)))
    assert first.screen == HOME
    assert {icon.target for icon in widgets(first)} == set(APPS)
    assert [icon.target for icon in widgets(second)][: len(MORE_APPS)] == list(MORE_APPS)


def test_pages_are_turned_back_by_a_swipe_by_back_and_by_home() -> None:
    crowded = fresh(4, {}, 0.0).remember("store", installed=named(STORE_APPS)[:12])
    seen = list(pages(crowded))
    assert [len(widgets(page)) for page in seen] == [PER_PAGE, PER_PAGE, PER_PAGE, 1]
    third = seen[2]
    assert swipe(third, "right").screen == back(third).screen == seen[1].screen
    assert reduce(third, Key("HOME")).screen == HOME
    assert swipe(seen[0], "right").screen == HOME
    assert swipe(seen[0], "up").screen == HOME


def test_the_pages_are_one_window_to_android() -> None:
    phone = PhoneMachine(4, 0.0)
    at_home = phone.focus()
    phone.apply(SWIPES["left"])
    assert phone.state()["screen"] != HOME
    assert phone.focus() == at_home


def test_no_two_icons_of_the_phone_have_the_same_shape_and_colour() -> None:
    bare = [
        draw((replace(icon, text=" ", box=(0, 0, 64, 56)),)).tobytes()
        for page in pages(fresh(4, {}, 0.0))
        for icon in widgets(page)
        if icon.target in REGISTRY
    ]
    assert len(set(bare)) == len(bare) == len(REGISTRY) - 1
