"""The general suite, after the paper's (appendix A.5.2): basic use of apps and looking things up, 15 steps a task.

As there, held-out tasks are of the kinds that Android in the Wild has (a question, a place, music, an alarm), and the
training list has besides those kinds that were taken from AndroidWorld (a contact, the stopwatch) and curated (the
calendar, updates). Instructions are our own. Families of the first sort have 8 held-out tasks each, all have 30 to
train on.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from simphone import words
from simphone.apps.contacts import number_of
from simphone.state import State, words_of

from distrl.tasks import moves
from distrl.tasks.conditions import Unmets, equals, has_words, unmet, words_in
from distrl.tasks.entity_pool import pairs, singles
from distrl.tasks.family import Of, Params, Setup, family
from distrl.tasks.listed import ListedSuite
from distrl.tasks.persistent_state import Kept
from distrl.tasks.suites.world import (
    CONTACTS,
    DATES,
    EVENTS,
    ITEMS,
    PEOPLE,
    PLACES,
    SONGS,
    STORE_APPS,
    SWITCHES,
    TIMES,
    VIDEOS,
)
from distrl.types import Action, Split

COUNTRIES: Final = singles(
    "country",
    (
        "Norway", "Kenya", "Peru", "Japan", "Spain", "Egypt", "Chile", "India", "Greece", "Cuba", "Nepal", "Ghana",
        "Italy", "Canada", "Poland", "Brazil", "Turkey", "Iceland", "Austria", "Mexico", "Finland", "Morocco",
        "Vietnam", "Portugal",
    ),
)  # fmt: skip
FACTS: Final = ("capital", "population", "currency", "language")
CITIES: Final = singles(
    "city",
    (
        "Paris", "Tokyo", "Lima", "Cairo", "Oslo", "Rome", "Berlin", "Madrid", "Nairobi", "Toronto", "Seoul", "Delhi",
        "Vienna", "Dublin", "Boston", "Denver", "Sydney", "Havana", "Prague", "Lisbon", "Athens", "Warsaw", "Chicago",
        "Seattle",
    ),
)  # fmt: skip
TOPICS: Final = pairs(
    "topic",
    words.pairs(
        ("world", "local", "youth", "winter", "space", "ocean"),
        ("football", "travel", "fashion", "science", "music", "health"),
    ),
)
CHORES: Final = pairs(
    "chore",
    words.pairs(
        ("clean", "fix", "paint", "move", "sell", "store"),
        ("a carpet", "a bike", "a window", "a fridge", "a sofa", "a door"),
    ),
)
DISHES: Final = pairs(
    "dish",
    words.pairs(
        ("apple", "carrot", "lemon", "pumpkin", "spinach", "potato"), ("soup", "pie", "bread", "salad", "curry", "cake")
    ),
)
SEEN: Final = {"maps/permission": "allow"}


def looked_up(now: State, of: Of) -> Unmets:
    """The results of a search for `text` are shown."""
    return (*equals(now, "screen", "browser/results"), *has_words(now, "browser.query", of["text"]))


def look_up(now: State, of: Of) -> Action:
    return moves.search(now, of["text"])


def weather_found(now: State, of: Of) -> Unmets:
    """A search for the weather or for the rain of the city."""
    missing = looked_up(now, of)
    return missing if looked_up(now, {"text": f"rain {of['city'].lower()}"}) else ()


def flights_found(now: State, of: Of) -> Unmets:
    """Flights of that direction: as "from" and "to" say it, otherwise the start is named first."""
    if missing := looked_up(now, of):
        return missing
    query = str(now.of("browser")["query"])
    said, start, end = words_in(query), of["start"].lower(), of["end"].lower()
    ways = set(pairwise(said))
    named = ways & {("from", start), ("to", end)} or said.index(start) < said.index(end)
    if named and not ways & {("from", end), ("to", start)}:
        return ()
    return (unmet("browser.query", "direction", f"from {start} to {end}", query),)


def first_opened(now: State, of: Of) -> Unmets:
    return (
        *equals(now, "screen", "browser/page"),
        *has_words(now, "browser.query", of["text"]),
        *equals(now, "browser.result", "1"),
    )


def switch_shown(of: Params) -> Setup:
    return {"settings": {"show": of["switch"], "on": of["goal"] == "off"}}


def switched(start: State, of: Of) -> Kept:
    on = set(words_of(start.of("settings")["on"])) ^ {of["switch"]}
    return {("settings", "on"): tuple(sorted(on))}


def sent(start: State, of: Of) -> Kept:
    return {("messages", "sent"): (*words_of(start.of("messages")["sent"]), f"{of['contact']}: {of['text']}")}


def called(start: State, whom: str) -> Kept:
    return {("phone", "recent"): (whom, *words_of(start.of("phone")["recent"]))}


ASK = family(
    "ask", "browser",
    ("What is the {fact} of {country}?", "Find out the {fact} of {country}.", "Look up the {fact} of {country}."),
    {"fact": FACTS, "country": COUNTRIES}, look_up, types={"text": "{fact} of {country}"}, shows=looked_up,
)  # fmt: skip
WEATHER = family(
    "weather", "browser",
    (
        "What's the weather like in {city}?", "How is the weather in {city} today?", "Will it rain in {city} today?",
        "Show me the weather in {city}.",
    ),
    {"city": CITIES}, look_up, types={"text": "{city} weather"},
    shows=weather_found,
)  # fmt: skip
FLIGHTS = family(
    "flights", "browser",
    ("Search for flights from {start} to {end}.", "Find flights from {start} to {end}."),
    {"start": CITIES, "end": CITIES}, look_up, types={"text": "flights {start} {end}"},
    shows=flights_found,
)  # fmt: skip
NEWS = family(
    "news", "browser",
    ("Search for the latest news about {topic}.", "What's the news on {topic}?", "Show me news about {topic}."),
    {"topic": TOPICS}, look_up, types={"text": "{topic} news"}, shows=looked_up,
)  # fmt: skip
HOWTO = family(
    "howto", "browser",
    ("How do I {chore}?", "Look up how to {chore}.", "Search for how to {chore}."),
    {"chore": CHORES}, look_up, types={"text": "{chore}"}, shows=looked_up,
)  # fmt: skip
RECIPE = family(
    "recipe", "browser",
    ("Search for {dish} recipes and open the first result.", "Find a recipe for {dish} and open the first result."),
    {"dish": DISHES}, lambda now, of: moves.open_result(now, of["text"], "1"), types={"text": "{dish} recipe"},
    shows=lambda now, of: first_opened(now, {"text": of["dish"]}),
)  # fmt: skip
SWITCH = family(
    "switch", "settings",
    ("Turn {goal} {switch}.", "Go to settings and turn {goal} {switch}.", "Switch {switch} {goal} in the settings."),
    {"switch": SWITCHES, "goal": ("on", "off")}, lambda now, of: moves.toggle(now, of["switch"]),
    setup=switch_shown, changes=switched,
)  # fmt: skip
ALARM = family(
    "alarm", "clock",
    (
        "Set an alarm for {time}.", "Wake me up at {time}.", "Open the clock and set an alarm for {time}.",
        "I need an alarm at {time}.", "Please wake me at {time}.",
    ),
    {"time": TIMES}, lambda now, of: moves.set_alarm(now, of["time"]),
    changes=lambda start, of: {("clock", "alarms"): (of["time"],)},
)  # fmt: skip
MESSAGE = family(
    "message", "messages",
    (
        'Send a message to {contact} saying "buy {item}".', 'Text {contact} "buy {item}".',
        'Open messages and tell {contact} "buy {item}".',
    ),
    {"contact": CONTACTS, "item": ITEMS}, lambda now, of: moves.send(now, of["contact"], of["text"]),
    types={"text": "buy {item}"}, setup=lambda of: {"messages": {"contact": of["contact"]}}, changes=sent,
)  # fmt: skip
NOTE = family(
    "note", "notes",
    (
        'Make a note that says "find {item}".', 'Write "find {item}" in a new note.',
        'Open notes and note "find {item}".',
    ),
    {"item": ITEMS}, lambda now, of: moves.note(now, of["text"]), types={"text": "find {item}"},
    changes=lambda start, of: {("notes", "notes"): (*words_of(start.of("notes")["notes"]), of["text"])},
)  # fmt: skip

MUSIC = family(
    "music", "media",
    ('Play "{song}".', 'Listen to "{song}".', 'Play the song "{song}" in the media app.', 'I want to hear "{song}".'),
    {"song": SONGS}, lambda now, of: moves.play(now, "song", of["song"]),
    setup=lambda of: {"media": {"song": of["song"]}}, changes=lambda start, of: {("media", "on"): of["song"]},
)  # fmt: skip
VIDEO = family(
    "video", "media",
    ('Play the video "{video}".', 'Watch "{video}".', 'Show me the video "{video}" in the media app.'),
    {"video": VIDEOS}, lambda now, of: moves.play(now, "video", of["video"]),
    setup=lambda of: {"media": {"video": of["video"]}}, changes=lambda start, of: {("media", "on"): of["video"]},
)  # fmt: skip
PLACE = family(
    "place", "maps",
    ("Where is the {place}?", "Show me the {place} on the map.", "Find the {place} in maps."),
    {"place": PLACES}, lambda now, of: moves.find_place(now, of["text"]), types={"text": "{place}"},
    shows=lambda now, of: (*equals(now, "screen", "maps/place"), *equals(now, "maps.place", of["place"])), answers=SEEN,
)  # fmt: skip
ROUTE = family(
    "route", "maps",
    ("How do I get to the {place}?", "Show me the way to the {place}.", "Get directions to the {place}."),
    {"place": PLACES}, lambda now, of: moves.find_way(now, of["text"]), types={"text": "{place}"},
    shows=lambda now, of: (*equals(now, "screen", "maps/way"), *equals(now, "maps.place", of["place"])), answers=SEEN,
)  # fmt: skip
CALL = family(
    "call", "contacts",
    ("Call {person}.", "Give {person} a call.", "I want to talk to {person} on the phone."),
    {"person": PEOPLE}, lambda now, of: moves.call(now, of["person"]),
    setup=lambda of: {"contacts": {"contact": of["person"]}}, answers={"phone/permission": "allow"},
    changes=lambda start, of: called(start, of["person"]),
    or_changes=lambda start, of: (called(start, number_of(of["person"])),),
)  # fmt: skip
EVENT = family(
    "event", "calendar",
    ('Add "{event}" to my calendar on {date}.', 'Put "{event}" in the calendar on {date}.',
     'Create an event "{event}" on {date}.'),
    {"event": EVENTS, "date": DATES}, lambda now, of: moves.plan(now, of["text"], of["date"]),
    types={"text": "{event}"},
    changes=lambda start, of: {
        ("calendar", "events"): (*words_of(start.of("calendar")["events"]), f"{of['date']}: {of['event']}")
    },
)  # fmt: skip

CONTACT = family(
    "contact", "contacts",
    ("Create a new contact for {person}.", "Add {person} to my contacts.", "Save {person} as a new contact."),
    {"person": PEOPLE}, lambda now, of: moves.add_contact(now, of["text"]), types={"text": "{person}"},
    setup=lambda of: {"contacts": {"missing": of["person"]}},
    changes=lambda start, of: {
        ("contacts", "people"): tuple(sorted((*words_of(start.of("contacts")["people"]), of["person"])))
    },
)  # fmt: skip
WATCH = family(
    "watch", "clock",
    ("Run the stopwatch{when}.", "Start the stopwatch{when}.", "Turn on the stopwatch{when}.",
     "Let the stopwatch run{when}.", "Please run the stopwatch{when}.", "Please start the stopwatch{when}.",
     "Open the clock and run the stopwatch{when}.", "Open the clock and start the stopwatch{when}."),
    {"when": ("", " now", " right away", " for me")}, lambda now, of: moves.run_stopwatch(now),
    changes=lambda start, of: {("clock", "watching"): True},
)  # fmt: skip
AGENDA = family(
    "agenda", "calendar",
    ("Check the events of {date} in the calendar.", "What is planned on {date}?", "Show me my plans for {date}."),
    {"date": DATES}, lambda now, of: moves.show_day(now, of["date"]),
    shows=lambda now, of: (*equals(now, "screen", "calendar/day"), *equals(now, "calendar.date", of["date"])),
)  # fmt: skip
UPDATE = family(
    "update", "store",
    ("Check in the store if there is an update for {app}.", "Is there an update of {app} in the store?",
     "Look in the store whether {app} can be updated."),
    {"app": STORE_APPS}, lambda now, of: moves.show_app(now, of["text"]), types={"text": "{app}"},
    setup=lambda of: {"store": {"old": of["app"]}},
    shows=lambda now, of: (*equals(now, "screen", "store/app"), *equals(now, "store.shown", of["app"])),
)  # fmt: skip

HELD_OUT: Final = (
    ASK, WEATHER, FLIGHTS, NEWS, HOWTO, RECIPE, SWITCH, ALARM, MESSAGE, NOTE, MUSIC, VIDEO, PLACE, ROUTE, CALL, EVENT,
)  # fmt: skip
TRAINING_ALONE: Final = (CONTACT, WATCH, AGENDA, UPDATE)
KINDS: Final = (*HELD_OUT, *TRAINING_ALONE)

GENERAL: Final = ListedSuite(
    "general", 15, KINDS,
    {
        Split.TRAIN: {kind.name: 30 for kind in KINDS},
        Split.VALIDATION: {kind.name: 4 for kind in HELD_OUT},
        Split.TEST: {kind.name: 8 for kind in HELD_OUT},
    },
)  # fmt: skip
