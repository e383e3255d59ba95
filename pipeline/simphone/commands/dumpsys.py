"""`dumpsys`: the lines that drivers look for, in Android's format; the rest is left out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from simphone.commands.activities import pid_of
from simphone.commands.base import FAILED, CommandResult, Invocation, complained, said
from simphone.commands.packages import FIRST_UID, apk_of, app_of, uid_of
from simphone.handset import Handset
from simphone.machine import package_of

DENSITY: Final = 160
DISPLAY_ID: Final = 4619827259835644672
"""SurfaceFlinger's id of the only display; `screencap -d` takes it."""
WINDOW_ID, ACTIVITY_ID, TASK_ID = "5f0cca1", "c3a9d02", 7
VERSION: Final = "1.0"
LOCK_SCREEN, SYSTEM_UI = "NotificationShade", "com.android.systemui"
"""Title and owner of the window in front of a locked phone."""


async def dumpsys(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case [] | ["-l"]:
            return said("Currently running services:\n" + "".join(f"  {name}\n" for name in sorted(SERVICES)))
        case [name, *args] if name in SERVICES:
            return said(SERVICES[name](phone, args))
        case [name, *_]:
            return complained(f"Can't find service: {name}\n", FAILED)
    raise AssertionError("every list of words is one of these")


def _focus(phone: Handset) -> str:
    """package/package.Activity, as a window is named."""
    package, _, activity = phone.machine.focus().partition("/")
    return f"{package}/{package}{activity}"


def _record(phone: Handset) -> str:
    return f"ActivityRecord{{{ACTIVITY_ID} u0 {phone.machine.focus()} t{TASK_ID}}}"


def _window(phone: Handset, args: Sequence[str]) -> str:
    width, height = phone.machine.size
    package = SYSTEM_UI if phone.locked else phone.machine.focus().partition("/")[0]
    window = f"Window{{{WINDOW_ID} u0 {LOCK_SCREEN if phone.locked else _focus(phone)}}}"
    return (
        "WINDOW MANAGER WINDOWS (dumpsys window windows)\n"
        f"  Window #0 {window}:\n    mOwnerUid={FIRST_UID} showForAllUsers=false package={package} appop=NONE\n"
        f"  Display: mDisplayId=0\n    init={width}x{height} {DENSITY}dpi cur={width}x{height} app={width}x{height}\n"
        f"  mCurrentFocus={window}\n"
        f"  mFocusedApp={_record(phone)}\n"
        f"  mInputMethodTarget={window if phone.machine.typing() else 'null'}\n"
        "  mDisplayFrozen=false mRotation=ROTATION_0\n"
    )


def _activity(phone: Handset, args: Sequence[str]) -> str:
    if args[:1] == ["top"]:
        package, _, activity = phone.machine.focus().partition("/")
        running = f"ACTIVITY {package}/{activity} {ACTIVITY_ID} pid={pid_of(package)}"
        return f"TASK {package} id={TASK_ID} userId=0\n  {running}\n"
    return (
        "ACTIVITY MANAGER ACTIVITIES (dumpsys activity activities)\nDisplay #0 (activities from top to bottom):\n"
        f"  topResumedActivity={_record(phone)}\n  mResumedActivity: {_record(phone)}\n"
        f"  mFocusedApp={_record(phone)}\n"
    )


def _display(phone: Handset, args: Sequence[str]) -> str:
    width, height = phone.machine.size
    return (
        "DISPLAY MANAGER (dumpsys display)\n"
        f"  DisplayViewport{{type=INTERNAL, valid=true, isActive=true, displayId=0, uniqueId='local:{DISPLAY_ID}', "
        f"physicalPort=0, orientation=0, logicalFrame=Rect(0, 0 - {width}, {height}), "
        f"physicalFrame=Rect(0, 0 - {width}, {height}), deviceWidth={width}, deviceHeight={height}}}\n"
    )


def _package(phone: Handset, args: Sequence[str]) -> str:
    app = app_of(args[-1], phone.machine.apps()) if args else None
    if app is None:
        return "Packages:\n"
    return (
        f"Packages:\n  Package [{package_of(app)}] (5a7b9c1):\n    userId={uid_of(app)}\n    codePath={apk_of(app)}\n"
        f"    versionCode=1 minSdk=34 targetSdk=34\n    versionName={VERSION}\n    pkgFlags=[ HAS_CODE ALLOW_BACKUP ]\n"
        "    firstInstallTime=2024-01-01 00:00:00\n    lastUpdateTime=2024-01-01 00:00:00\n"
    )


def _power(phone: Handset, args: Sequence[str]) -> str:
    return (
        f"POWER MANAGER (dumpsys power)\n  mWakefulness={'Asleep' if phone.asleep else 'Awake'}\n"
        f"  mHoldingDisplaySuspendBlocker={str(not phone.asleep).lower()}\n"
        f"Display Power: state={'OFF' if phone.asleep else 'ON'}\n"
    )


def _battery(phone: Handset, args: Sequence[str]) -> str:
    return (
        "Current Battery Service state:\n  AC powered: true\n  USB powered: false\n  Wireless powered: false\n"
        "  Max charging current: 0\n  Max charging voltage: 0\n  Charge counter: 0\n  status: 2\n  health: 2\n"
        "  present: true\n  level: 100\n  scale: 100\n  voltage: 5000\n  temperature: 250\n  technology: Li-ion\n"
    )


def _input_method(phone: Handset, args: Sequence[str]) -> str:
    method = phone.keyboards.selected
    shown = str(phone.machine.typing()).lower()
    return (
        f"Current Input Method Manager state:\n  mCurMethodId={method}\n"
        f"  mCurId={method} mHaveConnection=true mBoundToMethod=true mVisibleBound=true\n"
        f"  mInputShown={shown}\n  mIsInputViewShown={shown}\n"
    )


def _trust(phone: Handset, args: Sequence[str]) -> str:
    """With a work profile, whose lock is no concern of the user in front."""
    return (
        "Trust manager state:\n"
        f' User "Owner" (id=0, flags=0x4c13) (current): trusted=0, trustManaged=0, deviceLocked={int(phone.locked)}, '
        "isActiveUnlockRunning=0, strongAuthRequired=0x0\n   Enabled agents:\n   Events:\n"
        ' User "Work profile" (id=10, flags=0x1030) (managed profile): trusted=0, trustManaged=0, deviceLocked=1, '
        "isActiveUnlockRunning=0, strongAuthRequired=0x1\n   Enabled agents:\n   Events:\n"
    )


def _surface_flinger(phone: Handset, args: Sequence[str]) -> str:
    return f'Display {DISPLAY_ID} (HWC display 0): port=0 pnpId=SIM displayName="simulated"\n'


def _input(phone: Handset, args: Sequence[str]) -> str:
    return "INPUT MANAGER (dumpsys input)\n    SurfaceOrientation: 0\n"


SERVICES: Final[Mapping[str, Callable[[Handset, Sequence[str]], str]]] = {
    "SurfaceFlinger": _surface_flinger,
    "activity": _activity,
    "battery": _battery,
    "display": _display,
    "input": _input,
    "input_method": _input_method,
    "package": _package,
    "power": _power,
    "trust": _trust,
    "window": _window,
}

COMMANDS = {"dumpsys": dumpsys}
