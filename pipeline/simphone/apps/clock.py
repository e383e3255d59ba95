"""A clock with a page of alarms, each toggled by a tap, a stopwatch and a timer.

The phone's time, and with it stopwatch and timer, advances by one second per event.
"""

from __future__ import annotations

import random
from typing import Final

from simphone.apps.app import App, Setup, ignore
from simphone.element import GREEN, GREY, NAVY, RED, WHITE, WIDTH, Element, Elements, title
from simphone.lexicon import MINUTES
from simphone.overlays import Dialog
from simphone.state import AppData, State, words_of
from simphone.words import HALVES, HOURS

DARK = (60, 60, 92)


def fresh(rng: random.Random, setup: Setup) -> AppData:
    return {"alarms": (), "watching": False, "watched": 0, "minutes": "", "left": 0}


def elements(state: State) -> Elements:
    match state.screen:
        case "clock/stopwatch":
            return _stopwatch(state)
        case "clock/timer":
            return _timer(state)
    alarms = state.screen == "clock/alarms"
    tabs = (
        Element("tab", (0, 0, 64, 32), "clock", "clock", on=not alarms, colour=NAVY),
        Element("tab", (64, 0, WIDTH, 32), "alarm", "alarm", on=alarms, colour=NAVY),
    )
    if not alarms:
        return (
            *tabs,
            Element("dial", (24, 80, 104, 160), colour=WHITE),
            Element("button", (16, 176, 112, 208), "stopwatch", "stopwatch", colour=DARK),
            Element("button", (16, 216, 112, 248), "timer", "timer", colour=DARK),
        )
    set_ones = words_of(state.of("clock")["alarms"])
    return (
        *tabs,
        *(
            Element(
                "tile",
                (c * 64, 48 + r * 32, c * 64 + 64, 80 + r * 32),
                f"{hour} {half}",
                f"{hour} {half}",
                on=f"{hour} {half}" in set_ones,
                colour=DARK,
            )
            for r, hour in enumerate(HOURS)
            for c, half in enumerate(HALVES)
        ),
    )


def _stopwatch(state: State) -> Elements:
    data = state.of("clock")
    word = "stop" if data["watching"] else "start"
    return (
        title("stopwatch", NAVY),
        Element("text", (0, 80, WIDTH, 120), text=_time(int(str(data["watched"]))), colour=WHITE),
        Element("round", (8, 168, 60, 220), word, word, colour=RED if data["watching"] else GREEN),
        Element("round", (68, 168, 120, 220), "reset", "reset", colour=GREY),
    )


def _timer(state: State) -> Elements:
    data = state.of("clock")
    left = int(str(data["left"]))
    word = "stop" if left else "start"
    return (
        title("timer", NAVY),
        *(
            Element(
                "tile",
                (i % 2 * 64, 40 + i // 2 * 32, i % 2 * 64 + 64, 72 + i // 2 * 32),
                f"{each} min",
                f"{each} min",
                on=each == data["minutes"],
                colour=DARK,
            )
            for i, each in enumerate(MINUTES)
        ),
        Element("text", (0, 112, WIDTH, 152), text=_time(left), colour=WHITE),
        Element("round", (38, 168, 90, 220), word, word, colour=RED if left else GREEN),
    )


def _time(seconds: int) -> str:
    return f"{seconds // 60:02}:{seconds % 60:02}"


def moves(state: State, seconds: float) -> Elements:
    """The hundredths of a running stopwatch."""
    if state.screen != "clock/stopwatch" or not state.of("clock")["watching"]:
        return ()
    return (Element("text", (0, 120, WIDTH, 148), text=f".{int(seconds * 100) % 100:02}", colour=WHITE),)


def tap(state: State, target: str) -> State:
    data = state.of("clock")
    match state.screen, target:
        case "clock/stopwatch", "reset":
            return state.remember("clock", watched=0, watching=False)
        case "clock/stopwatch", _:
            return state.remember("clock", watching=target == "start")
        case "clock/timer", "stop":
            return state.remember("clock", left=0)
        case "clock/timer", "start":
            chosen = str(data["minutes"])
            return state.remember("clock", left=60 * int(chosen)) if chosen else state.say("choose a time")
        case "clock/timer", _:
            return state.remember("clock", minutes=target.removesuffix(" min"), left=0)
        case "clock/face", "stopwatch" | "timer":
            return state.goto(f"clock/{target}")
        case _, "alarm":
            return state if state.screen == "clock/alarms" else state.goto("clock/alarms")
        case _, "clock":
            return state.leave() if state.screen == "clock/alarms" else state
    return state.remember("clock", alarms=tuple(sorted(set(words_of(data["alarms"])) ^ {target})))


def tick(state: State) -> State:
    """One second passes, also in the background; an expired timer shows its dialog."""
    data = state.of("clock")
    if data["watching"]:
        state = state.remember("clock", watched=int(str(data["watched"])) + 1)
    left = int(str(data["left"]))
    if not left or (left == 1 and state.dialog):  # waits while another dialog is open
        return state
    state = state.remember("clock", left=left - 1)
    return state.ask("clock/up") if left == 1 else state


APP: Final = App(
    "clock", "clock/face", fresh, elements, tap, background=NAVY, tick=tick, moves=moves,
    questions={"up": Dialog("time is up", "ok", ignore, no="")},
)  # fmt: skip
