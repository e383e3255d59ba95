from phone_hand import back, brought, rows, said, touch
from simphone.apps.phone import KEPT, dial
from simphone.machine import Key, Open, fresh, reduce
from simphone.state import State, words_of


def pad() -> State:
    return reduce(fresh(0, {}, 0.0), Open("phone"))


def calling(state: State, digits: str) -> State:
    return touch(state, *(f"key {digit}" for digit in digits), "call")


def test_the_first_call_asks_and_the_next_does_not() -> None:
    asked = calling(pad(), "112")
    assert (asked.dialog, asked.of("phone")["recent"]) == ("phone/permission", ())
    state = touch(asked, "allow")
    assert (state.screen, state.of("phone")["calling"], state.of("phone")["recent"]) == ("phone/call", "112", ("112",))
    state = calling(touch(state, "end"), "*0#")
    assert state.dialog == ""
    assert state.of("phone")["recent"] == ("*0#", "112")


def test_a_refused_permission_calls_nobody_and_is_asked_for_again() -> None:
    state = touch(calling(pad(), "5"), "deny")
    assert (state.screen, state.toast, state.of("phone")["recent"]) == ("phone/pad", "no calls allowed", ())
    assert touch(state, "call").dialog == "phone/permission"
    assert back(calling(pad(), "5")).of("phone")["calling"] == "", "BACK is no answer"


def test_a_call_lasts_until_it_is_ended_and_is_what_one_comes_back_to() -> None:
    state = touch(calling(pad(), "7"), "allow")
    away = reduce(reduce(state, Key("HOME")), Open("phone"))
    assert (away.screen, away.of("phone")["calling"]) == ("phone/call", "7")
    ended = touch(away, "end")
    assert (ended.screen, ended.toast, ended.of("phone")["calling"]) == ("phone/pad", "call ended", "")


def test_digits_are_erased_one_by_one_and_there_is_no_call_without_any() -> None:
    state = touch(pad(), "key 1", "key 2", "erase")
    assert "1" in said(state)
    assert state.of("phone")["digits"] == "1"
    state = touch(state, "erase", "erase", "call")
    assert (state.toast, state.dialog) == ("no number", "")


def test_recent_calls_are_called_again_from_their_list() -> None:
    state = touch(calling(pad(), "42"), "allow", "end", "recent")
    assert rows(state) == ["42"]
    state = touch(state, "row 42")
    assert (state.screen, state.of("phone")["recent"]) == ("phone/call", ("42", "42"))
    assert touch(state, "end", "pad").screen == "phone/pad"


def test_a_contact_is_called_by_name_from_the_own_page() -> None:
    setup = {"contacts": {"contact": "dan hill"}}
    state = brought(reduce(fresh(0, setup, 0.0), Open("contacts")), "row dan hill")
    state = touch(state, "row dan hill", "call", "allow")
    assert state.of("phone")["recent"] == ("dan hill",)
    assert touch(state, "end").screen == "contacts/person"


def test_the_list_of_recent_calls_is_bounded() -> None:
    state = pad().remember("phone", allowed=True)
    for number in range(KEPT + 5):
        state = dial(state, str(number))
    assert len(words_of(state.of("phone")["recent"])) == KEPT
