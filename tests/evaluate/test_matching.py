from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from distrl.evaluate.matching import DUAL_POINT, Gestures, matches, padded
from hypothesis import given
from hypothesis import strategies as st

PAIRS = Path(__file__).parent / "fixtures" / "aitw_action_matching.jsonl"
"""500 random pairs with the answer of the published metric; points are (y, x), boxes (y, x, height, width)."""

points = st.tuples(st.floats(0, 1, width=32), st.floats(0, 1, width=32))
types = st.sampled_from([DUAL_POINT, DUAL_POINT, DUAL_POINT, "TYPE", "PRESS_BACK"])
pairs = st.lists(st.tuples(points, points, types, points, points, types), min_size=1, max_size=20)
screens = st.lists(st.tuples(*[st.floats(0, 1, width=32)] * 4), max_size=4)


def one(touch: tuple[float, float], lift: tuple[float, float] | None = None, kind: str = DUAL_POINT) -> Gestures:
    return Gestures.of([touch], [lift or touch], [kind])


def test_the_published_answers() -> None:
    rows = [json.loads(line) for line in PAIRS.read_text().splitlines()]
    first, second = (
        Gestures.of([r[f"touch_{n}"] for r in rows], [r[f"lift_{n}"] for r in rows], [r[f"type_{n}"] for r in rows])
        for n in (1, 2)
    )
    found = matches(first, second, padded([row["boxes_yxhw"] for row in rows]))
    assert len(rows) == 500
    assert [i for i, row in enumerate(rows) if row["match"] != found[i]] == []
    assert 0.1 < found.mean() < 0.9, "both answers occur"


@pytest.mark.parametrize(
    ("first", "second", "boxes", "match"),
    [
        (one((0.5, 0.5)), one((0.5, 0.63)), [], True),
        (one((0.5, 0.5)), one((0.5, 0.65)), [], False),
        (one((0.5, 0.3)), one((0.5, 0.7)), [(0.48, 0.4, 0.04, 0.2)], True),  # the box reaches 0.14 farther each way
        (one((0.5, 0.3)), one((0.5, 0.7)), [(0.48, 0.4, 0.04, 0.1)], False),
        (one((0.5, 0.1)), one((0.5, 0.9)), [(0.4, 0.05, 0.2, 0.1), (0.4, 0.85, 0.2, 0.1)], False),  # in two boxes
        (one((0.0, 0.0)), one((0.33, 0.0)), [(0.0, 0.0, 0.14, 0.1)], True),  # clamped above, so it reaches 2.4 * 0.14
        (one((0.8, 0.5), (0.2, 0.5)), one((0.2, 0.5), (0.8, 0.6)), [], True),  # up and down
        (one((0.8, 0.5), (0.2, 0.5)), one((0.5, 0.2), (0.5, 0.8)), [], False),
        (one((0.5, 0.5)), one((0.5, 0.5), (0.5, 0.55)), [], False),  # a tap and a drag
        (one((0.5, 0.5), (0.5, 0.53)), one((0.5, 0.5)), [], True),  # a finger that trembled
        (one((0.1, 0.1), kind="TYPE"), one((0.9, 0.9), kind="TYPE"), [], True),
        (one((0.1, 0.1), kind="TYPE"), one((0.1, 0.1)), [], False),
        (one((-1.0, -1.0), kind="PRESS_HOME"), one((-1.0, -1.0), kind="PRESS_BACK"), [], False),
    ],
)
def test_each_rule(first: Gestures, second: Gestures, boxes: list[tuple[float, ...]], match: bool) -> None:
    assert matches(first, second, padded([boxes])).tolist() == [match]
    assert matches(second, first, padded([boxes])).tolist() == [match]


@given(pairs, screens)
def test_pairs_are_judged_each_by_itself_and_an_action_matches_itself(
    rows: list[tuple[tuple[float, float], ...]], boxes: list[tuple[float, ...]]
) -> None:
    columns = list(zip(*rows, strict=True))
    first, second = Gestures.of(*columns[:3]), Gestures.of(*columns[3:])  # type: ignore[arg-type]
    together = matches(first, second, padded([boxes] * len(rows)))
    alone = [
        matches(Gestures.of([a], [b], [c]), Gestures.of([d], [e], [f]), padded([boxes]))[0]  # type: ignore[list-item]
        for a, b, c, d, e, f in rows
    ]
    assert together.tolist() == alone
    assert matches(first, first, padded([boxes] * len(rows))).all()


def test_what_is_of_another_shape_or_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not \\(2, 2\\)"):
        Gestures.of([(0.5, 0.5)], [(0.5, 0.5)], ["TYPE", "TYPE"])
    with pytest.raises(ValueError, match="not finite"):
        one((0.5, float("nan")))
    with pytest.raises(ValueError, match="boxes of shape"):
        matches(one((0.5, 0.5)), one((0.5, 0.5)), np.zeros((2, 1, 4)))
    nan = (float("nan"), float("nan"))
    assert matches(one(nan, kind="TYPE"), one(nan, kind="TYPE"), padded([[]])).all()
