"""The Google apps suite, after Android in the Wild's: maps, mail, calendar and videos, 20 steps a task.

The paper evaluates agents of the general suite on the first 128 tasks of it (appendix A.6.2) and trains on none; the
training list is ours. No entity that is held out here is trained on in another suite.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from simphone.apps import mail
from simphone.state import State, words_of

from distrl.tasks import moves
from distrl.tasks.conditions import equals
from distrl.tasks.family import Of, family
from distrl.tasks.listed import ListedSuite
from distrl.tasks.persistent_state import Kept
from distrl.tasks.suites.general import SEEN, VIDEO
from distrl.tasks.suites.world import DATES, EVENTS, MAILS, PEOPLE, PLACES
from distrl.types import Split

ANSWERS: Final = ("thank you", "see you soon", "not today", "yes please", "call me later")


def received(of: Of) -> dict[str, dict[str, str]]:
    return {"mail": {"mail": of["mail"]}}


def mailed(start: State, whom: str, text: str, answered: str = "") -> Kept:
    """answered: the subject of the letter that it answers, "" for a new one."""
    data = start.of("mail")
    return {
        ("mail", "sent"): (*words_of(data["sent"]), f"{whom}: {text}"),
        ("mail", "answered"): (*words_of(data["answered"]), answered),
    }


def mailed_in_answer(start: State, whom: str, text: str) -> Iterator[Kept]:
    """The same text as a reply to any letter from that person, which counts as well."""
    for subject in words_of(start.of("mail")["inbox"]):
        if mail.sender(start, subject) == whom:
            yield mailed(start, whom, text, subject)


STAR = family(
    "star", "maps",
    ("Star the {place} in maps.", "Save the {place} with a star in maps.", "Open maps and star the {place}."),
    {"place": PLACES}, lambda now, of: moves.star(now, of["text"]), types={"text": "{place}"},
    changes=lambda start, of: {("maps", "starred"): (of["place"],)}, answers=SEEN,
)  # fmt: skip
WAY = family(
    "way", "maps",
    ("Start directions to {mode} to the {place}.", "I want to {mode} to the {place}: start the directions.",
     "Open maps and {mode} to the {place}."),
    {"place": PLACES, "mode": ("walk", "drive")}, lambda now, of: moves.set_off(now, of["text"], of["mode"]),
    types={"text": "{place}"}, changes=lambda start, of: {("maps", "going"): f"{of['mode']} {of['place']}"},
    answers=SEEN,
)  # fmt: skip
READ = family(
    "read", "mail",
    ('Open the mail about "{mail}".', 'Read the mail "{mail}".', 'What does the mail "{mail}" say?'),
    {"mail": MAILS}, lambda now, of: moves.read_mail(now, of["mail"]), setup=received,
    shows=lambda now, of: (*equals(now, "screen", "mail/letter"), *equals(now, "mail.mail", of["mail"])),
)  # fmt: skip
REPLY = family(
    "reply", "mail",
    ('Reply "{text}" to the mail about "{mail}".', 'Answer the mail "{mail}" with "{text}".'),
    {"mail": MAILS, "text": ANSWERS}, lambda now, of: moves.reply(now, of["mail"], of["text"]),
    types={"text": "{text}"}, setup=received,
    changes=lambda start, of: mailed(start, mail.sender(start, of["mail"]), of["text"], of["mail"]),
)  # fmt: skip
COMPOSE = family(
    "compose", "mail",
    ('Send a mail to {person} saying "{text}".', 'Mail {person} "{text}".', 'Write "{text}" in a mail to {person}.'),
    {"person": PEOPLE, "text": ANSWERS}, lambda now, of: moves.mail_to(now, of["person"], of["text"]),
    types={"text": "{text}"}, setup=lambda of: {"contacts": {"contact": of["person"]}},
    changes=lambda start, of: mailed(start, of["person"], of["text"]),
    or_changes=lambda start, of: mailed_in_answer(start, of["person"], of["text"]),
)  # fmt: skip
TRASH = family(
    "trash", "mail",
    ('Delete the mail about "{mail}".', 'Remove the mail "{mail}".', 'Open mail and delete "{mail}".'),
    {"mail": MAILS}, lambda now, of: moves.delete_mail(now, of["mail"]), setup=received,
    changes=lambda start, of: {
        ("mail", "inbox"): tuple(each for each in words_of(start.of("mail")["inbox"]) if each != of["mail"])
    },
    answers={"mail/delete": "delete"},
)  # fmt: skip
CANCEL = family(
    "cancel", "calendar",
    ('Delete "{event}" on {date} from the calendar.', 'Cancel "{event}" on {date} in the calendar.',
     'Remove the event "{event}" of {date}.'),
    {"event": EVENTS, "date": DATES}, lambda now, of: moves.cancel_event(now, of["event"], of["date"]),
    setup=lambda of: {"calendar": {"event": of["event"], "date": of["date"]}},
    changes=lambda start, of: {
        ("calendar", "events"): tuple(
            each for each in words_of(start.of("calendar")["events"]) if each != f"{of['date']}: {of['event']}"
        )
    },
    answers={"calendar/delete": "delete"},
)  # fmt: skip

KINDS: Final = (STAR, WAY, READ, REPLY, COMPOSE, TRASH, CANCEL, VIDEO)

GOOGLE_APPS: Final = ListedSuite(
    "googleapps", 20, KINDS,
    {split: {kind.name: count for kind in KINDS} for split, count in
     ((Split.TRAIN, 20), (Split.VALIDATION, 4), (Split.TEST, 16))},
)  # fmt: skip
