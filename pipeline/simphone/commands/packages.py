"""`pm` and `cmd package`: the phone's apps, their paths and activities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simphone.apps import REGISTRY, app_named, store
from simphone.commands.base import FAILED, CommandError, CommandResult, Invocation, complained, said
from simphone.handset import Handset
from simphone.machine import package_of

LAUNCHER: Final = "launcher"
HOME: Final = "android.intent.category.HOME"
SYSTEM: Final = frozenset({LAUNCHER, "settings"})
"""Apps that belong to Android itself; the others count as installed by a user."""
FIRST_UID: Final = 10_050
EVERY: Final = (*sorted(REGISTRY), *store.EVERY)
"""Every app that a phone may have."""


def app_of(package: str, apps: Sequence[str]) -> str | None:
    """The app of a package; None if the phone does not have it."""
    return next((app for app in apps if package_of(app) == package), None)


def activity_of(app: str) -> str:
    """The activity that its icon starts: package/.Activity."""
    screen = app_named(app).start.partition("/")[2]
    return f"{package_of(app)}/.{screen.capitalize()}"


def uid_of(app: str) -> int:
    return FIRST_UID + EVERY.index(app)


def apk_of(app: str) -> str:
    return f"/system/app/{app}/{app}.apk" if app in SYSTEM else f"/data/app/{package_of(app)}/base.apk"


async def pm(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case ["list", "packages", *options]:
            return said("".join(_listed(phone.machine.apps(), options)))
        case ["path", *options]:
            app = app_of(options[-1], phone.machine.apps()) if options else None
            return said(f"package:{apk_of(app)}\n") if app else CommandResult(code=FAILED)
        case ["resolve-activity", *options]:
            app = LAUNCHER if HOME in options else app_of(options[-1], phone.machine.apps()) if options else None
            if app is None:
                return said("No activity found\n", FAILED)
            return said(f"priority=0 preferredOrder=0 match=0x108000 isDefault=true\n{activity_of(app)}\n")
        case ["install" | "install-create", *_]:
            return complained("Failure [INSTALL_FAILED_USER_RESTRICTED: a simulated phone has the apps that it has]\n")
        case ["uninstall", *_]:
            return said("Failure [DELETE_FAILED_USER_RESTRICTED]\n", FAILED)
        case ["clear", *_]:
            raise CommandError("the apps of a simulated phone are reset together, by `simctl reset --seed N`")
    raise CommandError("usage: pm list packages [-3 | -s] [-f] [-U] [FILTER] | path PACKAGE | resolve-activity PACKAGE")


async def cmd(phone: Handset, call: Invocation) -> CommandResult:
    """adb itself uses `cmd package` instead of `pm` if the phone supports it."""
    match call.args:
        case ["package", *args]:
            return await pm(phone, Invocation(tuple(args), call.directory))
        case [service, *_]:
            return complained(f"cmd: Can't find service: {service}\n", 20)
    raise CommandError("usage: cmd package …")


def _listed(every: Sequence[str], options: Sequence[str]) -> list[str]:
    apps, files, uids, wanted = sorted(every), False, False, ""
    words = iter(options)
    for word in words:
        match word:
            case "-3":
                apps = [app for app in apps if app not in SYSTEM]
            case "-s":
                apps = [app for app in apps if app in SYSTEM]
            case "-d":
                apps = []
            case "-f":
                files = True
            case "-U":
                uids = True
            case "-e" | "-i" | "-u":
                pass
            case "--user":
                next(words, None)
            case option if option.startswith("-"):
                raise CommandError(f"Error: Unknown option: {option}")
            case _:
                wanted = word
    return [
        f"package:{f'{apk_of(app)}=' if files else ''}{package_of(app)}{f' uid:{uid_of(app)}' if uids else ''}\n"
        for app in apps
        if wanted in package_of(app)
    ]


COMMANDS = {"cmd": cmd, "pm": pm}
