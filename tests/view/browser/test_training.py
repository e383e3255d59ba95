"""From the trend to a tap on a run that trains at that moment: every role is a process of its own."""

from __future__ import annotations

import re
from pathlib import Path

from distrl.broker import topic_admin
from distrl.config import Config
from distrl.stack import ports
from distrl.train.roles import running
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from integration.conftest import adb_server, free_ports, free_row, s3
from integration.test_end_to_end import DEADLINE_S, PHONES, base_model, collector, phones, run_config
from playwright.sync_api import Browser, expect

from view.browser.conftest import DESKTOP, opened_at
from view.browser.test_journey import assert_drawn_at
from view.browser.watched import Watched

__all__ = ["adb_server", "base_model", "collector", "free_ports", "free_row", "run_config", "s3"]

TRAINS_MS = DEADLINE_S * 1000


def test_a_run_that_trains_is_followed_to_the_tap_of_a_step(
    browser: Browser, run_config: Config, tmp_path: Path
) -> None:
    config = run_config.model_copy(
        update={"stack": run_config.stack.model_copy(update={"cache": tmp_path / "view-cache"})}
    )
    topic_admin.ensure(config)
    with (
        running(run_config, tmp_path / "logs") as roles,
        Runs(lambda: [config.run], lambda name: config) as runs,
        ViewServer(runs, "127.0.0.1", ports.draw("a test"), None) as server,
    ):
        for view in opened_at(browser, server.address, DESKTOP):
            view.allowed = ("the server responded with a status of 503",)  # before the first records are read
            page = view.open(f"#/{config.run}")
            expect(page.get_by_text("Nothing to plot yet")).to_be_visible(timeout=TRAINS_MS)
            roles.start("learner", "learner")
            roles.start("demonstrate", "demonstrate")
            roles.start("worker-0", "worker", sets=phones(config, 0, PHONES - 1))
            roles.start("evaluator", "evaluate", sets=phones(config, PHONES - 1, PHONES))
            roles.start("feeder", "feed")

            page.get_by_role("button", name="and").click(timeout=TRAINS_MS)  # a version and episodes are offered
            plot = page.get_by_role("group", name="Success of evaluated versions")
            over = plot.locator(".u-over")
            while not over.is_visible():
                roles.check()
                page.locator(".offer").click(timeout=TRAINS_MS)
                view.settled()
            view.shot("training")
            plot.focus()
            page.keyboard.press("Home")
            page.keyboard.press("Enter")
            expect(page.get_by_role("heading", name="Version 0", exact=True)).to_be_visible()
            page.get_by_role("link", name="Episodes that it played").click()
            expect(page.locator(".row-link")).not_to_have_count(0)
            page.get_by_role("button", name="Clear filters").click()
            # Its policy has random weights, which write no touch; most scripted demonstrations have some.
            page.locator("select[name=topic]").select_option("demonstrations")
            expect(page).to_have_url(re.compile(r"\?topic=demonstrations$"))
            page.locator(f".row-link[href$='/{demonstration_with_touches(view, config.run)}']").click()
            assert touches_are_in_place(view, config.run) > 0
        roles.stop("feeder", "worker-0", "evaluator", "demonstrate")
        roles.stop("learner")


def touched(view: Watched, run: str, place: str) -> list[list[float] | None]:
    """Of each step of an episode, where it touches the screen. place: TOPIC/PARTITION:OFFSET."""
    steps = view.page.request.get(f"{view.address}api/runs/{run}/{place}").json()["steps"]
    return [step["action"]["touch"] for step in steps]


def demonstration_with_touches(view: Watched, run: str) -> str:
    """Its place: the first of the list that has any."""
    rows = view.page.request.get(f"{view.address}api/runs/{run}/trajectories?topic=demonstrations").json()["rows"]
    places = (f"demonstrations/{row['partition']}:{row['offset']}" for row in rows)
    return next(place for place in places if any(touched(view, run, place)))


def touches_are_in_place(view: Watched, run: str) -> int:
    """How many touches the shown episode has; each must be drawn where its record says."""
    page, found = view.page, 0
    expect(page.get_by_role("heading", name="Step 1 of")).to_be_visible()
    place = page.locator(".permalink").inner_text().rpartition("/")[0]
    for index, touch in enumerate(touched(view, run, place)):
        expect(page.get_by_role("heading", name=f"Step {index + 1} of")).to_be_visible()
        if touch is not None:
            image = page.locator(".stage img")
            expect(image).not_to_have_js_property("naturalWidth", 0)
            assert_drawn_at(page.locator(".stage .ink circle.dot"), image, *touch)
            view.shot("training-tap")
            found += 1
        page.keyboard.press("ArrowRight")
    return found
