import pytest
from phone_hand import WAIT, brought, opened, rows, said, swipe, touch, write
from simphone.apps.store import LONGEST, SHORTEST, installed
from simphone.machine import Key, Open, fresh, reduce, widgets
from simphone.state import State, words_of

APP = "photo hub"


def page(setup: dict[str, str], seed: int = 0) -> State:
    return touch(write(opened("store", setup, seed), APP, "go"), f"row {APP}")


def waited(state: State) -> tuple[State, int]:
    """The phone when nothing is installed any more, and the events that it took."""
    events = 0
    while state.of("store")["pending"]:
        state, events = reduce(state, WAIT), events + 1
    return state, events


def test_the_app_that_was_asked_for_is_the_first_of_the_results() -> None:
    state = write(opened("store", {"installed": APP}), APP)
    assert rows(state)[0] == APP
    assert "installed" in said(state)
    assert "no app" in said(write(opened("store"), "atlantis"))


@pytest.mark.parametrize("seed", range(6))
def test_an_installation_takes_some_events_and_then_the_app_is_there(seed: int) -> None:
    state = touch(page({"missing": APP}, seed), "install")
    assert APP not in installed(state)
    assert {element.target for element in widgets(state)} == {"cancel"}
    state, events = waited(state)
    assert SHORTEST <= events <= LONGEST
    assert state.toast == "installed"
    assert APP in installed(state)
    opened_app = touch(state, "open")
    assert opened_app.screen == f"{APP}/main"
    assert APP in said(opened_app)


def test_an_installation_goes_on_while_something_else_is_in_front_and_can_be_cancelled() -> None:
    state = touch(page({"missing": APP}), "install")
    assert APP in installed(waited(reduce(state, Key("HOME")))[0])
    cancelled = touch(state, "cancel")
    assert cancelled.of("store")["pending"] == ""
    for _ in range(LONGEST + 1):
        cancelled = reduce(cancelled, WAIT)
    assert APP not in installed(cancelled)


def test_one_thing_is_installed_at_a_time() -> None:
    state = touch(page({"missing": APP}), "install")
    other = touch(state.remember("store", shown="word den", left=9), "install")
    assert (other.toast, other.of("store")["pending"]) == ("one at a time", APP)


def test_an_update_makes_an_old_app_new() -> None:
    state = page({"old": APP})
    assert {"open", "update", "uninstall"} == {element.target for element in widgets(state)}
    assert APP not in words_of(waited(touch(state, "update"))[0].of("store")["old"])
    assert "update" not in {element.target for element in widgets(page({"installed": APP}))}


def test_an_app_is_uninstalled_once_that_is_confirmed_and_then_has_no_icon() -> None:
    state = page({"installed": APP})
    assert APP in installed(touch(state, "uninstall", "cancel"))
    gone = touch(state, "uninstall", "uninstall")
    assert (gone.toast, APP in installed(gone)) == ("removed", False)
    assert reduce(gone, Open(APP)) == reduce(gone, WAIT), "what is not there does not start"


def test_an_installed_app_has_an_icon_behind_those_of_the_phone() -> None:
    state = fresh(0, {"store": {"installed": APP}}, 0.0)
    assert touch(swipe(state, "left"), APP).screen == f"{APP}/main"


@pytest.mark.parametrize("seed", range(10))
def test_a_setup_says_what_is_there_what_is_old_and_what_is_not(seed: int) -> None:
    setup = {"installed": "word lab", "old": "train box", "missing": "plant pal"}
    data = fresh(seed, {"store": setup}, 0.0).data["store"]
    assert {"word lab", "train box"} <= set(words_of(data["installed"]))
    assert "plant pal" not in words_of(data["installed"])
    assert words_of(data["old"]) == ("train box",)
    with pytest.raises(ValueError, match="missing and installed"):
        fresh(seed, {"store": {"installed": "word lab", "missing": "word lab"}}, 0.0)
    assert brought(opened("store", setup, seed), "row word lab")
