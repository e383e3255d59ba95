"""`getprop`, `wm`, `settings` and `svc`: the phone's properties and settings."""

from __future__ import annotations

from typing import Final

from simphone.commands.base import CommandError, CommandResult, Invocation, said
from simphone.commands.dumpsys import DENSITY
from simphone.handset import Handset

NAMESPACES: Final = ("system", "secure", "global")
MOST_SETTINGS: Final = 256
LONGEST_SETTING: Final = 1000
"""Characters of a name or a value."""
SWITCHED_BY_SVC: Final = {"wifi": "wifi_on", "data": "mobile_data", "bluetooth": "bluetooth_on", "nfc": "nfc_on"}


async def getprop(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case []:
            return said("".join(f"[{name}]: [{phone.properties[name]}]\n" for name in sorted(phone.properties)))
        case [name, *default]:
            return said(f"{phone.properties.get(name) or ''.join(default[:1])}\n")
    raise AssertionError("every list of words is one of these")


async def wm(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case ["size"]:
            width, height = phone.machine.size
            return said(f"Physical size: {width}x{height}\n")
        case ["density"]:
            return said(f"Physical density: {DENSITY}\n")
        case ["size" | "density", _]:
            raise CommandError("the screen of a simulated phone cannot be changed")
        case ["dismiss-keyguard"]:  # it has no keyguard
            return CommandResult()
    raise CommandError("usage: wm size | density | dismiss-keyguard")


async def settings(phone: Handset, call: Invocation) -> CommandResult:
    """Stored while the phone runs; they do not affect the screens."""
    args = call.args[2:] if call.args[:1] == ("--user",) else call.args
    match args:
        case ["get", namespace, key]:
            return said(f"{phone.settings.get((_namespace(namespace), key), 'null')}\n")
        case ["put", namespace, key, value, *_]:
            _put(phone, _namespace(namespace), key, value)
            return CommandResult()
        case ["delete", namespace, key]:
            there = phone.settings.pop((_namespace(namespace), key), None) is not None
            return said(f"Deleted {int(there)} rows\n")
        case ["list", namespace]:
            named = sorted(
                (key, value) for (where, key), value in phone.settings.items() if where == _namespace(namespace)
            )
            return said("".join(f"{key}={value}\n" for key, value in named))
    raise CommandError(
        "usage: settings get NAMESPACE KEY | put NAMESPACE KEY VALUE | delete NAMESPACE KEY | "
        f"list NAMESPACE; namespaces are {', '.join(NAMESPACES)}"
    )


async def svc(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case [what, "enable" | "disable" as done] if what in SWITCHED_BY_SVC:
            _put(phone, "global", SWITCHED_BY_SVC[what], str(int(done == "enable")))
            return CommandResult()
        case ["power", "stayon", _]:
            return CommandResult()
    raise CommandError(f"usage: svc {'|'.join(SWITCHED_BY_SVC)} enable|disable")


def _namespace(name: str) -> str:
    if name not in NAMESPACES:
        raise CommandError(f"Invalid namespace {name!r}; namespaces are {', '.join(NAMESPACES)}")
    return name


def _put(phone: Handset, namespace: str, key: str, value: str) -> None:
    full = len(phone.settings) >= MOST_SETTINGS and (namespace, key) not in phone.settings
    if full or len(key) > LONGEST_SETTING or len(value) > LONGEST_SETTING:
        raise CommandError(f"a phone keeps {MOST_SETTINGS} settings of {LONGEST_SETTING} characters")
    phone.settings[(namespace, key)] = value


COMMANDS = {"getprop": getprop, "settings": settings, "svc": svc, "wm": wm}
