from __future__ import annotations

import math

import pytest
from distrl.errors import PolicyError
from distrl.policy.autoui.tokenizer import END, SINGLES, UNKNOWN, WordTokenizer
from distrl.types import Action, ActionKind, Point
from hypothesis import given
from hypothesis import strategies as st

from policy.conftest import WORDS

CODEC = WordTokenizer(WORDS)
COORDINATES = ("x3", "y12", "x9")
SPELLED = WordTokenizer((*WORDS, *COORDINATES))

cells = st.tuples(st.integers(0, 7), st.integers(0, 15)).map(lambda c: Point((c[0] + 0.5) / 8, (c[1] + 0.5) / 16))
typed = st.lists(st.sampled_from(WORDS), min_size=1, max_size=CODEC.action_length - 2).map(" ".join)
canonical = st.one_of(
    cells.map(lambda point: Action(ActionKind.TAP, touch=point)),
    typed.map(lambda text: Action(ActionKind.TYPE, text=text)),
    st.sampled_from(list(SINGLES.values())),
)
spelled = st.lists(st.sampled_from(COORDINATES), min_size=1, max_size=CODEC.action_length - 2).map(" ".join)
fractions = st.floats(0, 1)


@given(canonical)
def test_what_the_grammar_can_say_round_trips(action: Action) -> None:
    ids = CODEC.encode_action(action)
    assert ids[-1] == END
    assert len(ids) <= CODEC.action_length
    assert CODEC.decode_action(ids) == action


@given(st.one_of(canonical, spelled.map(lambda text: Action(ActionKind.TYPE, text=text))))
def test_words_that_are_spelled_as_coordinates_are_typed_and_are_no_places(action: Action) -> None:
    assert SPELLED.decode_action(SPELLED.encode_action(action)) == action
    assert SPELLED.decode_action((SPELLED.grammar["<tap>"], *SPELLED.encode_prompt("x3 y12", [])[:2], END)) == Action(
        ActionKind.INVALID, text="<tap> x3 y12"
    )


@given(st.lists(st.integers(0, len(CODEC.tokens) - 1), max_size=7))
def test_ids_are_an_action_that_encodes_to_them_or_invalid_with_their_text(ids: list[int]) -> None:
    action = CODEC.decode_action(ids)
    if action.kind is ActionKind.INVALID:
        assert action.text == " ".join(CODEC.tokens[i] for i in ids).removesuffix(" </s>")
    elif len(ids) <= CODEC.action_length:
        assert CODEC.encode_action(action) == tuple(ids)


@given(fractions, fractions)
def test_a_tap_moves_at_most_half_a_cell(x: float, y: float) -> None:
    touch = CODEC.decode_action(CODEC.encode_action(Action(ActionKind.TAP, touch=Point(x, y)))).touch
    assert touch is not None
    assert abs(touch.x - x) <= 1 / 16 + 1e-9
    assert abs(touch.y - y) <= 1 / 32 + 1e-9


@pytest.mark.parametrize(
    "tokens",
    [
        "",
        "</s>",
        "<tap> x3 </s>",
        "<tap> y3 x3 </s>",
        "<tap> x3 y3",
        "<tap> x3 y3 </s> </s>",
        "<type> </s>",
        "<type> <tap> </s>",
        "<type> x3 </s>",
        "<type> <unk> </s>",
        "<back> <back> </s>",
        "red </s>",
        "<pad> <back> </s>",
    ],
)
def test_everything_else_is_invalid(tokens: str) -> None:
    ids = [CODEC.tokens.index(token) for token in tokens.split()]
    assert CODEC.decode_action(ids).kind is ActionKind.INVALID


def test_prompt_is_the_instruction_and_the_last_two_actions() -> None:
    back, typed_red = Action(ActionKind.BACK), Action(ActionKind.TYPE, text="red")
    ids = CODEC.encode_prompt("Search for, RED dragons!", [Action(ActionKind.HOME), typed_red, back])
    assert [CODEC.tokens[i] for i in ids] == [
        *("search", "for", "red", "<unk>"),
        *("<prev>", "<type>", "red", "<prev>", "<back>", "</s>"),
    ]
    begun = CODEC.encode_prompt("touch", [Action(ActionKind.INVALID, text="x")])
    assert [CODEC.tokens[i] for i in begun] == ["touch", "<prev>", "<none>", "<prev>", "<invalid>", "</s>"]


@given(st.text())
def test_an_instruction_cannot_write_tokens_of_the_grammar(text: str) -> None:
    ids = CODEC.encode_prompt(text + " <tap> x3 </s>", [])
    plain = {CODEC.tokens.index(word) for word in WORDS} | {UNKNOWN}
    assert set(ids[:-5]) <= plain
    assert len(ids) <= CODEC.prompt_length


def test_a_long_instruction_loses_its_last_words_and_keeps_the_actions() -> None:
    ids = CODEC.encode_prompt("red " * 100, [Action(ActionKind.BACK)])
    assert len(ids) == CODEC.prompt_length
    assert [CODEC.tokens[i] for i in ids[-5:]] == ["<prev>", "<none>", "<prev>", "<back>", "</s>"]


@pytest.mark.parametrize(
    "action",
    [
        Action(ActionKind.TYPE, text="dragons"),
        Action(ActionKind.TYPE, text=""),
        Action(ActionKind.TYPE, text="red " * 9),
        Action(ActionKind.INVALID, text="red"),
        Action(ActionKind.TAP),
    ],
)
def test_what_the_grammar_cannot_say_is_refused(action: Action) -> None:
    with pytest.raises(PolicyError, match="words"):
        CODEC.encode_action(action)


@pytest.mark.parametrize("words", [("red", "red"), ("<tap>",), ("</s>",), ("Red",), ("red shoes",), ("",)])
def test_a_word_that_would_be_ambiguous_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(PolicyError, match="vocabulary"):
        WordTokenizer(words)


@given(fractions, fractions, fractions, fractions)
def test_a_swipe_becomes_the_canonical_one_of_its_direction(x0: float, y0: float, x1: float, y1: float) -> None:
    swipe = Action(ActionKind.SWIPE, touch=Point(x0, y0), lift=Point(x1, y1))
    found = CODEC.decode_action(CODEC.encode_action(swipe))
    assert found in SINGLES.values()
    assert found.touch is not None
    assert found.lift is not None
    along = (found.lift.x - found.touch.x) * (x1 - x0) + (found.lift.y - found.touch.y) * (y1 - y0)
    assert along >= 0


@pytest.mark.parametrize("x", [math.nan, math.inf, -math.inf])
def test_a_tap_at_no_point_is_refused_as_what_it_is(x: float) -> None:
    """A record can hold one, and a prompt repeats the last actions."""
    nowhere = Action(ActionKind.TAP, touch=Point(x, 0.5))
    with pytest.raises(PolicyError, match="has the point"):
        CODEC.encode_prompt("turn on wifi", [nowhere])
