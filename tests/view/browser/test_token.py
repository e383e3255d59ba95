"""With a token the pages ask for it once; then all of them work, pictures and events too."""

from __future__ import annotations

from distrl.stack import ports
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from playwright.sync_api import Browser, expect

from view.browser.conftest import DESKTOP, Shown, opened_at

TOKEN = "a secret of enough letters"


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
            expect(page.get_by_role("link", name=shown.run, exact=True)).to_be_visible()
            view.open(f"#/{shown.run}/trajectories/0:1/0")
            expect(page.locator(".stage img")).to_have_js_property("naturalWidth", 54)
            view.open(f"#/{shown.run}")
            expect(page.locator(".live")).to_have_text("live")

            page.context.clear_cookies()
            view.open(f"#/{shown.run}/devices")
            expect(page.get_by_role("heading", name="The token is missing")).to_be_visible()
            page.get_by_role("button", name="Enter it").click()
            expect(page.get_by_label("Token")).to_be_visible()
            assert TOKEN not in page.url
