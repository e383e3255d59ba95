"""Music and video: two lists, and a player with play, pause and next."""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup, wanted
from simphone.apps.lists import first_of, row_of, rows, scrolled
from simphone.element import INK, LIGHT, VIOLET, WIDTH, Colour, Element, Elements, title
from simphone.lexicon import SONGS, VIDEOS, named
from simphone.state import AppData, State, chance, words_of

EVERY: Final = {"song": named(SONGS), "video": named(VIDEOS)}
OF: Final = {"media/music": "songs", "media/video": "videos"}
"""The list that a screen shows."""
STORED, IN_SIGHT = 12, 5
NOT_ON: Final[Colour] = (232, 228, 240)


def fresh(rng: random.Random, setup: Setup) -> AppData:
    """setup: {"song": one that must be there, "video": one that must be there}."""
    lists: dict[str, tuple[str, ...]] = {}
    for kind, every in EVERY.items():
        stored, asked = rng.sample(every, STORED), wanted(setup, kind, every)
        if asked and asked not in stored:
            stored[rng.randrange(STORED)] = asked
        lists[f"{kind}s"] = tuple(stored)
    return {**lists, "track": "", "playing": False, "first": 0}


def elements(state: State) -> Elements:
    data = state.of("media")
    track, playing = str(data["track"]), bool(data["playing"])
    button = "pause" if playing else "play"
    if state.screen == "media/player":
        rng = chance("cover", track)
        cover = (rng.randrange(60, 230), rng.randrange(60, 230), rng.randrange(60, 230))
        return (
            title("playing" if playing else "paused", VIOLET),
            Element("picture", (16, 36, 112, 132), colour=cover),
            Element("text", (0, 144, WIDTH, 168), text=track, colour=INK),
            Element(button, (16, 184, 64, 232), button, button, colour=VIOLET),
            Element("next", (64, 184, 112, 232), "next", "next", colour=VIOLET),
        )
    music = state.screen == "media/music"
    names = words_of(data[OF[state.screen]])
    small = (
        Element("row", (0, 208, 92, 256), track, "track", colour=NOT_ON),
        Element(button, (92, 208, WIDTH, 256), button, button, colour=VIOLET),
    )
    return (
        Element("tab", (0, 0, 64, 32), "music", "music", on=music, colour=LIGHT),
        Element("tab", (64, 0, WIDTH, 32), "video", "video", on=not music, colour=LIGHT),
        *rows(names, first_of(state, "media"), 40, IN_SIGHT, {track: "playing" if playing else "paused"}),
        *(small if track else ()),
    )


def moves(state: State, seconds: float) -> Elements:
    """A bright bar that moves across the picture of the playing video or song."""
    if state.screen != "media/player" or not state.of("media")["playing"]:
        return ()
    left = 16 + int(seconds * 100) % 88
    return (Element("picture", (left, 36, left + 8, 132), colour=LIGHT),)


def tap(state: State, target: str) -> State:
    match target:
        case "music" | "video":
            return replaced(state, f"media/{target}")
        case "play" | "pause":
            return state.remember("media", playing=target == "play")
        case "next":
            return state.remember("media", track=following(state), playing=True)
        case "track":
            return state.goto("media/player")
    return state.remember("media", track=row_of(target), playing=True).goto("media/player").load()


def replaced(state: State, screen: str) -> State:
    """Replaces one list by the other, so that BACK leaves the app from both."""
    if state.screen == screen:
        return state
    shown = state.remember("media", first=0)
    return shown.leave() if screen == APP.start else shown.goto(screen)


def following(state: State) -> str:
    """The next track of the list; after the last one the first."""
    data = state.of("media")
    track = str(data["track"])
    names = next(names for names in (words_of(data["songs"]), words_of(data["videos"])) if track in names)
    return names[(names.index(track) + 1) % len(names)]


def swipe(state: State, direction: str) -> State:
    return scrolled(state, "media", STORED, IN_SIGHT, direction) if state.screen in OF else state


APP: Final = App("media", "media/music", fresh, elements, tap, swipe=swipe, takes=("song", "video"), moves=moves)
