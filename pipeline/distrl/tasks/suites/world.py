"""Entity pools that several suites share: the phone's own entities, with the same splits in every suite."""

from __future__ import annotations

from typing import Final

from simphone import lexicon

from distrl.tasks.entity_pool import joined, of_home, pairs

SWITCHES: Final = of_home("switch")
TIMES: Final = of_home("time")
CONTACTS: Final = of_home("contact")
"""The contacts of the messages app."""
ITEMS: Final = of_home("item")
SONGS: Final = pairs("song", lexicon.SONGS)
VIDEOS: Final = pairs("video", lexicon.VIDEOS)
PLACES: Final = pairs("place", lexicon.PLACES)
EVENTS: Final = pairs("event", lexicon.EVENTS)
MAILS: Final = pairs("mail", lexicon.MAILS)
STORE_APPS: Final = pairs("app", lexicon.STORE_APPS)
WARES: Final = pairs("ware", lexicon.WARES)
_OTHERS: Final = tuple(pair for pair in lexicon.PEOPLE if " ".join(pair) not in CONTACTS.entities)
PEOPLE: Final = joined("person", CONTACTS, pairs("person", _OTHERS))
"""The people of contacts and mail; those of messages keep their splits."""

DATES: Final = tuple(f"{month} {day}" for month in lexicon.MONTHS[:3] for day in range(1, 29))
"""Two swipes away at most."""
