from simphone.canvas import draw, letters
from simphone.element import LIGHT, WIDTH, Element, title

ROW = Element("row", (0, 32, WIDTH, 80), "red Lamp", "x", colour=LIGHT)
BUTTON = Element("button", (8, 100, 120, 140), "send 7!", "x")


def test_letters_are_those_that_are_written_in_their_order() -> None:
    assert "".join(letter.character for letter in letters((ROW, BUTTON))) == "redlampsend7"
    assert [letter.x for letter in letters((ROW,))] == sorted(letter.x for letter in letters((ROW,)))


def test_there_is_ink_where_a_letter_is_said_to_stand() -> None:
    blank = draw((Element("row", ROW.box, "", "x", colour=LIGHT),))
    drawn = draw((ROW,))
    for letter in letters((ROW,)):
        spot = (int(letter.x) - 3, int(letter.y) - 5, int(letter.x) + 4, int(letter.y) + 6)
        assert drawn.crop(spot).tobytes() != blank.crop(spot).tobytes(), letter


def test_centred_text_has_its_letters_around_the_middle() -> None:
    found = letters((BUTTON,))
    assert abs((found[0].x + found[-1].x) / 2 - 64) < 4
    assert {letter.y for letter in found} == {120}


def test_what_is_not_written_has_no_letters() -> None:
    assert (
        letters((Element("toggle", (0, 0, WIDTH, 48), "", "x"), Element("cross", (0, 50, 32, 82), "close", "x"))) == []
    )
    assert [letter.character for letter in letters((title("a b", LIGHT),))] == ["a", "b"]
