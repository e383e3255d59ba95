import multiprocessing
from itertools import islice

import numpy as np
from distrl.policy.autoui.pretraining import stream
from distrl.policy.autoui.pretraining.examples import TrainingScreen
from distrl.policy.autoui.pretraining.stream import CHUNK, fresh_screens

NONE: frozenset[tuple[str, str]] = frozenset()


def pictures(screens: list[TrainingScreen]) -> list[bytes]:
    return [screen.pixels.tobytes() for screen in screens]


def test_as_many_screens_come_as_were_asked_for_and_none_twice() -> None:
    drawn = pictures(list(fresh_screens("a", CHUNK + 3, NONE, 0.5)))
    assert len(drawn) == len(set(drawn)) == CHUNK + 3


def test_a_stream_depends_on_its_name_alone_and_not_on_how_far_ahead_it_is_drawn() -> None:
    first = list(fresh_screens("a", 40, NONE, 0.5))
    assert pictures(list(islice(fresh_screens("a", 40, NONE, 0.5), 40))) == pictures(first)
    assert pictures(list(fresh_screens("b", 40, NONE, 0.5))) != pictures(first)
    assert np.array_equal(first[0].letters, next(iter(fresh_screens("a", 40, NONE, 0.5))).letters)


def test_drawing_ahead_stops_with_who_asks() -> None:
    """Left half-way, as when training fails, a stream ends its process."""
    before = set(multiprocessing.active_children())
    asked = fresh_screens("a", 8 * CHUNK, NONE, 0.5)
    next(asked)
    drawing = set(multiprocessing.active_children()) - before
    assert len(drawing) == 1
    asked.close()
    assert not drawing & set(multiprocessing.active_children())
    assert stream.AHEAD < 8
