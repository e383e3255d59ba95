import pytest
from phone_hand import back, brought, opened, rows, said, swipe, touch, write
from simphone.apps.contacts import IN_SIGHT, KNOWN, number_of
from simphone.machine import fresh
from simphone.state import words_of


def test_the_list_is_scrolled_to_its_end_and_back() -> None:
    state = opened("contacts")
    people = words_of(state.of("contacts")["people"])
    assert people == tuple(sorted(people))
    assert len(people) == KNOWN
    seen = [rows(state)]
    for direction in ("up", "up", "up", "down", "down", "down"):
        state = swipe(state, direction)
        seen.append(rows(state))
    assert seen[0] == seen[-1] == list(people[:IN_SIGHT])
    assert seen[1] == list(people[IN_SIGHT : 2 * IN_SIGHT])
    assert seen[2] == seen[3] == list(people[-IN_SIGHT:]), "the end of the list is the end"


def test_a_person_has_a_page_with_the_number_and_is_deleted_once_that_is_confirmed() -> None:
    state = touch(brought(opened("contacts", {"contact": "kim west"}), "row kim west"), "row kim west")
    assert {"kim west", number_of("kim west")} <= set(said(state))
    kept = touch(state, "delete", "cancel")
    assert (kept.screen, kept.dialog) == ("contacts/person", "")
    assert back(touch(state, "delete")).of("contacts") == state.of("contacts"), "BACK is no answer"
    gone = touch(state, "delete", "delete")
    assert gone.screen == "contacts/list"
    assert gone.toast == "deleted"
    assert set(words_of(state.of("contacts")["people"])) - set(words_of(gone.of("contacts")["people"])) == {"kim west"}


def test_a_new_contact_is_saved_by_name_once() -> None:
    start = opened("contacts", {"missing": "eve reed"})
    state = write(touch(start, "new"), "eve reed", "save")
    assert (state.screen, state.toast) == ("contacts/list", "saved")
    assert "eve reed" in rows(brought(state, "row eve reed"))
    again = write(touch(state, "new"), "eve reed")
    assert again.of("contacts")["people"] == state.of("contacts")["people"]
    assert touch(touch(start, "new", "field"), "save").screen == "contacts/new", "nothing to save"


def test_what_somebody_typed_is_never_taken_for_a_button() -> None:
    state = write(touch(opened("contacts"), "new"), "new", "save")
    assert touch(brought(state, "row new"), "row new").screen == "contacts/person"


@pytest.mark.parametrize("seed", range(5))
def test_a_setup_says_who_is_there_and_who_is_not(seed: int) -> None:
    people = words_of(
        fresh(seed, {"contacts": {"contact": "eve fox", "missing": "kim lee"}}, 0.0).data["contacts"]["people"]
    )
    assert "eve fox" in people
    assert "kim lee" not in people
    with pytest.raises(ValueError, match="among the contacts and missing"):
        fresh(seed, {"contacts": {"contact": "eve fox", "missing": "eve fox"}}, 0.0)
