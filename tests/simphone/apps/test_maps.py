from phone_hand import back, opened, rows, said, swipe, touch, write
from simphone.apps.maps import minutes
from simphone.machine import Key, Open, fresh, reduce, widgets


def test_the_first_use_asks_for_the_location_and_a_later_one_does_not() -> None:
    first = reduce(fresh(0, {}, 0.0), Open("maps"))
    assert first.dialog == "maps/permission"
    assert reduce(reduce(back(first), Key("HOME")), Open("maps")).dialog == "maps/permission", "BACK is no answer"
    for answer, location in (("allow", "allowed"), ("deny", "denied")):
        state = touch(first, answer)
        assert (state.dialog, state.of("maps")["location"]) == ("", location)
        assert reduce(reduce(state, Key("HOME")), Open("maps")).dialog == ""


def test_the_place_that_was_asked_for_is_the_first_of_the_results() -> None:
    state = write(opened("maps"), "Old Cinema", "go")
    assert rows(state)[0] == "old cinema"
    assert rows(swipe(state, "up")) != rows(state)
    assert "no place" in said(write(opened("maps"), "atlantis"))


def test_the_way_is_shown_on_foot_or_by_car_and_one_goes() -> None:
    state = touch(write(opened("maps"), "north cafe"), "row north cafe")
    state = touch(state, "directions")
    assert state.screen == "maps/way"
    assert f"{minutes('north cafe', 'drive')} min" in said(state)
    state = touch(state, "walk")
    assert f"{minutes('north cafe', 'walk')} min" in said(state)
    state = touch(state, "start")
    assert state.of("maps")["going"] == "walk north cafe"
    assert touch(state, "stop").of("maps")["going"] == ""


def test_without_the_location_there_is_no_way_until_it_is_allowed() -> None:
    state = touch(reduce(fresh(0, {}, 0.0), Open("maps")), "deny")
    state = touch(write(state, "hill park"), "row hill park", "directions")
    assert (state.screen, state.dialog) == ("maps/place", "maps/permission")
    assert touch(state, "allow", "directions").screen == "maps/way"


def test_a_place_is_starred_and_unstarred() -> None:
    state = touch(write(opened("maps"), "hill park"), "row hill park", "star")
    assert state.of("maps")["starred"] == ("hill park",)
    assert [element.on for element in widgets(state) if element.target == "star"] == [True]
    assert touch(state, "star").of("maps")["starred"] == ()
