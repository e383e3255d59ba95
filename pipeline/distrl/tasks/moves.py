"""The scripts by app: the next action for a goal, from the phone's true state. Pure.

Each function is called again after every action while its app is open, and corrects earlier mistakes.
"""

from __future__ import annotations

from simphone.apps import calendar, maps, sites, store
from simphone.lexicon import MONTHS
from simphone.state import State, words_of

from distrl.tasks.scripted_actions import BACK, WAIT, swipe, tap, tap_row, write
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
    """Clock: set this alarm and no other."""
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


def run_stopwatch(now: State) -> Action:
    """Clock: start it."""
    return tap(now, "stopwatch" if now.screen == "clock/face" else "start")


def play(now: State, kind: str, name: str) -> Action:
    """Media: play a song or a video."""
    data = now.of("media")
    if now.screen == "media/player":
        return tap(now, "play") if data["track"] == name else BACK
    tab = "music" if kind == "song" else "video"
    if now.screen != f"media/{tab}":
        return tap(now, tab)
    return tap_row(now, words_of(data[f"{kind}s"]), name)


def find_place(now: State, place: str) -> Action:
    """Maps: search for a place and show it."""
    if now.screen == "maps/results" and now.of("maps")["query"] == place:
        return tap_row(now, maps.found(place), place)
    return write(now, place) if now.screen == "maps/search" else BACK


def find_way(now: State, place: str) -> Action:
    """Maps: show the way to a place."""
    here = now.screen == "maps/place" and now.of("maps")["place"] == place
    return tap(now, "directions") if here else find_place(now, place)


def set_off(now: State, place: str, mode: str) -> Action:
    """Maps: begin the way to a place, on foot or by car."""
    data = now.of("maps")
    if now.screen != "maps/way" or data["place"] != place:
        return find_way(now, place)
    return tap(now, "start" if data["mode"] == mode else mode)


def star(now: State, place: str) -> Action:
    """Maps: have a place starred."""
    here = now.screen == "maps/place" and now.of("maps")["place"] == place
    return tap(now, "star") if here else find_place(now, place)


def call(now: State, person: str) -> Action:
    """Contacts: call a person."""
    data = now.of("contacts")
    if now.screen == "contacts/person" and data["person"] == person:
        return tap(now, "call")
    return tap_row(now, words_of(data["people"]), person) if now.screen == "contacts/list" else BACK


def add_contact(now: State, person: str) -> Action:
    """Contacts: a new one."""
    return tap(now, "new") if now.screen == "contacts/list" else write(now, person, "save")


def show_day(now: State, date: str) -> Action:
    """Calendar: show the events of a day."""
    if now.screen != "calendar/month":
        return BACK
    month, _, day = date.partition(" ")
    ahead = MONTHS.index(month) + 1 - int(str(now.of("calendar")["month"]))
    return swipe("left" if ahead > 0 else "right") if ahead else tap(now, f"day {day}")


def plan(now: State, event: str, date: str) -> Action:
    """Calendar: add an event."""
    if now.of("calendar")["date"] == date and now.screen == "calendar/day":
        return tap(now, "new")
    if now.of("calendar")["date"] == date and now.screen == "calendar/new":
        return write(now, event, "save")
    return show_day(now, date)


def cancel_event(now: State, event: str, date: str) -> Action:
    """Calendar: tap an event, which opens the dialog to delete it."""
    if now.of("calendar")["date"] == date and now.screen == "calendar/day":
        return tap_row(now, calendar.planned(now, date), event)
    return show_day(now, date)


def show_app(now: State, app: str) -> Action:
    """Store: the page of an app."""
    if now.screen == "store/results" and now.of("store")["query"] == app:
        return tap_row(now, store.found(app), app)
    return write(now, app) if now.screen == "store/home" else BACK


def press_of_app(now: State, app: str, button: str) -> Action:
    """Store: a button on the page of an app. While an installation goes on, wait."""
    data = now.of("store")
    if now.screen != "store/app" or data["shown"] != app:
        return show_app(now, app)
    return WAIT if data["pending"] == app else tap(now, button)


def open_app(now: State, app: str) -> Action:
    """Store: open an app, which is installed first if it has to be."""
    return press_of_app(now, app, "open" if app in store.installed(now) else "install")


def read_mail(now: State, subject: str) -> Action:
    """Mail: open a letter."""
    return tap_row(now, words_of(now.of("mail")["inbox"]), subject) if now.screen == "mail/inbox" else BACK


def reply(now: State, subject: str, text: str) -> Action:
    """Mail: answer a letter."""
    data = now.of("mail")
    if now.screen == "mail/letter" and data["mail"] == subject:
        return tap(now, "reply")
    if now.screen == "mail/write" and now.back[-1] == "mail/letter" and data["mail"] == subject:
        return write(now, text, "send")
    return read_mail(now, subject)


def delete_mail(now: State, subject: str) -> Action:
    """Mail: open the dialog to delete a letter."""
    here = now.screen == "mail/letter" and now.of("mail")["mail"] == subject
    return tap(now, "delete") if here else read_mail(now, subject)


def mail_to(now: State, person: str, text: str) -> Action:
    """Mail: a new letter to somebody of the contacts."""
    match now.screen:
        case "mail/inbox":
            return tap(now, "new")
        case "mail/to":
            return tap_row(now, words_of(now.of("contacts")["people"]), person)
        case "mail/write" if now.of("mail")["to"] == person:
            return write(now, text, "send")
    return BACK


def visit(now: State, site: str) -> Action:
    """Browser: type the address of a shop site."""
    return BACK if now.screen in sites.SCREENS else search(now, site)


def search_site(now: State, site: str, ware: str) -> Action:
    """Browser: search for a product on a shop site; cookies are refused."""
    if now.screen not in sites.SCREENS or now.of("browser")["site"] != site:
        return visit(now, site)
    if sites.asks_for_cookies(now):
        return tap(now, "refuse")
    return write(now, ware) if now.screen == sites.SITE else BACK


def open_ware(now: State, site: str, ware: str) -> Action:
    """Browser: search for a product on a shop site and open its page."""
    data = now.of("browser")
    if now.screen != sites.FOUND or (data["site"], data["asked"]) != (site, ware):
        return search_site(now, site, ware)
    return tap_row(now, sites.found(now), ware)


def add_to_cart(now: State, site: str, ware: str) -> Action:
    """Browser: the same, and add it to the cart."""
    data = now.of("browser")
    here = now.screen == sites.WARE and (data["site"], data["ware"]) == (site, ware)
    return tap(now, "add") if here else open_ware(now, site, ware)
