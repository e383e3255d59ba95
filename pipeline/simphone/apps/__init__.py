"""The apps of a simulated phone, by name."""

from __future__ import annotations

from typing import Final

from simphone.apps import (
    browser,
    calendar,
    clock,
    contacts,
    downloaded,
    launcher,
    mail,
    maps,
    media,
    messages,
    notes,
    phone,
    settings,
    shop,
    store,
)
from simphone.apps.app import App
from simphone.state import State

REGISTRY: Final[dict[str, App]] = {
    module.APP.name: module.APP
    for module in (
        launcher,
        settings,
        browser,
        shop,
        clock,
        messages,
        notes,
        mail,
        maps,
        contacts,
        phone,
        calendar,
        media,
        store,
    )
}
"""The apps that every phone has."""


def has(state: State, name: str) -> bool:
    """Whether the phone has an app of that name, also from the store."""
    return name in REGISTRY or name in store.installed(state)


def app_named(name: str) -> App:
    """The app of that name; names outside of REGISTRY are apps from the store."""
    return REGISTRY.get(name, downloaded.APP)
