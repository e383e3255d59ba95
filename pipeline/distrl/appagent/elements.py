"""The interactive elements of a screen, read from the XML of `uiautomator dump`. Pure.

The XML is the app's and untrusted: entities are refused, texts are truncated and made printable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

Box = tuple[int, int, int, int]

LONGEST_TEXT: Final = 80
LONGEST_NAME: Final = 160
NAMING_CHARACTERS: Final = 20
"""A shorter description identifies an element; a longer one describes its present content (AppAgent)."""
NEAR: Final = 0.028
"""Of the screen's width: of two elements whose middles are closer, the later one is left out (AppAgent: 30 px)."""
LARGEST: Final = 4 * 2**20
_BOUNDS: Final = re.compile(r"\[(-?\d{1,6}),(-?\d{1,6})\]\[(-?\d{1,6}),(-?\d{1,6})\]")


class UnreadableError(ValueError):
    """Bytes that are not a hierarchy of `uiautomator dump`."""


@dataclass(frozen=True, slots=True)
class NumberedElement:
    """name: its key in notes, the same on every phone with this app. box: left, top, right, bottom, px, on the screen.

    kind: the last part of its class. text: its own text, or that of its children. on: of a switch, else None.
    """

    name: str
    box: Box
    kind: str
    text: str
    on: bool | None

    @property
    def middle(self) -> tuple[float, float]:
        """px."""
        left, top, right, bottom = self.box
        return (left + right) / 2, (top + bottom) / 2


@dataclass(frozen=True, slots=True)
class ElementTree:
    """The screen in front. package: the app. elements: the interactive ones, number 1 first."""

    package: str
    elements: tuple[NumberedElement, ...]


def screen_of(xml: bytes, size: tuple[int, int], most: int, without: frozenset[str] = frozenset()) -> ElementTree:
    """The screen that `xml` describes. size: width and height, px. without: names to leave out.

    Clickable elements come first, then focusable and scrollable ones, each in tree order; at most `most`.
    Raises UnreadableError.
    """
    nodes = _parsed(xml)
    found = [(node, box) for node in nodes if node.reacts and (box := _on_screen(node.bounds, size)) is not None]
    found.sort(key=lambda each: not each[0].clickable)  # stable: otherwise in tree order
    chosen: list[NumberedElement] = []
    for node, box in found:
        if len(chosen) == most:
            break
        element = NumberedElement(node.name, box, node.kind, _plain(" ".join(node.words), LONGEST_TEXT), node.on)
        far = all(math.dist(element.middle, each.middle) > NEAR * size[0] for each in chosen)
        if far and element.name not in without:
            chosen.append(element)
    return ElementTree(_plain(nodes[0].package, LONGEST_NAME), tuple(chosen))


@dataclass(slots=True)
class _Node:
    name: str
    package: str
    kind: str
    bounds: str
    clickable: bool
    reacts: bool
    on: bool | None
    words: list[str] = field(default_factory=list)


def _parsed(xml: bytes) -> Sequence[_Node]:
    """Every node, in tree order. The text of a node that is not interactive belongs to its interactive parent."""
    if len(xml) > LARGEST:
        raise UnreadableError(f"{len(xml)} bytes")
    nodes: list[_Node] = []
    path: list[tuple[_Node | None, _Node | None]] = [(None, None)]  # of each open tag: its node, and who gets its text

    def start(tag: str, attributes: dict[str, str]) -> None:
        parent, owner = path[-1]
        if tag != "node":
            path.append((parent, owner))
            return
        node = _node(attributes, parent)
        owner = node if node.reacts else owner
        if owner is not None and len(owner.words) < LONGEST_TEXT:
            owner.words += filter(None, [attributes.get("text") or attributes.get("content-desc", "")])
        nodes.append(node)
        path.append((node, owner))

    def end(tag: str) -> None:
        path.pop()

    def refuse(*_: object) -> None:
        raise UnreadableError("a document type, which could hold entities")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(xml, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: an unknown or undecodable encoding
        raise UnreadableError(str(error)) from None
    if not nodes:
        raise UnreadableError("no node")
    return nodes


def _node(attributes: Mapping[str, str], parent: _Node | None) -> _Node:
    def is_true(*names: str) -> bool:
        return any(attributes.get(name) == "true" for name in names)

    kind = attributes.get("class", "").rpartition(".")[2]
    on = is_true("checked") if is_true("checkable") else None
    return _Node(
        _name(attributes, kind, parent),
        attributes.get("package", ""),
        _plain(kind, LONGEST_TEXT),
        attributes.get("bounds", ""),
        is_true("clickable"),
        is_true("clickable", "focusable", "scrollable"),
        on,
    )


def _name(attributes: Mapping[str, str], kind: str, parent: _Node | None) -> str:
    """Its resource id, else class, size and parent; then its description if that is short, else its position."""
    named = attributes.get("resource-id", "")
    if not named:
        box = _numbers(attributes.get("bounds", "")) or (0, 0, 0, 0)
        named = f"{kind} {box[2] - box[0]}x{box[3] - box[1]}"
        if parent is not None:
            named = f"{parent.name[: LONGEST_NAME // 2]} {named}"
    described = attributes.get("content-desc", "")
    place = described if 0 < len(described) < NAMING_CHARACTERS else f"#{attributes.get('index', '0')}"
    return _plain(f"{named} {place}", LONGEST_NAME)


def _numbers(bounds: str) -> Box | None:
    found = _BOUNDS.fullmatch(bounds)
    if found is None:
        return None
    left, top, right, bottom = map(int, found.groups())
    return left, top, right, bottom


def _on_screen(bounds: str, size: tuple[int, int]) -> Box | None:
    """The part that is on the screen; None if there is none."""
    box = _numbers(bounds)
    if box is None:
        return None
    left, top, right, bottom = max(0, box[0]), max(0, box[1]), min(size[0], box[2]), min(size[1], box[3])
    return (left, top, right, bottom) if left < right and top < bottom else None


def _plain(text: str, most: int) -> str:
    """At most `most` printable characters, in one line."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:most]
