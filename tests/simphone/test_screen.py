"""The screen as a driver of Android takes it: pixels, PNG, and the tree of its elements."""

from __future__ import annotations

import io
import re
import struct
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phone_shell import last, runs, with_shell
from PIL import Image
from simphone.commands.screen import hierarchy
from simphone.faults import Fault
from simphone.machine import Event, Open, PhoneMachine, Tap, Text, widgets
from simphone.shell import Shell
from simphone.state import State

BOUNDS = re.compile(r"\[(\d+),(\d+)\]\[(\d+),(\d+)\]")
EVENTS = st.lists(
    st.one_of(
        st.builds(Open, st.sampled_from(["settings", "browser", "shop", "clock", "messages", "notes"])),
        st.builds(Tap, st.integers(0, 127), st.integers(0, 255)),
        st.builds(Text, st.text(max_size=20)),
    ),
    max_size=12,
)  # fmt: skip


def box(node: ElementTree.Element) -> tuple[int, ...]:
    found = BOUNDS.fullmatch(node.get("bounds", ""))
    assert found is not None
    return tuple(map(int, found.groups()))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 20), EVENTS)
def test_the_tree_holds_each_widget_where_it_is_and_changes_none(seed: int, events: list[Event]) -> None:
    async def play(shell: Shell) -> None:
        machine = shell.phone.machine
        for event in events:
            machine.apply(event)
        before = machine.state()
        tree = ElementTree.fromstring(hierarchy(shell.phone))
        assert machine.state() == before
        nodes = [node for node in tree.iter("node") if node.get("clickable") == "true"]
        expected = widgets(State.from_json(before))
        assert [box(node) for node in nodes] == [element.box for element in expected]
        assert [node.get("content-desc") for node in nodes] == [element.label for element in expected]
        assert {node.get("package") for node in tree.iter("node")} == {machine.focus().partition("/")[0]}

    with_shell(play, seed)


def test_words_switches_and_fields_are_reported_as_android_tells_them() -> None:
    async def play(shell: Shell) -> None:
        await shell.run("am start -p com.sim.settings")
        switches = [node for node in nodes(shell) if node.get("class") == "android.widget.Switch"]
        on = shell.phone.machine.state()["data"]["settings"]["on"]
        assert len(switches) == 4
        assert all(switch.get("checkable") == "true" for switch in switches)
        assert [switch.get("text") in on for switch in switches] == [
            switch.get("checked") == "true" for switch in switches
        ]
        await shell.run("am start -p com.sim.browser")
        (field,) = [node for node in nodes(shell) if node.get("class") == "android.widget.EditText"]
        left, top, right, bottom = box(field)
        await shell.run(f"input tap {(left + right) // 2} {(top + bottom) // 2}; input text '<\"&\x01>'")
        (field,) = [node for node in nodes(shell) if node.get("class") == "android.widget.EditText"]
        assert (field.get("text"), field.get("focused")) == ('<"&.>', "true")

    def nodes(shell: Shell) -> list[ElementTree.Element]:
        return list(ElementTree.fromstring(hierarchy(shell.phone)).iter("node"))

    with_shell(play)


def test_a_dump_goes_where_it_should() -> None:
    to_file = last("uiautomator dump", "cat /sdcard/window_dump.xml")
    assert to_file.startswith("<?xml version='1.0' encoding='UTF-8' standalone='yes' ?><hierarchy rotation=\"0\">")
    assert last("uiautomator dump --compressed /data/local/tmp/a.xml") == (
        "UI hierchary dumped to: /data/local/tmp/a.xml\n"
    )
    assert last("uiautomator dump /dev/tty") == f"{to_file}UI hierchary dumped to: /dev/tty\n"


def test_a_screenshot_goes_where_it_should_in_the_form_that_its_name_says() -> None:
    machine = PhoneMachine(1, 0.0)

    async def play(shell: Shell) -> None:
        for line in ("screencap -p /sdcard/a", "cd /sdcard && screencap b.png", "screencap -d 0 /sdcard/c"):
            assert (await shell.run(line)).code == 0
        kept = [shell.phone.files.read(f"/sdcard/{name}") for name in ("a", "b.png", "c")]
        assert kept[:2] == [machine.png()] * 2
        assert (await shell.run("screencap")).stdout == kept[2]
        width, height, form, _ = struct.unpack("<4I", kept[2][:16])
        assert (width, height, form) == (*machine.size, 1)
        pixels = Image.frombytes("RGBA", (width, height), kept[2][16:])
        assert pixels.convert("RGB").tobytes() == Image.open(io.BytesIO(machine.png())).convert("RGB").tobytes()
        shell.phone.faults.set(Fault.TRUNCATED)
        await shell.run("screencap -p /sdcard/a")
        assert len(shell.phone.files.read("/sdcard/a")) == len(machine.png()) // 2

    with_shell(play)


@pytest.mark.parametrize(
    "line", ["screencap /etc/s.png", "screencap -d 7", "screencap a b", "uiautomator", "uiautomator dump a b",
             "uiautomator dump --odd", "uiautomator dump /etc/a.xml"]
)  # fmt: skip
def test_what_cannot_be_done_fails_with_a_reason(line: str) -> None:
    (result,) = runs(line)
    assert result.code == 1
    assert result.stderr
