"""`screencap` and `uiautomator dump`: the screen as pixels and as its elements."""

from __future__ import annotations

import asyncio
import struct
from typing import Final
from xml.etree import ElementTree

from simphone.commands.base import CommandError, CommandResult, Invocation, said
from simphone.commands.dumpsys import DISPLAY_ID
from simphone.element import Element
from simphone.faults import Fault
from simphone.files import FileError, plain
from simphone.handset import Handset

RGBA_8888, SRGB = 1, 1
RAW_HEADER: Final = struct.Struct("<4I")
"""Width, height, pixel format, colour space: the header of raw pixels."""
DUMP: Final = "/sdcard/window_dump.xml"
TERMINALS: Final = frozenset({"/dev/tty", "/dev/stdout", "/proc/self/fd/1"})
CLASSES: Final = {
    "button": "Button", "cross": "ImageButton", "field": "EditText", "icon": "TextView", "picture": "ImageView",
    "avatar": "ImageView", "day": "CheckedTextView", "map": "ImageView", "next": "ImageButton", "pause": "ImageButton",
    "play": "ImageButton", "progress": "ProgressBar", "round": "Button", "spinner": "ProgressBar", "star": "CheckBox",
    "toggle": "Switch", "tile": "ToggleButton", "keys": "inputmethodservice.KeyboardView",
}  # fmt: skip
"""The Android widget class by kind of element; others are a TextView."""
CHECKABLE: Final = frozenset({"star", "toggle", "tile"})
WORDLESS: Final = frozenset({
    "avatar", "cross", "dial", "keys", "lines", "map", "next", "pause", "picture", "play", "progress", "scroll",
    "spinner", "star",
})  # fmt: skip
"""Kinds that are drawn without their label."""


IDLE_S: Final = 10.0
"""How long `uiautomator` waits for an app that never stops drawing."""


async def screencap(phone: Handset, call: Invocation) -> CommandResult:
    """PNG with -p or to a name that ends in .png, else raw pixels; to the given file, else to stdout."""
    png, path, words = False, "", iter(call.args)
    for word in words:
        match word:
            case "-p":
                png = True
            case "-d":
                display = next(words, "")
                if display not in ("0", str(DISPLAY_ID)):
                    raise CommandError(f"there is no display {display!r}; this phone has display 0")
            case name if name.startswith("-") or path:
                raise CommandError("usage: screencap [-p] [-d DISPLAY] [FILE]")
            case _:
                path = word
    image = phone.png() if png or path.endswith(".png") else raw(phone)
    if phone.faults.active(Fault.TRUNCATED):
        image = image[: len(image) // 2]
    if not path:
        return CommandResult(image)
    _keep(phone, path, call.directory, image)
    return CommandResult()


def raw(phone: Handset) -> bytes:
    width, height = phone.machine.size
    return RAW_HEADER.pack(width, height, RGBA_8888, SRGB) + phone.picture().convert("RGBA").tobytes()


async def uiautomator(phone: Handset, call: Invocation) -> CommandResult:
    match call.args:
        case ["dump", *rest]:
            paths = [word for word in rest if not word.startswith("-")]
            if len(paths) > 1 or not set(rest) <= {"--compressed", *paths}:
                raise CommandError("usage: uiautomator dump [--compressed] [FILE]")
            path = paths[0] if paths else DUMP
            if phone.animated:
                await asyncio.sleep(IDLE_S)
                return CommandResult(stderr=b"ERROR: could not get idle state.\n")
            tree = hierarchy(phone)
            # "hierchary" is Android's own spelling, which drivers look for
            done = f"UI hierchary dumped to: {path}\n"
            if path in TERMINALS:
                return said(tree.decode() + done)
            _keep(phone, path, call.directory, tree)
            return said(done)
    raise CommandError("usage: uiautomator dump [--compressed] [FILE]")


def hierarchy(phone: Handset) -> bytes:
    """The window in front as `uiautomator dump` writes it: the screen, with its elements in drawing order.

    A drawn label is a node's text, one that is not drawn (the name of a cross) its description.
    """
    width, height = phone.machine.size
    package = phone.machine.focus().partition("/")[0]
    tree = ElementTree.Element("hierarchy", rotation="0")
    window = ElementTree.SubElement(tree, "node", _node(0, "", "", "FrameLayout", package, (0, 0, width, height)))
    for index, element in enumerate(phone.machine.elements()):
        ElementTree.SubElement(window, "node", _of(element, index, package))
    body = ElementTree.tostring(tree, encoding="unicode", short_empty_elements=True)
    return f"<?xml version='1.0' encoding='UTF-8' standalone='yes' ?>{body}".encode()


def _of(element: Element, index: int, package: str) -> dict[str, str]:
    kind = CLASSES.get(element.kind, "TextView")
    text = "" if element.kind in WORDLESS else element.shown
    node = _node(index, text, element.label, kind, package, element.box)
    tapped = str(bool(element.target)).lower()
    checkable, on = element.kind in CHECKABLE, element.on
    return node | {
        "checkable": str(checkable).lower(),
        "checked": str(checkable and on).lower(),
        "clickable": tapped,
        "focusable": tapped,
        "focused": str(element.kind == "field" and on).lower(),
        "selected": str(element.kind == "tab" and on).lower(),
        "resource-id": f"{package}:id/{element.kind}" if element.target else "",
    }


def _node(
    index: int, text: str, description: str, kind: str, package: str, box: tuple[int, int, int, int]
) -> dict[str, str]:
    left, top, right, bottom = box
    return {
        "index": str(index),
        "text": _legal(text),
        "resource-id": "",
        "class": f"android.{kind}" if "." in kind else f"android.widget.{kind}",
        "package": package,
        "content-desc": _legal(description),
        "checkable": "false",
        "checked": "false",
        "clickable": "false",
        "enabled": "true",
        "focusable": "false",
        "focused": "false",
        "scrollable": "false",
        "long-clickable": "false",
        "password": "false",
        "selected": "false",
        "bounds": f"[{left},{top}][{right},{bottom}]",
    }


def _legal(text: str) -> str:
    """Replaces characters that XML cannot hold with a dot, as Android does."""
    return "".join(char if char.isprintable() else "." for char in text)


def _keep(phone: Handset, path: str, directory: str, data: bytes) -> None:
    try:
        phone.files.write(plain(path, directory), data)
    except FileError as error:
        raise CommandError(f"Error opening file: {path} ({error})") from error


COMMANDS = {"screencap": screencap, "uiautomator": uiautomator}
