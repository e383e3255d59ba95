"""With a token the pages ask for it once; then all of them work, pictures and events too, and so do links to them."""

from __future__ import annotations

from distrl.stack import ports
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from playwright.sync_api import Browser, Page, expect

from view.browser.conftest import DESKTOP, Shown, opened_at

TOKEN = "a secret of enough letters"
ELSEWHERE = "http://elsewhere.example/"


def follow_a_link(page: Page, address: str) -> None:
    """On a page of another site."""
    body = f"<a href='{address}'>a run</a>"
    page.route(ELSEWHERE, lambda route: route.fulfill(content_type="text/html", body=body))
    page.goto(ELSEWHERE)
    page.get_by_role("link", name="a run").click()


def test_the_token_is_asked_for_once(browser: Browser, shown: Shown) -> None:
    with (
        Runs(lambda: [shown.run], lambda name: shown.config) as runs,
        ViewServer(runs, "127.0.0.1", ports.draw("a test"), TOKEN) as server,
    ):
        for view in opened_at(browser, server.address, DESKTOP):
            view.allowed = ("the server responded with a status of 401",)
            page = view.open(f"#/{shown.run}/trajectories/0:1/0")
            page.get_by_label("Token").fill("a wrong one")
            page.get_by_role("button", name="Open").click()
            expect(page.get_by_text("That is not the token.")).to_be_visible()
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Open").click()
            expect(page).to_have_url(f"{server.address}#/{shown.run}/trajectories/0:1/0")
            expect(page.locator(".stage img")).to_have_js_property("naturalWidth", 54)
            view.open(f"#/{shown.run}")
            expect(page.locator(".live")).to_have_text("live")

            other = page.context.new_page()
            follow_a_link(other, f"{server.address}#/{shown.run}/devices")
            expect(other.get_by_role("table", name="Devices")).to_be_visible()

            page.context.clear_cookies()
            view.open(f"#/{shown.run}/devices")
            expect(page.get_by_role("heading", name="The token is missing")).to_be_visible()
            page.get_by_role("button", name="Enter it").click()
            expect(page.get_by_label("Token")).to_be_visible()
            assert TOKEN not in page.url
