import pytest
from simphone.canvas import PRIMITIVES, draw, letters
from simphone.element import BLUE, Element

BOX = (16, 32, 112, 96)


def drawn(kind: str, on: bool = False) -> bytes:
    return draw((Element(kind, BOX, "next", "x", colour=BLUE, on=on),)).tobytes()


def test_no_two_kinds_of_widgets_look_alike() -> None:
    looks = {kind: drawn(kind) for kind in PRIMITIVES}
    assert len(set(looks.values())) == len(looks)


@pytest.mark.parametrize("kind", ["day", "map", "progress", "star"])
def test_what_is_on_looks_unlike_what_is_off(kind: str) -> None:
    assert drawn(kind, on=True) != drawn(kind)


@pytest.mark.parametrize(("kind", "written"), [("toast", "ab1"), ("round", "ab1"), ("day", "ab1"), ("caption", "ab1"),
                                               ("avatar", "a"), ("play", ""), ("map", ""), ("star", "")])  # fmt: skip
def test_the_letters_of_a_figure_are_reported(kind: str, written: str) -> None:
    found = letters((Element(kind, BOX, "ab 1", "x"),))
    assert "".join(letter.character for letter in found) == written


def test_a_caption_ends_at_the_right_of_its_row() -> None:
    short, long = (letters((Element("caption", BOX, text=text),)) for text in ("$5", "unread"))
    assert abs(short[-1].x - long[-1].x) < 4
    assert short[-1].x < BOX[2] - 8
