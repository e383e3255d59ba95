"""The apps of a simulated phone, by name."""

from __future__ import annotations

from typing import Final

from distrl.phone.apps import browser, clock, launcher, messages, notes, settings, shop
from distrl.phone.apps.app import App

REGISTRY: Final[dict[str, App]] = {
    module.APP.name: module.APP for module in (launcher, settings, browser, shop, clock, messages, notes)
}
