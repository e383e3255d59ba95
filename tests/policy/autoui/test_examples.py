from __future__ import annotations

import math
import random

import numpy as np
import pytest
from distrl.policy.autoui.pretraining.examples import (
    Asking,
    Example,
    Target,
    TrainingScreen,
    askable,
    copy_example,
    drawn_words,
    touch_examples,
)
from distrl.policy.autoui.pretraining.screens import draw_screens, phone_language, phone_tokenizer
from distrl.policy.autoui.tokenizer import END
from distrl.types import Action, ActionKind, Point

from policy.autoui.sentences import holds, names_forbidden, says, sentence

FORBIDDEN = frozenset({("red", "shoes"), ("wifi", "saver"), ("anna", "lee"), ("7", "am")})
CODEC = phone_tokenizer()
LANGUAGE = phone_language(FORBIDDEN)


def asking(seed: int, clutter: float = 1.0) -> Asking:
    return Asking(CODEC, LANGUAGE, random.Random(seed), clutter)


def last_touch(example: Example) -> Point | None:
    """Where the last of the earlier actions tapped, if it did."""
    last = says(CODEC, example)[:-1]
    while "<prev>" in last:
        last = last[last.index("<prev>") + 1 :]
    action = CODEC.decode_action([*(CODEC.tokens.index(word) for word in last), END])
    return action.touch if action.kind is ActionKind.TAP else None


def tap(point: Point) -> Action:
    return Action(ActionKind.TAP, touch=point)


def apart(one: Point, other: Point) -> float:
    return math.dist((one.x, one.y), (other.x, other.y))


@pytest.fixture(scope="module")
def screens() -> list[TrainingScreen]:
    return draw_screens(40, random.Random(1), FORBIDDEN)


def test_every_word_of_the_phone_has_a_token(screens: list[TrainingScreen]) -> None:
    assert {word for screen in screens for target in screen.targets for word in target.words} <= set(CODEC.words)


def test_screens_are_drawn_alike_from_equal_seeds(screens: list[TrainingScreen]) -> None:
    again = draw_screens(40, random.Random(1), FORBIDDEN)
    assert all(
        np.array_equal(a.pixels, b.pixels) and a.targets == b.targets for a, b in zip(screens, again, strict=True)
    )


def test_a_touch_names_a_label_and_lands_on_its_widget(screens: list[TrainingScreen]) -> None:
    ask = asking(2)
    examples = [e for n, screen in enumerate(screens) for e in touch_examples(ask, n, screen, 3)]
    assert len(examples) > 60
    for example in examples:
        assert example.target is not None
        words, label = says(CODEC, example), example.target.words
        assert any(holds(words, name) for name in (label, LANGUAGE.known_as.get(label, label)))
        assert not names_forbidden(words, FORBIDDEN)
        action = CODEC.decode_action(example.action)
        if example.kind != "done":
            assert action.touch is not None
            assert example.target.holds(action.touch)


def test_what_the_last_action_touched_already_is_done_and_nothing_else_is(screens: list[TrainingScreen]) -> None:
    ask = asking(5)
    examples = [e for n, screen in enumerate(screens) for e in touch_examples(ask, n, screen, 3)]
    assert 0.1 < sum(e.kind == "done" for e in examples) / len(examples) < 0.4
    for example in examples:
        before, target = last_touch(example), example.target
        assert target is not None
        assert (example.kind == "done") == (CODEC.decode_action(example.action).kind is ActionKind.COMPLETE)
        if example.kind == "done":
            assert before is not None
            assert apart(before, target.centre) < apart(Point(*target.box[:2]), Point(*target.box[2:]))
        elif before is not None:
            assert CODEC.encode_action(tap(before)) != CODEC.encode_action(tap(target.centre)), "as the policy reads it"


def test_an_announced_text_changes_nothing_of_a_touch(screens: list[TrainingScreen]) -> None:
    ask = asking(6)
    asked = [e for n, s in enumerate(screens) for e in touch_examples(ask, n, s, 3, announced=True)]
    announcing = [e for e in asked if any(word in LANGUAGE.markers for word in sentence(CODEC, e))]
    assert len(announcing) > 20
    assert not any(names_forbidden(says(CODEC, e), FORBIDDEN) for e in asked)
    assert {CODEC.decode_action(e.action).kind for e in announcing} == {ActionKind.TAP, ActionKind.COMPLETE}


def test_a_screen_says_whether_one_can_type_on_it() -> None:
    drawn = draw_screens(200, random.Random(7), FORBIDDEN)
    assert 0.1 < sum(screen.typing for screen in drawn) / len(drawn) < 0.3


def test_a_sentence_without_a_verb_mentions_one_widget_of_the_screen_alone(screens: list[TrainingScreen]) -> None:
    ask = asking(4)
    mentions = 0
    for n, screen in enumerate(screens):
        for example in touch_examples(ask, n, screen, 3):
            words = sentence(CODEC, example)
            if any(verb in words for verb in LANGUAGE.verbs):
                continue
            mentions += 1
            assert example.target is not None
            label = example.target.words
            named = [t.words for t in screen.targets if t.words and holds(words, t.words)]
            chosen = [t.words for t in screen.targets if t.chosen and t.words != label]
            by_label = [label] if holds(words, label) else []
            assert [name for name in named if name not in chosen] == by_label
            assert by_label or holds(words, LANGUAGE.known_as[label])
    assert mentions > 20


def screen_of(*targets: Target) -> TrainingScreen:
    return TrainingScreen(np.zeros((3, 8, 8), np.uint8), targets)


def test_a_widget_with_a_newer_name_is_asked_for_by_what_people_call_it_half_of_the_time() -> None:
    chat, fox = ("chat",), ("dan", "fox")
    box, below = (0.0, 0.0, 0.5, 0.2), (0.0, 0.5, 1.0, 0.6)
    alone = screen_of(Target("icon", chat, chat, box), Target("row", fox, fox, below))
    ask, called = asking(1, clutter=0.0), 0
    for _ in range(200):
        for example in touch_examples(ask, 0, alone, 2):
            assert (example.kind == "newer") == ("messages" in says(CODEC, example))
            called += example.kind == "newer"
    assert 70 < called < 130
    both = screen_of(*alone.targets, Target("icon", ("messages",), ("messages",), (0.5, 0.0, 1.0, 0.2)))
    for _ in range(50):
        for example in touch_examples(ask, 0, both, 3):
            assert example.target is not None
            assert ("messages" in says(CODEC, example)) == (example.target.words == ("messages",)), (
                "another widget's name"
            )


def test_a_tab_that_is_chosen_may_be_named_beside_what_is_meant() -> None:
    chosen = Target("tab", ("clock",), ("clock",), (0.0, 0.0, 0.5, 0.1), chosen=True)
    other = Target("tab", ("alarm",), ("alarm",), (0.5, 0.0, 1.0, 0.1))
    ask = asking(2)
    asked = [e for _ in range(200) for e in touch_examples(ask, 0, screen_of(chosen, other), 2)]
    said = [(set(sentence(CODEC, example)), example) for example in asked]
    both = [e for words, e in said if {"clock", "alarm"} <= words and not set(LANGUAGE.verbs) & words]
    assert len(both) > 20
    assert {example.target for example in both} == {other}


def test_a_copy_types_the_words_after_its_marker_up_to_one_that_is_never_typed() -> None:
    ask, lengths = asking(3), set()
    for _ in range(300):
        example = copy_example(ask, 0)
        words = says(CODEC, example)
        action = CODEC.decode_action(example.action)
        assert action.kind is ActionKind.TYPE
        assert not names_forbidden(action.text.split(), FORBIDDEN)
        assert not names_forbidden(words, FORBIDDEN)
        marker = next(i for i, word in enumerate(words) if word in LANGUAGE.markers)
        typed = action.text.split()
        lengths.add(len(typed))
        assert words[marker + 1 : marker + 1 + len(typed)] == typed
        assert words[marker + 1 + len(typed)] not in LANGUAGE.copied
    assert lengths == {1, 2, 3, 4}


def test_where_a_keyboard_is_up_a_text_is_typed_whatever_else_is_mentioned() -> None:
    ask = asking(4)
    typing = [screen for screen in draw_screens(300, random.Random(7), FORBIDDEN) if screen.typing]
    mentioned = 0
    for screen in typing * 4:
        example = copy_example(ask, 0, screen)
        words, typed = sentence(CODEC, example), CODEC.decode_action(example.action).text.split()
        spans = [words[i + 1 : i + 1 + len(typed)] for i in range(len(words)) if words[i] in LANGUAGE.markers]
        assert typed in spans
        assert not names_forbidden(words, FORBIDDEN)
        labels = [list(target.words) for target in askable(screen, LANGUAGE)]
        mentioned += any(words[: len(label)] == label or words[-len(label) :] == label for label in labels)
    assert 0.3 < mentioned / (4 * len(typing)) < 0.7, "half of the sentences, and those who do so by chance"


def test_a_label_that_stands_twice_or_is_held_out_is_not_asked_for() -> None:
    box = (0.0, 0.0, 1.0, 0.1)
    labels = [("red", "lamp"), ("red", "lamp"), ("red", "shoes"), ("ok",)]
    screen = TrainingScreen(np.zeros((3, 8, 8), np.uint8), tuple(Target("row", label, label, box) for label in labels))
    assert [target.words for target in askable(screen, LANGUAGE)] == [("ok",)]


def test_words_are_found_in_the_cells_that_their_widget_covers() -> None:
    target = Target("button", ("ok",), ("ok", "unheard"), (0.5, 0.25, 1.0, 0.375))
    words, cells = drawn_words([TrainingScreen(np.zeros((3, 8, 8), np.uint8), (target,))], {"ok": 7}, (8, 4))
    assert words.tolist() == [[0, 0, 7]]
    assert np.flatnonzero(cells[0, 0]).tolist() == [10, 11]
