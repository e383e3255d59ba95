import random

from distrl.phone.element import HEIGHT, WIDTH, Elements
from distrl.phone.synthetic import Pair, synthetic_screen
from distrl.phone.words import ALL, APPS, HALVES, HOURS, RANKS, SITES, pairs

FORBIDDEN = frozenset({("red", "lamp"), ("wifi", "lock"), ("6", "am"), ("anna", "lee")})


def named(rng: random.Random, forbidden: frozenset[Pair]) -> Elements:
    return tuple(element for element in synthetic_screen(rng, forbidden)[1] if element.target)


def test_no_widget_is_labelled_with_a_forbidden_pair_and_every_word_is_known() -> None:
    rng = random.Random(0)
    labels = [element.label for _ in range(400) for element in named(rng, FORBIDDEN)]
    assert len(labels) > 1000
    assert not {" ".join(pair) for pair in FORBIDDEN} & set(labels)
    assert {word for label in labels for word in label.split()} <= set(ALL)


def test_a_label_names_one_widget_that_lies_on_the_screen_and_holds_the_cell_of_its_middle() -> None:
    rng = random.Random(1)
    for _ in range(300):
        image, widgets = synthetic_screen(rng, frozenset())
        assert image.size == (WIDTH, HEIGHT)
        labels = [widget.label for widget in widgets if widget.target]
        assert len(set(labels)) == len(labels)
        for widget in widgets:
            if not widget.target:
                continue
            left, top, right, bottom = widget.box
            assert left >= 0 <= top
            assert right <= WIDTH
            assert bottom <= HEIGHT
            assert widget.holds((left + right) // 32 * 16 + 8, (top + bottom) // 32 * 16 + 8), widget


def test_all_that_a_policy_must_learn_to_touch_occurs() -> None:
    rng = random.Random(2)
    labels = {element.label for _ in range(1500) for element in named(rng, FORBIDDEN)}
    times = {" ".join(pair) for pair in pairs(HOURS, HALVES) if pair not in FORBIDDEN}
    assert labels >= {*APPS, *SITES, *times, *(f"result {rank}" for rank in RANKS)}
    assert labels >= {
        "search",
        "go",
        "send",
        "save",
        "new",
        "add to cart",
        "close",
        "later",
        "alarm",
        "message",
        "type",
    }
    assert {word for label in labels for word in label.split()} >= set(ALL[: ALL.index("settings")])


def test_equal_seeds_draw_equal_screens() -> None:
    first, second = (synthetic_screen(random.Random(5), FORBIDDEN) for _ in range(2))
    assert first[0].tobytes() == second[0].tobytes()
    assert first[1] == second[1]
