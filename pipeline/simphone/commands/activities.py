"""`am` and `monkey`: apps are started as their icons would start them, and stopped.

An activity is found by its component, by its package, or by its action and the scheme of its data. An app always opens
at its start screen: further contents of an intent (a page, a number) are printed and ignored, since the simulated apps
do not support them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from simphone.commands.base import CommandError, CommandResult, Invocation, complained, said
from simphone.commands.packages import HOME, LAUNCHER, activity_of, app_of
from simphone.handset import Handset
from simphone.machine import PACKAGE, Key, Open, Text

CATEGORY: Final = "android.intent.category."
ACTION: Final = "android.intent.action."
MONKEY_ABORTED: Final = 252
BY_ACTION: Final[Mapping[str, str]] = {
    f"{ACTION}SHOW_ALARMS": "clock",
    f"{ACTION}SET_ALARM": "clock",
    f"{ACTION}WEB_SEARCH": "browser",
    f"{ACTION}CREATE_NOTE": "notes",
    f"{ACTION}SET_TIMER": "clock",
    f"{ACTION}DIAL": "phone",
    f"{ACTION}CALL": "phone",
}
BY_SCHEME: Final[Mapping[str, str]] = {
    "http": "browser", "https": "browser", "sms": "messages", "smsto": "messages", "mms": "messages",
    "tel": "phone", "mailto": "mail", "geo": "maps", "market": "store",
}  # fmt: skip
BY_CATEGORY: Final[Mapping[str, str]] = {
    HOME: LAUNCHER,
    f"{CATEGORY}APP_BROWSER": "browser",
    f"{CATEGORY}APP_CALENDAR": "calendar",
    f"{CATEGORY}APP_CONTACTS": "contacts",
    f"{CATEGORY}APP_EMAIL": "mail",
    f"{CATEGORY}APP_MAPS": "maps",
    f"{CATEGORY}APP_MARKET": "store",
    f"{CATEGORY}APP_MESSAGING": "messages",
    f"{CATEGORY}APP_MUSIC": "media",
}
SETTINGS_ACTIONS: Final = "android.settings."
FLAGS: Final = frozenset({"-W", "-S", "-D", "-N", "--activity-clear-top", "--activity-clear-task",
                          "--activity-single-top", "--activity-new-document", "--lockTask"})  # fmt: skip
FIELDS: Final = {"-n": "component", "-p": "package", "-a": "action", "-d": "data", "-c": "category"}
ONE_VALUE: Final = frozenset({"-t", "-f", "-i", "--user", "--display", "--windowingMode", "-R", "--grant-read-uri"})
TEXTS: Final = frozenset({"-e", "--es"})
TWO_VALUES: Final = frozenset({"-e", "--es", "--ez", "--ei", "--el", "--ef", "--eu", "--esa", "--eia"})


@dataclass(frozen=True, slots=True)
class Intent:
    """The arguments of `am start`; "" if missing. message: the text of the extra `msg`."""

    action: str = ""
    data: str = ""
    category: str = ""
    package: str = ""
    component: str = ""
    wait: bool = False
    message: str | None = None

    def __str__(self) -> str:
        named = (
            ("act", self.action),
            ("cat", self.category and f"[{self.category}]"),
            ("dat", self.data),
            ("pkg", self.package),
            ("cmp", self.component),
        )
        return "Intent { " + "".join(f"{name}={value} " for name, value in named if value) + "}"


async def am(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case ["start" | "start-activity", *words]:
            return await _start(phone, intent_of(words))
        case ["force-stop" | "kill", *options, package] if options in ([], ["--user", "0"]):
            running = phone.machine.focus().partition("/")[0] == package
            await phone.act(Key("HOME") if running else None, by_system=True)
            phone.stopped(package)
            return CommandResult()
        case ["broadcast", *words]:
            return await _broadcast(phone, intent_of(words))
        case ["get-current-user"]:
            return said("0\n")
    raise CommandError(
        "usage: am start [-W] [-n PACKAGE/.ACTIVITY] [-p PACKAGE] [-a ACTION] [-d DATA] [-c CATEGORY] | "
        "force-stop PACKAGE | broadcast -a ACTION | get-current-user"
    )


def intent_of(words: Sequence[str]) -> Intent:
    """Parses the arguments of `am start`. Raises RefusedError for an unknown option."""
    given: dict[str, str] = {}
    message: str | None = None
    wait, rest = False, iter(words)
    for word in rest:
        if word in FIELDS:
            given[FIELDS[word]] = _value(word, next(rest, None))
        elif word in ONE_VALUE:
            _value(word, next(rest, None))
        elif word in TWO_VALUES:
            name, value = _value(word, next(rest, None)), _value(word, next(rest, None))
            if word in TEXTS and name == "msg":
                message = value
        elif word in FLAGS:
            wait = wait or word == "-W"
        elif word.startswith("-"):
            raise CommandError(f"Error: Unknown option: {word}")
        elif "://" in word or word.endswith(":"):
            given["data"] = word
        else:
            given["component" if "/" in word else "package"] = word
    return Intent(**given, wait=wait, message=message)


def resolve(intent: Intent, apps: Sequence[str]) -> str | None:
    """The one of a phone's apps that answers an intent; None if none does."""
    if intent.component:
        package, _, activity = intent.component.partition("/")
        app = app_of(package, apps)
        short = f".{activity.removeprefix(package).removeprefix('.')}"
        return app if app and activity_of(app) == f"{package}/{short}" else None
    if intent.package:
        return app_of(intent.package, apps)
    if intent.category in BY_CATEGORY:
        return BY_CATEGORY[intent.category]
    if intent.action.startswith(SETTINGS_ACTIONS):
        return "settings"
    return BY_ACTION.get(intent.action) or BY_SCHEME.get(intent.data.partition(":")[0].lower())


async def _start(phone: Handset, intent: Intent) -> CommandResult:
    app = resolve(intent, phone.machine.apps())
    starting = f"Starting: {intent}\n"
    if app is None:
        why = (
            f"Error type 3\nError: Activity class {{{intent.component}}} does not exist.\n"
            if intent.component
            else f"Error: Activity not started, unable to resolve {intent}\n"
        )
        return CommandResult(starting.encode(), why.encode(), 1)
    took = await phone.act(Key("HOME") if app == LAUNCHER else Open(app), by_system=True)
    if not intent.wait:
        return said(starting)
    return said(
        f"{starting}Status: ok\nLaunchState: COLD\nActivity: {activity_of(app)}\n"
        f"TotalTime: {took * 1000:.0f}\nWaitTime: {took * 1000:.0f}\nComplete\n"
    )


async def _broadcast(phone: Handset, intent: Intent) -> CommandResult:
    """Only ADBKeyBoard receives broadcasts; all are reported as completed."""
    try:
        text = phone.keyboards.heard(intent.action, intent.package, intent.message)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if text is not None:
        await phone.act(Text(text))
    return said(f"Broadcasting: {intent}\nBroadcast completed: result=0\n")


async def monkey(phone: Handset, call: Invocation) -> CommandResult:
    """Starts one app, which is what drivers use it for; random events are refused."""
    package, count, words = "", "", iter(call.args)
    for word in words:
        if word == "-p":
            package = _value(word, next(words, None))
        elif word in ("-c", "-s", "--throttle", "--pct-syskeys"):
            _value(word, next(words, None))
        elif not word.startswith("-"):
            count = word
    if count != "1" or not package:
        raise CommandError(f"usage: monkey -p PACKAGE -c {CATEGORY}LAUNCHER 1")
    app = app_of(package, phone.machine.apps())
    if app is None:
        return complained("** No activities found to run, monkey aborted.\n", MONKEY_ABORTED)
    await phone.act(Key("HOME") if app == LAUNCHER else Open(app), by_system=True)
    return said(f"Events injected: 1\n## Network stats: elapsed time={phone.log.seconds}ms\n")


def _value(option: str, value: str | None) -> str:
    if value is None:
        raise CommandError(f"Error: Argument expected after {option!r}")
    return value


async def pidof(phone: Handset, call: Invocation) -> CommandResult:
    """Only the app in front runs."""
    running = phone.machine.focus().partition("/")[0]
    return said(f"{pid_of(running)}\n") if call.args[-1:] == (running,) else CommandResult(code=1)


def pid_of(package: str) -> int:
    """The pid of an app, constant, so that equal phones print the same."""
    return 2000 + sum(package.removeprefix(PACKAGE).encode())


COMMANDS = {"am": am, "monkey": monkey, "pidof": pidof}
