import random
from dataclasses import replace

import numpy as np
import pytest
from distrl.policy.autoui.pretraining.elsewhere import (
    app_example,
    elsewhere_examples,
    scroll_example,
    shows_apps,
)
from distrl.policy.autoui.pretraining.examples import Asking, Example, Phrase, Target, TrainingScreen
from distrl.policy.autoui.pretraining.screens import USES, draw_screens, phone_language, phone_tokenizer
from distrl.policy.autoui.tokenizer import SINGLES
from distrl.rollout.vocabulary import words_of_all_suites
from distrl.types import ActionKind
from simphone.lexicon import MORE_APPS
from simphone.words import APPS

from policy.autoui.sentences import holds, names_forbidden, sentence

FORBIDDEN = frozenset({("red", "shoes"), ("wifi", "saver"), ("anna", "lee"), ("7", "am")})
MORE = words_of_all_suites(phone_tokenizer())
CODEC = phone_tokenizer(MORE)
LANGUAGE = phone_language(FORBIDDEN, MORE, MORE)


def asking(seed: int) -> Asking:
    return Asking(CODEC, LANGUAGE, random.Random(seed))


def allowed(example: Example) -> bool:
    return not names_forbidden(sentence(CODEC, example), FORBIDDEN)


def page(*names: str) -> TrainingScreen:
    """Icons with these labels, one below the other."""
    targets = tuple(
        Target("icon", tuple(name.split()), tuple(name.split()), (0.0, at / 8, 0.5, (at + 1) / 8))
        for at, name in enumerate(names)
    )
    return TrainingScreen(np.zeros((3, 8, 8), np.uint8), targets)


def asked(screen: TrainingScreen, count: int = 300) -> list[Example]:
    ask = asking(1)
    return [e for _ in range(count) if (e := app_example(ask, 0, screen)) is not None]


@pytest.fixture(scope="module")
def screens() -> list[TrainingScreen]:
    return draw_screens(600, random.Random(9), FORBIDDEN, 0.2, MORE)


def test_every_app_has_its_uses_and_each_is_of_words_that_the_model_knows() -> None:
    assert set(USES) == {*APPS, *MORE_APPS}
    assert {word for uses in USES.values() for use in uses for word in use.split()} <= set(CODEC.words)
    phrases = [phrase for app, uses in LANGUAGE.uses.items() for phrase in (app, *uses)]
    assert len(phrases) == len(set(phrases)) == sum(map(len, USES.values())) + len(USES), "none asks for two apps"


def test_a_model_of_the_phones_words_alone_knows_the_uses_that_it_can_read() -> None:
    alone = phone_language(FORBIDDEN)
    assert set(alone.uses) == set(LANGUAGE.uses)
    assert ("wake",) in alone.uses[("clock",)]
    assert ("weather",) not in alone.uses[("browser",)]


def test_what_a_list_does_not_show_is_looked_for_further_down(screens: list[TrainingScreen]) -> None:
    ask = asking(8)
    lists = [screen for screen in screens if screen.scrolls]
    assert 80 < len(lists) < 400
    assert any(target.kind == "toggle" for screen in lists for target in screen.targets)
    for n, screen in enumerate(lists):
        example = scroll_example(ask, n, screen)
        assert (example.kind, CODEC.decode_action(example.action)) == ("scroll", SINGLES["<swipe_up>"])
        assert allowed(example)
        labels = [target.words for target in screen.targets if target.words]
        assert not any(holds(sentence(CODEC, example), label) for label in labels)


def test_an_app_is_touched_where_its_use_is_asked_for_and_its_name_is_not() -> None:
    used = [example for example in asked(page("clock", "browser", "maps", "star")) if example.kind == "use"]
    assert {example.target.words for example in used if example.target} == {("clock",), ("browser",), ("maps",)}
    for example in used:
        assert example.target is not None
        assert example.target.holds(CODEC.decode_action(example.action).touch or pytest.fail("no touch"))
        said, app = sentence(CODEC, example), example.target.words
        assert any(holds(said, use) for use in LANGUAGE.uses[app])
        others = [phrase for other, uses in LANGUAGE.uses.items() if other != app for phrase in (other, *uses)]
        assert not any(holds(said, phrase) for phrase in (*others, app, ("star",)))
        assert allowed(example)


def test_an_app_that_is_not_on_the_page_turns_it() -> None:
    turned = [example for example in asked(page("clock", "browser", "maps", "star")) if example.kind == "page"]
    assert {CODEC.decode_action(example.action) for example in turned} == {SINGLES["<swipe_left>"]}
    here, named = {("clock",), ("browser",), ("maps",)}, set[Phrase]()
    for example in turned:
        apps = {
            app
            for app, uses in LANGUAGE.uses.items()
            if any(holds(sentence(CODEC, example), each) for each in (app, *uses))
        }
        assert len(apps) == 1
        assert not apps & here
        named |= apps
    assert named == set(LANGUAGE.uses) - here


def test_newer_names_are_the_same_apps() -> None:
    examples = asked(page("time", "web", "store", "market"))
    tapped = {example.target.words for example in examples if example.target}
    assert tapped <= {("time",), ("web",), ("store",), ("market",)}
    away = [sentence(CODEC, example) for example in examples if example.target is None]
    for app in ("clock", "browser", "shop", "store"):
        assert not any(holds(said, (app,)) for said in away), "a newer name of it is there"


def test_only_pages_of_icons_are_turned(screens: list[TrainingScreen]) -> None:
    assert not shows_apps(page("clock"))
    assert shows_apps(page("clock", "maps"))
    assert not shows_apps(replace(page("clock", "maps"), typing=True))
    assert not shows_apps(replace(page("clock", "maps"), scrolls=True)), "there, what is missing is further down"
    for screen in screens:
        example = app_example(asking(3), 0, screen)
        assert example is None or shows_apps(screen)


def test_synthetic_screens_ask_for_each_kind(screens: list[TrainingScreen]) -> None:
    ask = asking(5)
    made = [elsewhere_examples(ask, n, screen) for n, screen in enumerate(screens)]
    kinds = [example.kind for examples in made for example in examples]
    assert {kind for kind in kinds if kinds.count(kind) > 20} == {"scroll", "use", "page"}
    without = [elsewhere_examples(ask, n, s, lists=False) for n, s in enumerate(screens)]
    assert {example.kind for examples in without for example in examples} == {"use", "page"}
    typed = [CODEC.decode_action(e.action).kind for e in asked(page("clock", "maps"))]
    assert set(typed) == {ActionKind.TAP, ActionKind.SWIPE}
