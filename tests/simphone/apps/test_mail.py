import pytest
from phone_hand import back, brought, opened, rows, said, touch, write
from simphone.apps.mail import sender
from simphone.machine import fresh, in_front
from simphone.state import words_of


def test_a_letter_is_unread_until_it_is_opened() -> None:
    state = brought(opened("mail", {"mail": "bank form"}), "row bank form")
    unread = [e.text for e in in_front(state) if e.kind == "caption"].count("unread")
    state = touch(state, "row bank form")
    assert {"bank form", sender(state, "bank form")} <= set(said(state))
    assert "bank form" in words_of(state.of("mail")["read"])
    assert [e.text for e in in_front(back(state)) if e.kind == "caption"].count("unread") == unread - 1


def test_a_reply_goes_to_the_sender_and_leads_back_to_the_letter() -> None:
    state = touch(brought(opened("mail", {"mail": "bank form"}), "row bank form"), "row bank form")
    who = sender(state, "bank form")
    state = write(touch(state, "reply"), "red lamp", "send")
    assert (state.screen, state.toast, state.of("mail")["sent"]) == ("mail/letter", "sent", (f"{who}: red lamp",))
    assert state.of("mail")["answered"] == ("bank form",)


def test_a_new_letter_goes_to_somebody_of_the_contacts() -> None:
    state = touch(opened("mail"), "new")
    people = words_of(state.of("contacts")["people"])
    state = brought(state, f"row {people[-1]}")
    state = write(touch(state, f"row {people[-1]}"), "team news")
    assert (state.screen, state.of("mail")["sent"]) == ("mail/inbox", (f"{people[-1]}: team news",))
    assert state.of("mail")["answered"] == ("",)
    assert touch(touch(opened("mail"), "new", f"row {people[0]}", "field"), "send").screen == "mail/write"


def test_a_letter_is_deleted_once_that_is_confirmed() -> None:
    state = opened("mail")
    subject = rows(state)[1]
    letter = touch(state, f"row {subject}")
    assert touch(letter, "delete", "cancel").of("mail")["inbox"] == state.of("mail")["inbox"]
    gone = touch(letter, "delete", "delete")
    assert (gone.screen, gone.toast) == ("mail/inbox", "deleted")
    assert subject not in words_of(gone.of("mail")["inbox"])


@pytest.mark.parametrize("seed", range(10))
def test_a_letter_that_was_set_up_has_come_and_is_unread(seed: int) -> None:
    data = fresh(seed, {"mail": {"mail": "photo offer"}}, 0.0).data["mail"]
    inbox = words_of(data["inbox"])
    assert inbox.count("photo offer") == 1
    assert len(set(inbox)) == len(inbox)
    assert "photo offer" not in words_of(data["read"])
