"""Every page: readable for axe-core in dark and light, as wide as a phone's window, and kept as a picture."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from view.browser.conftest import DESKTOP, PHONE, Shown, opened

PLACES = {
    "runs": "#/",
    "run": "#/RUN",
    "versions": "#/RUN/versions",
    "version": "#/RUN/versions/2",
    "trajectories": "#/RUN/trajectories",
    "more filters": "#/RUN/trajectories?device=x",
    "none": "#/RUN/trajectories?text=nothing",
    "episode": "#/RUN/trajectories/0:17/0",
    "hostile": "#/RUN/trajectories/0:5/2",
    "task": "#/RUN/tasks/validation-3",
    "failures": "#/RUN/failures",
    "devices": "#/RUN/devices",
    "dead-letter": "#/RUN/trajectories.dlq/0:0",
    "dead-letters": "#/RUN/dead-letters",
    "unknown": "#/RUN/nowhere",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_is_readable_and_no_wider_than_its_window(
    browser: Browser, shown: Shown, size: tuple[int, int], scheme: str
) -> None:
    for view in opened(browser, shown, size, scheme):
        found: dict[str, list[str]] = {}
        for name, place in PLACES.items():
            page = view.open(place.replace("RUN", shown.run))
            view.settled()
            if name == "run":
                expect(page.locator(".u-over").first).to_be_visible()
            view.shot(f"{name}-{size[0]}-{scheme}")
            found[name] = view.violations() + [f"{by} px too wide" for by in [view.overflow()] if by > 0]
        assert {name: each for name, each in found.items() if each} == {}


def test_the_choice_of_colours_is_kept(browser: Browser, shown: Shown) -> None:
    for view in opened(browser, shown, DESKTOP):
        page = view.open(f"#/{shown.run}")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_label("Colours").select_option("dark")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert dark != paper
        page.reload()
        expect(page.get_by_label("Colours")).to_have_value("dark")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
