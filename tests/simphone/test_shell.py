from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Callable

import pytest
from PIL import Image
from simphone.adbd import properties
from simphone.commands.base import CommandResult
from simphone.faults import Fault, Faults
from simphone.handset import Handset, Machine
from simphone.keyboards import SERVICE
from simphone.machine import Event, Key, Open, PhoneMachine, Swipe, Tap, Text
from simphone.shell import Shell


class Noting(PhoneMachine):
    def __init__(self) -> None:
        super().__init__(seed=1, popup_probability=0.0)
        self.events: list[Event] = []

    def apply(self, event: Event) -> None:
        self.events.append(event)
        super().apply(event)


def run(
    line: str,
    machine: Machine | None = None,
    fault: Fault | None = None,
    draw_latency: Callable[[], float] = lambda: 0.0,
) -> CommandResult:
    async def go() -> CommandResult:
        faults = Faults(time.monotonic)
        if fault is not None:
            faults.set(fault)
        handset = Handset(machine or Noting(), faults, draw_latency, properties("sim0"), keyboard_service=True)
        return await Shell(handset).run(line)

    return asyncio.run(go())


@pytest.mark.parametrize(
    ("line", "events"),
    [
        ("input tap 5 6", [Tap(5, 6)]),
        ("input tap 5.9 6", [Tap(5, 6)]),
        ("input swipe 1 2 3 4 10", [Swipe(1, 2, 3, 4)]),
        ("input text 'a%sb'", [Text("a b")]),
        ("input text '; reboot'", [Text("; reboot")]),
        ("input text --help", [Text("--help")]),
        ("input text 50% && input text soff", [Text("50%soff")]),
        ("input text a; input text b", [Text("a"), Text("b")]),
        ("input text a; input keyboard text b && input keyboard text c", [Text("a"), Text("abc")]),
        ("input text a; input tap 5 6; input keyboard text b", [Text("a"), Tap(5, 6), Text("b")]),
        ("input keyevent 3 4", [Key("HOME"), Key("BACK")]),
        ("input keyevent KEYCODE_ENTER", [Key("ENTER")]),
        ("input keyevent DEL", [Key("DEL")]),
        ("am start -a android.intent.action.MAIN -c android.intent.category.HOME", [Key("HOME")]),
        (
            "am start -a android.intent.action.MAIN -p com.sim.clock",
            [Open("clock")],
        ),
        ("am force-stop com.sim.not-in-front", []),
        ("am broadcast -a ADB_INPUT_B64 --es msg 5ryi", []),
        ("ime set com.android.adbkeyboard/.AdbIME && am broadcast -a ADB_INPUT_B64 --es msg 5ryi", [Text("\u6f22")]),
        ("ime set com.android.adbkeyboard/.AdbIME && am broadcast -a ADB_INPUT_B64 -p com.other --es msg 5ryi", []),
        ("ime set com.android.adbkeyboard/.AdbIME && am broadcast -a OTHER --es msg 5ryi", []),
        ("input keyevent WAKEUP", []),
    ],
)
def test_input_reaches_the_machine(line: str, events: list[Event]) -> None:
    machine = Noting()
    assert run(line, machine).code == 0
    assert machine.events == events


@pytest.mark.parametrize(
    "line",
    ["input", "input tap 5", "input tap x y", "input tap nan 1", "input tap inf 1", "input keyevent 999", "input text",
     "input keyevent \u0663", "screencap -x", "wm scaling", "dumpsys nothing", "pm clear x", "am start -n a/b",
     "am start -p clock", "am start -p com.sim.none", "am start -p", "ime", "ime set none/.None",
     "ime set com.android.adbkeyboard/.AdbIME && am broadcast -a ADB_INPUT_B64 --es msg '?'", "cmd package",
     "simctl", "simctl reset", "simctl reset --seed x", "simctl reset --seed 1 --setup '[1]'", "simctl fault odd 1",
     "simctl reset --seed 1 --setup '{\"no such app\": {}}'",
     "simctl fault silent", "simctl fault gone nan", "simctl fault gone -1"],
)  # fmt: skip
def test_what_cannot_be_done_fails_with_a_reason_and_changes_nothing(line: str) -> None:
    machine = Noting()
    before = machine.state()
    result = run(line, machine)
    assert result.code == 1
    assert result.stderr
    assert machine.state() == before
    assert machine.events == []
    assert result.afterwards == ()


def test_an_unknown_command_is_not_found() -> None:
    assert run("reboot").code == 127


def test_and_runs_the_next_only_after_success() -> None:
    assert run("reboot && echo a && echo b; echo c").stdout == b"c\n"
    assert run("echo a && echo b").stdout == b"a\nb\n"


def test_a_line_that_is_not_understood_runs_nothing() -> None:
    machine = Noting()
    assert run("input tap 1 1; echo $(reboot)", machine).code == 2
    assert machine.events == []


def test_what_a_driver_asks_of_android() -> None:
    machine = Noting()
    width, height = machine.size
    assert run("wm size", machine).stdout == f"Physical size: {width}x{height}\n".encode()
    assert run("getprop ro.serialno").stdout == b"sim0\n"
    assert b"[sys.boot_completed]: [1]\n" in run("getprop").stdout
    package = machine.focus().partition("/")[0]
    assert f" {package}/{package}.".encode() in run("dumpsys window windows", machine).stdout
    assert all(line.startswith("package:com.sim.") for line in run("pm list packages").stdout.decode().splitlines())
    assert run("screencap -p", machine).stdout == machine.png()
    assert b"  mWakefulness=Awake\n" in run("dumpsys power").stdout
    assert run("ime list -s").stdout.split() == [b"com.android.inputmethod.latin/.LatinIME", SERVICE.encode()]
    assert run(f"ime set {SERVICE} && settings get secure default_input_method").stdout.endswith(
        f"{SERVICE}\n".encode()
    )
    home = "cmd package resolve-activity --brief -a android.intent.action.MAIN -c android.intent.category.HOME"
    assert run(home).stdout.decode().splitlines()[-1] == "com.sim.launcher/.Home"


def test_a_phone_that_sleeps_shows_nothing_and_does_nothing_until_it_is_woken() -> None:
    machine = Noting()
    black = run("screencap -p", machine, Fault.ASLEEP).stdout
    assert Image.open(io.BytesIO(black)).getextrema() == ((0, 0),) * 3
    pixels = run("screencap", machine, Fault.ASLEEP).stdout[16:]
    assert set(pixels[0::4] + pixels[1::4] + pixels[2::4]) == {0}
    assert b"  mWakefulness=Asleep\n" in run("dumpsys power", machine, Fault.ASLEEP).stdout
    assert run("input tap 1 1", machine, Fault.ASLEEP).code == 0
    assert machine.events == []
    woken = "input keyevent WAKEUP && input tap 1 1 && screencap -p"
    assert run(woken, machine, Fault.ASLEEP).stdout == machine.png()
    assert machine.events == [Tap(1, 1)]


def test_a_phone_that_is_locked_shows_its_lock_screen_and_does_nothing_and_a_reset_does_not_unlock_it() -> None:
    machine = Noting()
    locked = run("screencap -p", machine, Fault.LOCKED).stdout
    assert len(Image.open(io.BytesIO(locked)).getcolors() or ()) == 1
    assert locked != machine.png()
    lines = "input keyevent WAKEUP; wm dismiss-keyguard; input tap 1 1; input keyevent HOME; input text 1234"
    assert run(f"{lines}; screencap -p", machine, Fault.LOCKED).stdout == locked
    assert machine.events == []
    assert b" u0 NotificationShade}\n" in run("dumpsys window displays", machine, Fault.LOCKED).stdout
    trust = run("simctl reset --seed 3 >/dev/null; dumpsys trust", machine, Fault.LOCKED).stdout
    assert b" (current): trusted=0, trustManaged=0, deviceLocked=1," in trust
    assert b" (current): trusted=0, trustManaged=0, deviceLocked=0," in run("dumpsys trust", machine).stdout


def test_the_key_power_turns_the_screen_off_and_on() -> None:
    pressed = "input keyevent POWER && dumpsys power && input keyevent 26 && dumpsys power"
    said = run(pressed).stdout.decode()
    assert [line.strip() for line in said.splitlines() if "mWakefulness" in line] == [
        "mWakefulness=Asleep",
        "mWakefulness=Awake",
    ]


def test_apps_are_started_and_stopped_whether_the_screen_is_on_or_not() -> None:
    machine = Noting()
    for line, front in (
        ("am start -p com.sim.clock", "com.sim.clock"),
        ("monkey -p com.sim.notes -c android.intent.category.LAUNCHER 1", "com.sim.notes"),
        ("am force-stop com.sim.notes", "com.sim.launcher"),
    ):
        assert run(line, machine, Fault.ASLEEP).code == 0
        assert machine.focus().partition("/")[0] == front
    run("am start -p com.sim.clock", machine)
    run("input keyevent HOME", machine, Fault.ASLEEP)
    assert machine.focus().startswith("com.sim.clock/")


def test_a_reset_wakes_a_phone_as_it_does_a_real_one_and_ends_nothing_else() -> None:
    machine = Noting()
    assert run("simctl reset --seed 3 && screencap -p", machine, Fault.ASLEEP).stdout.endswith(machine.png())
    assert run("simctl reset --seed 3 && screencap -p", fault=Fault.BOOTING).code != 0
    refused = run("simctl reset --seed 3 --setup '{\"nothing\": 1}'; dumpsys power", fault=Fault.ASLEEP)
    assert b"  mWakefulness=Asleep\n" in refused.stdout


def test_a_phone_that_is_starting_has_a_shell_and_no_services() -> None:
    assert run("getprop sys.boot_completed", fault=Fault.BOOTING).stdout == b"\n"
    for line in ("screencap -p", "input tap 1 1", "am force-stop x", "dumpsys window", "wm size"):
        found = run(line, fault=Fault.BOOTING)
        assert (found.code, found.stdout) == (1, b"")
        assert b"Can't find service" in found.stderr


def test_a_truncated_screenshot_reports_success() -> None:
    result = run("screencap -p", fault=Fault.TRUNCATED)
    assert (result.stdout, result.code) == (Noting().png()[: len(Noting().png()) // 2], 0)


def test_the_state_is_the_machines_and_a_reset_replaces_it() -> None:
    machine = Noting()
    run("input tap 20 40; input keyevent 4", machine)
    assert json.loads(run("simctl reset --seed 5 --setup '{}'", machine).stdout) == {"seed": 5}
    fresh = PhoneMachine(0, 0.0)
    fresh.reset(5, {})
    assert json.loads(run("simctl state", machine).stdout) == json.loads(json.dumps(fresh.state()))


def test_the_effect_is_complete_when_the_phones_time_is_over() -> None:
    machine = Noting()
    drawn: list[int] = []

    def draw() -> float:
        drawn.append(len(machine.events))
        return 0.0

    run("input tap 1 1 && input keyevent 3 && screencap -p", machine, draw_latency=draw)
    assert drawn == [0, 1]
    assert len(machine.events) == 2


def test_a_fault_begins_only_after_its_answer() -> None:
    result = run("simctl fault silent 5")
    assert json.loads(result.stdout) == {"faults": ["silent"]}
    assert len(result.afterwards) == 1
