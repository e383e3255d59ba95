"""What drivers ask of Android, in Android's words: apps, windows, properties, settings, gestures."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phone_shell import last, runs, with_shell
from simphone.apps import REGISTRY
from simphone.commands.activities import intent_of, resolve
from simphone.commands.keys import BY_CODE, BY_NAME
from simphone.commands.packages import activity_of
from simphone.machine import PhoneMachine, package_of
from simphone.shell import Shell

FOCUS = "dumpsys window windows"


@pytest.mark.parametrize("app", sorted(REGISTRY))
@pytest.mark.parametrize(
    "start",
    ["am start -n {component}", "am start-activity -W -S --user 0 -n {component}", "am start -p com.sim.{app}",
     "am start com.sim.{app}", "am start {full}", "monkey -p com.sim.{app} -c android.intent.category.LAUNCHER 1"],
)  # fmt: skip
def test_every_app_is_started_in_every_way(app: str, start: str) -> None:
    component = activity_of(app)
    full = component.replace("/", f"/com.sim.{app}")
    line = start.format(app=app, component=component, full=full)
    said = last("input keyevent HOME", line, FOCUS)
    assert f"mCurrentFocus=Window{{5f0cca1 u0 {full}}}" in said
    assert f"mFocusedApp=ActivityRecord{{c3a9d02 u0 {component} t7}}" in said


def test_an_app_from_the_store_is_installed_as_far_as_android_knows() -> None:
    setup = 'simctl reset --seed 1 --setup \'{"store": {"installed": "photo hub"}}\''
    listed = last(setup, "pm list packages -3 photohub")
    assert listed == "package:com.sim.photohub\n"
    assert last(setup, "pm path com.sim.photohub") == "package:/data/app/com.sim.photohub/base.apk\n"
    for start in ("am start -n com.sim.photohub/.Main", "monkey -p com.sim.photohub 1"):
        assert "u0 com.sim.photohub/com.sim.photohub.Main}" in last(setup, start, FOCUS)
    assert "com.sim.photohub/.Main" in last(setup, "am start -W -p com.sim.photohub")
    assert "Package [com.sim.photohub]" in last(setup, "dumpsys package com.sim.photohub")
    assert "photo hub" in last(setup, "am start -p com.sim.photohub", "uiautomator dump /dev/tty")


def test_an_app_from_the_store_that_is_not_installed_is_not_there() -> None:
    setup = 'simctl reset --seed 1 --setup \'{"store": {"missing": "photo hub"}}\''
    assert last(setup, "pm list packages photohub") == ""
    assert runs(setup, "am start -n com.sim.photohub/.Main")[-1].code == 1


@pytest.mark.parametrize(
    ("line", "app"),
    [
        ("-a android.intent.action.VIEW -d https://a.b/?c=d", "browser"),
        ("https://a.b/", "browser"),
        ("-a android.intent.action.WEB_SEARCH --es query red -f 0x10000000", "browser"),
        ("-a android.intent.action.SENDTO -d smsto:5551234", "messages"),
        ("-a android.settings.WIFI_SETTINGS", "settings"),
        ("-a android.intent.action.SHOW_ALARMS", "clock"),
        ("-a android.intent.action.MAIN -c android.intent.category.HOME", "launcher"),
        ("-a android.intent.action.PICK -d x:1", None),
        ("-n com.sim.clock/.Odd", None),
        ("-n com.sim.clock", None),
        ("-p com.android.chrome", None),
        ("", None),
    ],
)
def test_an_intent_finds_the_app_that_answers_it(line: str, app: str | None) -> None:
    assert resolve(intent_of(line.split()), tuple(REGISTRY)) == app


@settings(deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(["-n", "-a", "-d", "-W", "--es", "-f", "a/b", "com.sim.clock"]),
            st.text("-a/.:", max_size=6),
        ),
        max_size=6,
    )
)
def test_any_intent_starts_an_app_or_says_why_not(words: list[str]) -> None:
    async def play(shell: Shell) -> None:
        quoted = " ".join(f"'{word}'" for word in words)
        result = await shell.run(f"am start {quoted}")
        assert (result.code == 0) is not bool(result.stderr)

    with_shell(play)


def test_waiting_for_an_activity_tells_what_came_up() -> None:
    said = last("am start -W -n com.sim.shop/.Sites")
    assert said.startswith("Starting: Intent { cmp=com.sim.shop/.Sites }\nStatus: ok\n")
    assert "Activity: com.sim.shop/.Sites\n" in said
    assert said.endswith("Complete\n")


def test_an_activity_that_is_not_there_is_reported_as_android_does() -> None:
    component, implicit, monkey = runs(
        "am start -n com.sim.shop/.Odd", "am start -a android.intent.action.PICK -d x:1", "monkey -p com.x 1"
    )
    assert b"Error type 3\nError: Activity class {com.sim.shop/.Odd} does not exist." in component.stderr
    assert b"Error: Activity not started, unable to resolve Intent { act=android.intent.action.PICK dat=x:1 }" in (
        implicit.stderr
    )
    assert (monkey.code, monkey.stderr) == (252, b"** No activities found to run, monkey aborted.\n")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pm list packages shop", "package:com.sim.shop\n"),
        ("pm list packages -s", "package:com.sim.launcher\npackage:com.sim.settings\n"),
        ("pm list packages -d", ""),
        ("cmd package list packages -f clock", "package:/data/app/com.sim.clock/base.apk=com.sim.clock\n"),
        ("pm path com.sim.settings", "package:/system/app/settings/settings.apk\n"),
        ("pm resolve-activity --brief com.sim.notes",
         "priority=0 preferredOrder=0 match=0x108000 isDefault=true\ncom.sim.notes/.List\n"),
        ("wm size", "Physical size: 128x256\n"),
        ("wm density", "Physical density: 160\n"),
        ("wm dismiss-keyguard", ""),
        ("getprop ro.build.version.sdk", "34\n"),
        ("getprop no.such.property", "\n"),
        ("getprop no.such.property 7", "7\n"),
        ("settings get system screen_brightness", "102\n"),
        ("settings get global no_such", "null\n"),
        ("settings put global a 'b c'; settings get global a; settings delete global a; settings get global a",
         "b c\nDeleted 1 rows\nnull\n"),
        ("svc wifi disable; settings get global wifi_on", "0\n"),
        ("am broadcast -a X --ez state true", "Broadcasting: Intent { act=X }\nBroadcast completed: result=0\n"),
        ("dumpsys SurfaceFlinger --display-id",
         'Display 4619827259835644672 (HWC display 0): port=0 pnpId=SIM displayName="simulated"\n'),
        ("false; echo $?", "1\n"),
        ("nope; echo \"X$?Y\" 'a$?'", "X127Y a$?\n"),
        ("export ANDROID_LOG_TAGS=\"''\"; exec echo a; echo b", "a\n"),
        ("echo a; exit 0; echo b", "a\n"),
        ("echo -n a", "a"),
        ("id", "uid=2000(shell) gid=2000(shell) groups=2000(shell)\n"),
        ("date +%s; input keyevent HOME; date +%s", "1704067200\n1704067201\n"),
        ("sleep 0", ""),
    ],
)  # fmt: skip
def test_a_question_has_androids_answer(line: str, said: str) -> None:
    result = runs(line)[0]
    assert (result.stdout.decode(), result.code) == (said, 0)


@pytest.mark.parametrize(
    ("line", "code", "why"),
    [
        ("nope", 127, "/system/bin/sh: nope: inaccessible or not found"),
        ("exit 7", 7, ""),
        ("pm path com.none", 1, ""),
        ("pm install /sdcard/a.apk", 1, "Failure [INSTALL_FAILED_USER_RESTRICTED"),
        ("pm clear com.sim.clock", 1, "simctl reset"),
        ("pm list packages --odd", 1, "Unknown option"),
        ("cmd nothing", 20, "Can't find service: nothing"),
        ("dumpsys nothing", 1, "Can't find service: nothing"),
        ("wm size 1x1", 1, "cannot be changed"),
        ("settings get odd a", 1, "Invalid namespace"),
        (f"settings put global a {'x' * 1001}", 1, "256 settings"),
        ("monkey -p com.sim.clock 500", 1, "usage: monkey"),
        ("am start -n", 1, "Argument expected"),
        ("am start --odd x", 1, "Unknown option"),
        ("input -d 5 tap 1 1", 1, "no display '5'"),
        ("input keyevent KEYCODE_Q", 1, "input text"),
        ("input keyevent HOME KEYCODE_ODD", 1, "unknown key"),
        (f"input keyevent {'67 ' * 513}", 1, "at most 512"),
        ("sleep 100000", 1, "between 0 and 60"),
        ("sleep nan", 1, "between 0 and 60"),
        ("sleep", 1, "usage"),
    ],
)
def test_what_cannot_be_done_is_refused(line: str, code: int, why: str) -> None:
    (result,) = runs(line)
    assert result.code == code
    assert why in result.stderr.decode()


def test_settings_are_bounded() -> None:
    results = runs(*(f"settings put secure key{number} 1" for number in range(300)))
    assert {result.code for result in results[:200]} == {0}
    assert results[-1].code == 1


def test_getprop_lists_what_it_answers() -> None:
    lines = last("getprop").splitlines()
    assert lines == sorted(lines)
    assert "[sys.boot_completed]: [1]" in lines
    for line in lines:
        name, value = line[1:-1].split("]: [")
        assert last(f"getprop {name}") == f"{value}\n"


def test_third_party_and_system_packages_are_all_packages() -> None:
    def listed(option: str) -> set[str]:
        return set(last(f"pm list packages {option}").splitlines())

    assert (
        listed("-3") | listed("-s")
        == listed("")
        == {f"package:{package_of(app)}" for app in PhoneMachine(1, 0.0).apps()}
    )
    assert not listed("-3") & listed("-s")


def test_the_keyboard_is_shown_while_a_field_is_focused() -> None:
    async def play(shell: Shell) -> None:
        assert b"mInputShown=false" in (await shell.run("dumpsys input_method")).stdout
        await shell.run("am start -p com.sim.browser")
        x, y = shell.phone.machine.elements()[1].centre
        await shell.run(f"input touchscreen tap {x} {y}")
        assert b"mInputShown=true" in (await shell.run("dumpsys input_method")).stdout

    with_shell(play)


@pytest.mark.parametrize("number", sorted(BY_CODE))
def test_a_key_is_the_same_by_number_by_name_and_with_its_prefix(number: int) -> None:
    name = BY_CODE[number]
    logs = {last(f"input keyevent {key}", "logcat -d") for key in (number, name, f"KEYCODE_{name}")}
    assert len(logs) == 1


def test_the_four_keys_that_the_machine_knows_have_androids_numbers() -> None:
    assert [BY_NAME[name] for name in ("HOME", "BACK", "ENTER", "DEL")] == [3, 4, 66, 67]


def test_files_log_and_settings_outlive_a_reset_and_the_screen_does_not() -> None:
    said = last(
        "am start -p com.sim.clock",
        "touch /sdcard/f",
        "settings put global a 1",
        "simctl reset --seed 1 --setup '{}'",
        f"ls -d /sdcard/f; settings get global a; logcat -d -v raw -t 1; {FOCUS}",
    )
    assert said.startswith("/sdcard/f\n1\n--------- beginning of main\nreset with seed 1\n")
    assert f"u0 {PhoneMachine(1, 0.0).focus().replace('/', '/com.sim.launcher')}}}" in said
