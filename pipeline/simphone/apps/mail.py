"""Mail: an inbox, a letter, a reply or a new one to somebody of the contacts, delete."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup, wanted
from simphone.apps.lists import first_of, row_of, rows, scrolled
from simphone.element import (
    BLUE,
    GREY,
    HEIGHT,
    RED,
    WIDTH,
    Element,
    Elements,
    keyboard,
    search_box,
    title,
)
from simphone.lexicon import MAILS, PEOPLE, named
from simphone.overlays import HARMFUL, Dialog
from simphone.state import AppData, State, words_of

SUBJECTS: Final = named(MAILS)
WRITERS: Final = named(PEOPLE)
RECEIVED, IN_SIGHT = 9, 5
TO_IN_SIGHT = 6


def fresh(rng: random.Random, setup: Setup) -> AppData:
    """setup: {"mail": the subject of an unread letter in the inbox}. All subjects differ clearly."""
    subjects, asked = rng.sample(SUBJECTS, RECEIVED), wanted(setup, "mail", SUBJECTS)
    if asked and asked not in subjects:
        subjects[rng.randrange(RECEIVED)] = asked
    senders = [rng.choice(WRITERS) for _ in subjects]
    return {
        "inbox": tuple(subjects),
        "senders": tuple(f"{s}: {who}" for s, who in zip(subjects, senders, strict=True)),
        "read": tuple(s for s in subjects if s != asked and rng.random() < 0.4),
        "mail": "",
        "to": "",
        "sent": (),
        "answered": (),
        "first": 0,
    }


def sender(state: State, subject: str) -> str:
    """The sender of the letter with that subject."""
    every = words_of(state.of("mail")["senders"])
    return next(each.partition(": ")[2] for each in every if each.startswith(f"{subject}: "))


def elements(state: State) -> Elements:
    data = state.of("mail")
    first = first_of(state, "mail")
    match state.screen:
        case "mail/letter":
            subject = str(data["mail"])
            return (
                title(subject, RED),
                Element("text", (0, 28, WIDTH, 52), text=sender(state, subject), colour=GREY),
                Element("lines", (8, 64, 120, 190)),
                Element("button", (4, 208, 64, 240), "reply", "reply", colour=BLUE),
                Element("button", (64, 208, 124, 240), "delete", "delete", colour=GREY),
            )
        case "mail/to":
            return (title("to", RED), *rows(_people(state), first, 32, TO_IN_SIGHT))
        case "mail/write":
            keys = keyboard("send", "send") if state.focused else ()
            return (title(str(data["to"]), RED), search_box(state.typed, state.focused, 48, "field", "message"), *keys)
    unread = {subject: "unread" for subject in words_of(data["inbox"]) if subject not in words_of(data["read"])}
    return (
        title("mail", RED),
        *rows(words_of(data["inbox"]), first, 32, IN_SIGHT, unread),
        Element("button", (64, 208, 120, HEIGHT), "new", "new", colour=BLUE),
    )


def _people(state: State) -> tuple[str, ...]:
    return words_of(state.of("contacts")["people"])


def tap(state: State, target: str) -> State:
    data = state.of("mail")
    row = row_of(target)
    match target:
        case "field":
            return state.focus(state.typed)
        case "send":
            return submit(state)
        case "new":
            return state.remember("mail", first=0).goto("mail/to")
        case "reply":
            return state.remember("mail", to=sender(state, str(data["mail"]))).goto("mail/write")
        case "delete":
            return state.ask("mail/delete")
    if state.screen == "mail/to":
        return state.remember("mail", to=row).goto("mail/write")
    read = tuple(dict.fromkeys((*words_of(data["read"]), row)))
    return state.remember("mail", mail=row, read=read).goto("mail/letter").load()


def submit(state: State) -> State:
    """Send, and go back to where the letter was begun: the inbox or the letter that it answers.

    answered: for each letter sent, the subject of the letter that it answers, "" for a new one.
    """
    if not state.typed:
        return state
    data = state.of("mail")
    sent = (*words_of(data["sent"]), f"{data['to']}: {state.typed}")
    before = state.remember("mail", sent=sent, first=0).focus().leave().leave()
    new = before.screen == "mail/to"
    answered = (*words_of(data["answered"]), "" if new else str(data["mail"]))
    return (before.leave() if new else before).remember("mail", answered=answered).say("sent")


def swipe(state: State, direction: str) -> State:
    match state.screen:
        case "mail/inbox":
            return scrolled(state, "mail", len(words_of(state.of("mail")["inbox"])), IN_SIGHT, direction)
        case "mail/to":
            return scrolled(state, "mail", len(_people(state)), TO_IN_SIGHT, direction)
    return state


def _deleted(state: State) -> State:
    data = state.of("mail")
    inbox = tuple(subject for subject in words_of(data["inbox"]) if subject != data["mail"])
    return state.remember("mail", inbox=inbox).leave().say("deleted")


APP: Final = App(
    "mail", "mail/inbox", fresh, elements, tap, submit, swipe, takes=("mail",),
    questions={"delete": Dialog("delete this mail?", "delete", _deleted, colour=HARMFUL)},
)  # fmt: skip
