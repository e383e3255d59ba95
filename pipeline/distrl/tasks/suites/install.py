"""The install suite, after Android in the Wild's: get, update, remove and open apps of the store, 20 steps a task.

The paper evaluates agents of the general suite on the first 128 tasks of it (appendix A.6.2) and trains on none; the
training list is ours.
"""

from __future__ import annotations

from typing import Final

from simphone.state import State, words_of

from distrl.tasks import moves
from distrl.tasks.conditions import equals
from distrl.tasks.family import Of, family
from distrl.tasks.listed import ListedSuite
from distrl.tasks.persistent_state import Kept
from distrl.tasks.suites.world import STORE_APPS
from distrl.types import Split


def with_it(start: State, of: Of) -> Kept:
    return {("store", "installed"): tuple(sorted({*words_of(start.of("store")["installed"]), of["app"]}))}


def without_it(start: State, of: Of) -> Kept:
    data = start.of("store")
    return {
        ("store", name): tuple(app for app in words_of(data[name]) if app != of["app"]) for name in ("installed", "old")
    }


def up_to_date(start: State, of: Of) -> Kept:
    return {("store", "old"): tuple(app for app in words_of(start.of("store")["old"]) if app != of["app"])}


INSTALL = family(
    "install", "store",
    ('Install the app "{app}".', 'Get "{app}" from the store.', 'Download "{app}" from the store.',
     'Open the store and install "{app}".'),
    {"app": STORE_APPS}, lambda now, of: moves.press_of_app(now, of["text"], "install"), types={"text": "{app}"},
    setup=lambda of: {"store": {"missing": of["app"]}}, changes=with_it,
)  # fmt: skip
UNINSTALL = family(
    "remove", "store",
    ('Uninstall "{app}".', 'Remove the app "{app}".', 'I no longer need "{app}": uninstall it.',
     'Open the store and uninstall "{app}".'),
    {"app": STORE_APPS}, lambda now, of: moves.press_of_app(now, of["text"], "uninstall"), types={"text": "{app}"},
    setup=lambda of: {"store": {"installed": of["app"]}}, changes=without_it,
    answers={"store/uninstall": "uninstall"},
)  # fmt: skip
UPDATE = family(
    "update", "store",
    ('Update the app "{app}".', 'Update "{app}" in the store.', 'Get the new version of "{app}".',
     'Open the store and update "{app}".'),
    {"app": STORE_APPS}, lambda now, of: moves.press_of_app(now, of["text"], "update"), types={"text": "{app}"},
    setup=lambda of: {"store": {"old": of["app"]}}, changes=up_to_date,
)  # fmt: skip
OPEN = family(
    "open", "store",
    ('Open app "{app}" (install if not already installed).', 'Open "{app}", install it first if it is missing.',
     'Start "{app}" (install it if needed).'),
    {"app": STORE_APPS, "begin": ("missing", "installed")},
    lambda now, of: moves.open_app(now, of["text"]), types={"text": "{app}"},
    setup=lambda of: {"store": {of["begin"]: of["app"]}},
    shows=lambda now, of: equals(now, "screen", f"{of['app']}/main"), changes=with_it,
)  # fmt: skip

KINDS: Final = (INSTALL, UNINSTALL, UPDATE, OPEN)

INSTALLS: Final = ListedSuite(
    "install", 20, KINDS,
    {split: {kind.name: count for kind in KINDS} for split, count in
     ((Split.TRAIN, 40), (Split.VALIDATION, 8), (Split.TEST, 32))},
)  # fmt: skip
