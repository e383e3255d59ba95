"""`logcat` and `log`: the phone's log, up to now or followed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from simphone.commands.base import CommandError, CommandResult, Invocation, said
from simphone.handset import Handset
from simphone.logbook import FORMATS, HEADING, MOST_ENTRIES, PRIORITIES, Logbook, LogEntry

BUFFERS: Final = frozenset({"main", "system", "crash", "events", "radio", "default", "all"})
USAGE: Final = (
    "usage: logcat [-d | -c | -g | -t COUNT | -T COUNT] [-v FORMAT] [-b BUFFER] [-s] [TAG:PRIORITY …]; "
    f"formats are {', '.join(FORMATS)}"
)


@dataclass
class LogcatOptions:
    """dump: stop at the end of the log. newest: only this many entries. least: lowest priority of each tag; "*" for
    all others."""

    dump: bool = False
    clear: bool = False
    sizes: bool = False
    newest: int = MOST_ENTRIES
    form: str = "threadtime"
    least: dict[str, str] = field(default_factory=lambda: {"*": "V"})

    def shows(self, entry: LogEntry) -> bool:
        least = self.least.get(entry.tag, self.least["*"])
        return PRIORITIES.index(entry.priority) >= PRIORITIES.index(least)


async def logcat(phone: Handset, call: Invocation) -> CommandResult:
    asked = _asked(iter(call.args))
    form = FORMATS[asked.form]
    if asked.clear:
        phone.log.clear()
        return CommandResult()
    if asked.sizes:
        return said(f"main: ring buffer is {MOST_ENTRIES} entries, {len(phone.log.entries())} used\n")
    if asked.dump:
        shown = [entry for entry in phone.log.entries() if asked.shows(entry)]
        return said(HEADING + "".join(form(entry) for entry in shown[-asked.newest :]))
    return CommandResult(HEADING.encode(), follow=_followed(phone.log, asked, form))


async def _followed(log: Logbook, asked: LogcatOptions, form: Callable[[LogEntry], str]) -> AsyncIterator[bytes]:
    shown = [entry.number for entry in log.entries() if asked.shows(entry)][-asked.newest :]
    first = shown[0] if shown else 0
    async for entry in log.follow():
        if entry.number >= first and asked.shows(entry):
            yield form(entry).encode()


def _asked(words: Iterator[str]) -> LogcatOptions:
    """Raises RefusedError for unsupported options."""
    asked = LogcatOptions()
    simple: Mapping[str, str] = {"-d": "dump", "-c": "clear", "--clear": "clear", "-g": "sizes"}
    for word in words:
        option, _, joined = word.partition("=")
        if word in simple:
            setattr(asked, simple[word], True)
        elif option in ("-v", "--format"):
            asked.form = (joined or next(words, "")).split(",")[0]
        elif option in ("-b", "--buffer"):
            named = (joined or next(words, "")).split(",")
            if not set(named) <= BUFFERS:
                raise CommandError(f"unknown buffer among {', '.join(named)}")
        elif option in ("-t", "-T"):
            asked.newest, asked.dump = _count(next(words, "")), asked.dump or option == "-t"
        elif word == "-s":
            asked.least["*"] = "S"
        elif word.startswith("-"):
            raise CommandError(USAGE)
        else:
            tag, _, priority = word.partition(":")
            asked.least[tag] = _priority(priority or "V")
    if asked.form not in FORMATS:
        raise CommandError(USAGE)
    return asked


def _count(word: str) -> int:
    if not (word.isascii() and word.isdecimal()) or int(word[:9]) == 0:
        raise CommandError(f"{word!r} is no number of entries")
    return int(word[:9])


def _priority(letter: str) -> str:
    if len(letter) != 1 or letter.upper() not in PRIORITIES:
        raise CommandError(f"{letter!r} is no priority; they are {', '.join(PRIORITIES)}")
    return letter.upper()


async def log(phone: Handset, call: Invocation) -> CommandResult:
    """`log [-p PRIORITY] [-t TAG] MESSAGE`: a driver's own line."""
    args, priority, tag = list(call.args), "I", "log"
    while len(args) > 2 and args[0] in ("-p", "-t"):
        if args[0] == "-p":
            priority = _priority(args[1])
        else:
            tag = "".join(char for char in args[1] if char.isprintable())[:40]
        del args[:2]
    phone.log.note(tag, " ".join(args), priority)
    return CommandResult()


COMMANDS = {"log": log, "logcat": logcat}
