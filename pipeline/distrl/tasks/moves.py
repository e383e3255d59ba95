"""How a perfect hand goes about it in each app, one action at a time, from the phone's true state. Pure.

Each function is asked again after every action while its app is open, and mends what went wrong before.
"""

from __future__ import annotations

from distrl.phone.state import State, words_of
from distrl.tasks.hand import BACK, swipe, tap, write
from distrl.types import Action


def toggle(now: State, switch: str) -> Action:
    """Settings: turn the page to the switch and touch it."""
    shown, page = words_of(now.of("settings")["shown"]), now.of("settings")["page"]
    wanted = shown.index(switch) // 4
    return tap(now, switch) if wanted == page else swipe("up" if wanted else "down")


def search(now: State, text: str) -> Action:
    """Browser: search for `text`."""
    if now.screen == "browser/page":
        return BACK
    return tap(now, "field") if now.screen == "browser/results" else write(now, text)


def open_result(now: State, text: str, rank: str) -> Action:
    """Browser: search for `text` and open a result."""
    if now.screen == "browser/results" and now.of("browser")["query"] == text:
        return tap(now, rank)
    return search(now, text)


def set_alarm(now: State, time: str) -> Action:
    """Clock: have this alarm and no other."""
    if now.screen != "clock/alarms":
        return tap(now, "alarm")
    wrong = [other for other in words_of(now.of("clock")["alarms"]) if other != time]
    return tap(now, wrong[0] if wrong else time)


def send(now: State, contact: str, text: str) -> Action:
    """Messages: send `text` to a contact."""
    if now.screen == "messages/list":
        return tap(now, contact)
    return write(now, text, "send") if now.of("messages")["with"] == contact else BACK


def note(now: State, text: str) -> Action:
    """Notes: write one."""
    return tap(now, "new") if now.screen == "notes/list" else write(now, text, "save")
