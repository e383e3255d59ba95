import random

import pytest
from simphone import lexicon
from simphone.element import HEIGHT, WIDTH, Elements
from simphone.generations import NAMES
from simphone.synthetic import synthetic_screen
from simphone.synthetic_labels import EVERY, NEWER, PAIRED, SINGLE, Pair
from simphone.words import ALL, APPS, HALVES, HOURS, RANKS, SITES, pairs

FORBIDDEN = frozenset({("red", "lamp"), ("wifi", "lock"), ("6", "am"), ("anna", "lee")})


def named(rng: random.Random, forbidden: frozenset[Pair], free: float = 0.0) -> Elements:
    return tuple(element for element in synthetic_screen(rng, forbidden, free).elements if element.target)


@pytest.mark.parametrize("free", [0.0, 0.6, 1.0])
def test_no_widget_is_labelled_with_a_forbidden_pair_and_every_word_is_known(free: float) -> None:
    rng = random.Random(0)
    labels = [element.label for _ in range(400) for element in named(rng, FORBIDDEN, free)]
    assert len(labels) > 1000
    assert not {" ".join(pair) for pair in FORBIDDEN} & set(labels)
    assert {word for label in labels for word in label.split()} <= {*EVERY, *NEWER}


def test_a_label_names_one_widget_that_lies_on_the_screen_and_holds_the_cell_of_its_middle() -> None:
    rng = random.Random(1)
    for _ in range(300):
        screen = synthetic_screen(rng, frozenset())
        widgets = screen.elements
        assert screen.image.size == (WIDTH, HEIGHT)
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
    assert labels >= {
        *APPS,
        *SITES,
        *lexicon.MORE_APPS,
        *map(str, range(1, 32)),
        *times,
        *(f"result {rank}" for rank in RANKS),
    }
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


def test_free_labels_put_words_together_that_no_app_does() -> None:
    apps = {" ".join(pair) for first, second in PAIRED for pair in pairs(first, second)}
    apps |= {*SINGLE, *NAMES.values()}

    def mixed(free: float) -> int:
        rng = random.Random(3)
        labels = [element.label for _ in range(200) for element in named(rng, FORBIDDEN, free)]
        return sum(" " in label and label not in apps and not label.startswith("result ") for label in labels)

    assert mixed(0.0) == 0
    assert mixed(0.6) > 100


def test_equal_seeds_draw_equal_screens() -> None:
    first, second = (synthetic_screen(random.Random(5), FORBIDDEN) for _ in range(2))
    assert first.image.tobytes() == second.image.tobytes()
    assert (first.elements, first.letters) == (second.elements, second.letters)
