"""Examples in which a widget is not named, or not in sight: look further down a list, know an app by its use, turn the
page of icons.

What apps are for is what a pre-trained model of language knows ("weather": the browser), and no demonstration of a
suite says for every word. Pure: every draw comes from the `rng` that is passed.
"""

from __future__ import annotations

from typing import Final

from distrl.policy.autoui.pretraining.examples import (
    Asking,
    Example,
    Language,
    Phrase,
    TrainingScreen,
    among,
    draw_allowed,
    joined,
    mentions,
    previous,
)
from distrl.policy.autoui.tokenizer import SINGLES
from distrl.types import Action, ActionKind

ICONS: Final = 2
"""Screens with so many icons at least are pages of apps, of which a swipe to the left shows the next."""


def elsewhere_examples(asking: Asking, number: int, screen: TrainingScreen, lists: bool = True) -> list[Example]:
    """Those that screen `number` allows, one of each kind. lists: what a list does not show is looked for."""
    app = app_example(asking, number, screen)
    found = [] if app is None else [app]
    if lists and screen.scrolls and not screen.typing:
        found.append(scroll_example(asking, number, screen))
    return found


def scroll_example(asking: Asking, number: int, screen: TrainingScreen) -> Example:
    """Two words of which the screen, whose list is longer, shows none: they are to be looked for further down."""
    language, rng = asking.language, asking.rng
    labels = [target.words for target in screen.targets]
    shown = {word for target in screen.targets for word in (*target.words, *target.drawn)}
    meant = [word for word in dict.fromkeys(language.copied) if word not in shown]
    while not language.allowed(words := rng.sample(meant, 2)):
        pass
    if rng.random() < 0.5:
        words = [rng.choice(language.verbs), *words]
    before = list[Action]()
    if rng.random() < asking.clutter:
        words = among(words, language.fillers, labels, language, rng)
        before = previous(language, rng)
    return asking.example(number, words, before, SINGLES["<swipe_up>"], "scroll")


def shows_apps(screen: TrainingScreen) -> bool:
    return sum(target.kind == "icon" for target in screen.targets) >= ICONS and not screen.typing and not screen.scrolls


def app_example(asking: Asking, number: int, screen: TrainingScreen) -> Example | None:
    """An app that is asked for by its use, or one on another page by either: touch its icon, or turn the page.

    None where the screen is no page of icons. What it says besides names no widget and asks for no other app.
    """
    language, rng = asking.language, asking.rng
    if not language.uses or not shows_apps(screen):
        return None
    labels = [target.words for target in screen.targets]
    icons = {_app_of(each.words, language): each for each in screen.targets if each.kind == "icon"}
    shown = {name for label in labels for name in (label, language.known_as.get(label))}
    here = [app for app in language.uses if app in icons and labels.count(icons[app].words) == 1]
    away = [app for app in language.uses if app not in shown]
    app = rng.choice(here if here and rng.random() < 0.6 else away)
    others = [phrase for other, uses in language.uses.items() if other != app for phrase in (other, *uses)]
    unsaid = (*labels, *others)
    own_name = [] if app in here else [app]
    phrases = [use for use in (*language.uses[app], *own_name * 4) if not any(mentions(use, label) for label in labels)]
    if not phrases:
        return None
    words, before = list(rng.choice(phrases)), list[Action]()
    if rng.random() < asking.clutter:
        entity = rng.sample(language.copied, rng.randrange(4))
        words = draw_allowed(lambda: joined(words, entity, rng), unsaid, language)
        words = among(words, language.fillers, unsaid, language, rng)
        before = previous(language, rng)
    if any(mentions(words, other) for other in unsaid):
        return None
    if app not in here:
        return asking.example(number, words, before, SINGLES["<swipe_left>"], "page")
    target = icons[app]
    return asking.example(number, words, before, Action(ActionKind.TAP, touch=target.centre), "use", target)


def _app_of(label: Phrase, language: Language) -> Phrase:
    """Which app an icon with that label opens; "store" is the newer name of one app and the older of another."""
    return label if label in language.uses else language.known_as.get(label, label)
