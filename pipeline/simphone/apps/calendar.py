"""A calendar: months of days, a day's events, a new one. A swipe to the left turns to the next month."""

from __future__ import annotations

import datetime
import random
from typing import Final

from simphone.apps.app import App, Setup, wanted
from simphone.apps.lists import QUIET, first_of, row_of, rows, scrolled
from simphone.element import BLUE, HEIGHT, RED, Element, Elements, keyboard, search_box, title
from simphone.lexicon import EVENTS, MONTHS, named
from simphone.overlays import HARMFUL, Dialog
from simphone.state import AppData, State, words_of

YEAR: Final = 2024
"""The year in which every simulated phone's time begins."""
WEEKDAYS: Final = "mtwtfss"
EVERY: Final = named(EVENTS)
PLANNED, IN_SIGHT = 3, 5
DATES: Final = tuple(
    f"{month} {day}"
    for number, month in enumerate(MONTHS, 1)
    for day in range(1, 32)
    if day <= 29 or (day == 30 and number != 2) or (day == 31 and number in (1, 3, 5, 7, 8, 10, 12))
)
"""Every day of the year as screens, events and setups write it: "jan 5"."""


def fresh(rng: random.Random, setup: Setup) -> AppData:
    """setup: {"event": an event to be planned, "date": its day, default random}. Other events are random."""
    event, date = wanted(setup, "event", EVERY), wanted(setup, "date", DATES)
    if date and not event:
        raise ValueError("a date is set up together with an event")
    days = rng.sample(DATES, PLANNED)
    events = [f"{day}: {what}" for day, what in zip(days, rng.sample(EVERY, PLANNED), strict=True)]
    if event:
        events = [each for each in events if not each.endswith(f": {event}")]
        events.append(f"{date or rng.choice(DATES)}: {event}")
    return {"month": 1, "date": "", "events": tuple(events), "event": "", "first": 0}


def planned(state: State, date: str) -> tuple[str, ...]:
    """The events of a day, in order of entry."""
    every = words_of(state.of("calendar")["events"])
    return tuple(each.removeprefix(f"{date}: ") for each in every if each.startswith(f"{date}: "))


def elements(state: State) -> Elements:
    data = state.of("calendar")
    date = str(data["date"])
    match state.screen:
        case "calendar/day":
            return (
                title(date, RED),
                *rows(planned(state, date), first_of(state, "calendar"), 32, IN_SIGHT),
                Element("button", (64, 208, 120, HEIGHT), "new", "new", colour=BLUE),
            )
        case "calendar/new":
            keys = keyboard("save", "save") if state.focused else ()
            return (title(f"new on {date}", RED), search_box(state.typed, state.focused, 48, "field", "event"), *keys)
    month = int(str(data["month"]))
    name = MONTHS[month - 1]
    offset = datetime.date(YEAR, month, 1).weekday()
    days = [each.partition(" ")[2] for each in DATES if each.startswith(name)]
    return (
        title(f"{name} {YEAR}", RED),
        *(
            Element("text", (1 + at * 18, 24, 19 + at * 18, 40), text=letter, colour=QUIET)
            for at, letter in enumerate(WEEKDAYS)
        ),
        *(
            Element(
                "day",
                (1 + at % 7 * 18, 40 + at // 7 * 32, 19 + at % 7 * 18, 72 + at // 7 * 32),
                day,
                f"day {day}",
                on=bool(planned(state, f"{name} {day}")),
                colour=RED,
            )
            for at, day in enumerate(days, offset)
        ),
    )


def tap(state: State, target: str) -> State:
    match target.split(" "):
        case ["day", day]:
            date = f"{MONTHS[int(str(state.of('calendar')['month'])) - 1]} {day}"
            return state.remember("calendar", date=date, first=0).goto("calendar/day")
        case ["field"]:
            return state.focus(state.typed)
        case ["save"]:
            return submit(state)
        case ["new"]:
            return state.goto("calendar/new")
    return state.remember("calendar", event=row_of(target)).ask("calendar/delete")


def submit(state: State) -> State:
    if not state.typed:
        return state
    data = state.of("calendar")
    events = (*words_of(data["events"]), f"{data['date']}: {state.typed}")
    return state.remember("calendar", events=events).focus().leave().leave().say("saved")


def swipe(state: State, direction: str) -> State:
    data = state.of("calendar")
    if state.screen == "calendar/day":
        return scrolled(state, "calendar", len(planned(state, str(data["date"]))), IN_SIGHT, direction)
    step = {"left": 1, "right": -1}.get(direction, 0) if state.screen == "calendar/month" else 0
    return state.remember("calendar", month=max(1, min(len(MONTHS), int(str(data["month"])) + step)))


def _deleted(state: State) -> State:
    data = state.of("calendar")
    events = list(words_of(data["events"]))
    events.remove(f"{data['date']}: {data['event']}")
    return state.remember("calendar", events=tuple(events)).say("deleted")


APP: Final = App(
    "calendar", "calendar/month", fresh, elements, tap, submit, swipe, takes=("event", "date"),
    questions={"delete": Dialog("delete event?", "delete", _deleted, colour=HARMFUL)},
)  # fmt: skip
