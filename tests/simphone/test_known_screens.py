"""The screens that the shipped base model learned on, held pixel by pixel: it reads no others.

A digest covers what a step shows on three phones in every generation. What fails here is a changed look: mend it, or
train another base model and write its screens down with `python tests/simphone/test_known_screens.py`.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from simphone import words
from simphone.gallery import event_for
from simphone.generations import NEWEST
from simphone.machine import draw, fresh, reduce
from simphone.popups import POPUPS
from simphone.state import State

WALK: Final = (
    "HOME", "settings", "first", "swipe",
    "HOME", "browser", "field", "type", "ENTER", "2",
    "HOME", "shop", "etsy", "field", "type", "ENTER", "red", "cart",
    "HOME", "clock", "alarm", "7 am",
    "HOME", "messages", "first", "field", "type", "send", "field",
    "HOME", "notes", "new", "field", "type", "save",
)  # fmt: skip
CHANGED: Final = frozenset({"19 clock"})
"""The face has got two buttons since, and no task of the home suite stays on it."""
DIGESTS: Final = {
    "00 HOME": "44e0bbcee0e05b5562a439cf",
    "01 settings": "5602e114965526d75fcb36dc",
    "02 first": "fbd3197853f3dfb5efdcd3b3",
    "03 swipe": "e94932a02996bd9dc59db9cb",
    "04 HOME": "44e0bbcee0e05b5562a439cf",
    "05 browser": "f4334701c4d8975d2bfbdd7f",
    "06 field": "ce7bba925905965e11e94f97",
    "07 type": "ceb6af33b41a09143c0557b4",
    "08 ENTER": "4c2253d9a548dfe2b0b179cb",
    "09 2": "1dfc92ac47d2b8f2e2453970",
    "10 HOME": "44e0bbcee0e05b5562a439cf",
    "11 shop": "01b62df3a1f6bff42a735bd6",
    "12 etsy": "71f5bd8f3a1b734a2fab8b2b",
    "13 field": "1a0041166bca7d7b6f06954f",
    "14 type": "978e2c5023ef2f90fd84f97b",
    "15 ENTER": "9419eedece87fcd6adcce917",
    "16 red": "c49232b5c03d745433226651",
    "17 cart": "f3885b1de2589690f3cdec36",
    "18 HOME": "44e0bbcee0e05b5562a439cf",
    "20 alarm": "992ee1da876fdcdd5a047002",
    "21 7 am": "40e9bd091e9f7fe0959bf3cb",
    "22 HOME": "44e0bbcee0e05b5562a439cf",
    "23 messages": "dd1fd3dd2a1cb6e93a00a39a",
    "24 first": "63e2fad890c400ee215615b9",
    "25 field": "e40bb505ccf379210ba01fa6",
    "26 type": "518735fcc9ba3b888b6d9dcd",
    "27 send": "9ac2c337f3f6449174791b22",
    "28 field": "00d26318a35e6aaaa18365f0",
    "29 HOME": "44e0bbcee0e05b5562a439cf",
    "30 notes": "161a0e4a417823b381aebcee",
    "31 new": "3a1bab50b254d5a5ab7453bb",
    "32 field": "0c27703fb5a02f9de26960ec",
    "33 type": "9682f0135eff90b22dc31486",
    "34 save": "05ab744bdac535b32ca871c4",
    "over notes: rate": "30aa1156263bd12133563717",
    "over notes: sale": "65f315066af2001d5c2717ed",
    "over notes: update": "a53baacfdbbac6b42a211e2a",
}


def _steps(state: State) -> Iterator[tuple[str, State]]:
    """What a visitor does, and what is seen then."""
    for number, step in enumerate(WALK):
        state = reduce(state, event_for(state, step))
        yield f"{number:02} {step}", state
    for name in sorted(POPUPS):
        yield f"over notes: {name}", replace(state, dialog=name)


def digests() -> dict[str, str]:
    found: dict[str, hashlib._Hash] = {}
    for seed, generation in product((0, 1, 5), range(NEWEST + 1)):
        for name, state in _steps(fresh(seed, {}, 0.0, generation)):
            found.setdefault(name, hashlib.sha256()).update(draw(state).tobytes())
    return {name: each.hexdigest()[:24] for name, each in found.items() if name not in CHANGED}


def test_the_screens_that_the_base_model_knows_are_as_it_learned_them() -> None:
    assert digests() == DIGESTS


def test_the_words_that_the_base_model_knows_are_those_that_it_learned() -> None:
    assert hashlib.sha256(" ".join(words.ALL).encode()).hexdigest()[:24] == "d12befb1d9ddb694303e9203"


if __name__ == "__main__":
    for name, digest in digests().items():
        print(f'    "{name}": "{digest}",')
