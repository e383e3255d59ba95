"""The page of `distrl phones play` in a real browser: a click is a tap, a drag a swipe, and what is typed arrives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from device.conftest import adb, phone, session, start_phones, timeouts
from distrl.device.play import PlayServer
from distrl.device.session import AdbSession
from playwright.sync_api import Browser, Locator, expect
from simphone.serve import SimulatedPhone

from view.browser.conftest import DESKTOP, PHONE, opened_at
from view.browser.watched import Watched

__all__ = ["adb", "phone", "session", "start_phones", "timeouts"]


@pytest.fixture
def play(browser: Browser, session: AdbSession) -> Iterator[Watched]:
    with PlayServer(session) as server:
        yield from opened_at(browser, server.address, DESKTOP)


def centre(phone: SimulatedPhone, label: str) -> tuple[float, float]:
    """Of the element with this label, as shares of the screen."""
    width, height = phone.machine.size
    box = next(element for element in phone.machine.elements() if element.label == label).box
    return (box[0] + box[2]) / 2 / width, (box[1] + box[3]) / 2 / height


def at(screen: Locator, place: tuple[float, float]) -> tuple[float, float]:
    """A place of the phone's screen on the page, px."""
    box = screen.bounding_box()
    assert box is not None
    return box["x"] + place[0] * box["width"], box["y"] + place[1] * box["height"]


def test_a_click_taps_a_drag_swipes_and_text_and_keys_arrive(play: Watched, phone: SimulatedPhone) -> None:
    page = play.open("")
    screen = page.get_by_alt_text("the phone's screen")
    expect(screen).to_have_js_property("naturalWidth", phone.machine.size[0])
    play.shot("phone")
    with page.expect_response("**/act"):
        page.mouse.click(*at(screen, centre(phone, "browser")))
    assert phone.machine.focus().startswith("com.sim.browser/")

    width, height = phone.machine.size
    field = phone.machine.elements()[1].box
    with page.expect_response("**/act"):
        page.mouse.click(*at(screen, ((field[0] + field[2]) / 2 / width, (field[1] + field[3]) / 2 / height)))
    page.get_by_label("Text").fill("red lamp")
    with page.expect_response("**/act"):
        page.get_by_role("button", name="Type").click()
    assert phone.machine.state()["typed"] == "red lamp"
    with page.expect_response("**/act"):
        page.get_by_role("button", name="Enter").click()
    with page.expect_response("**/act") as swiped:
        page.mouse.move(*at(screen, (0.5, 0.8)))
        page.mouse.down()
        page.mouse.move(*at(screen, (0.5, 0.2)), steps=4)
        page.mouse.up()
    assert swiped.value.status == 204
    assert '"kind":"swipe"' in str(swiped.value.request.post_data)
    with page.expect_response("**/act"):
        page.get_by_role("button", name="Home").click()
    assert phone.machine.focus().startswith("com.sim.launcher/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_is_readable_and_no_wider_than_its_window(
    browser: Browser, session: AdbSession, size: tuple[int, int], scheme: str
) -> None:
    with PlayServer(session) as server:
        for view in opened_at(browser, server.address, size, scheme):
            page = view.open("")
            expect(page.get_by_alt_text("the phone's screen")).not_to_have_js_property("naturalWidth", 0)
            page.locator("#recorder").evaluate("each => each.hidden = false")
            view.shot(f"play-{size[0]}-{scheme}")
            assert view.violations() == []
            assert view.overflow() <= 0
