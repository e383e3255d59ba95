"""What records say is shown and never run; very many steps stay usable; what is not there is explained."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest
from playwright.sync_api import expect

from view.browser.conftest import PATIENCE_MS, Shown
from view.browser.records import LONG_STEPS
from view.browser.watched import Watched
from view.world import HOSTILE

SEEN = "<script>alert(1)</script>\\x00\\x1b[2J\\u202e\\u2066 \"'&<img src=x onerror=alert(1)>"
MOST_FRAMES = 40


@pytest.mark.parametrize(
    "place",
    [
        "trajectories/0:5/2",
        "trajectories?text=" + quote("<script>"),
        "tasks/" + quote("evil/" + HOSTILE, safe=""),
        "failures",
        "devices",
        "dead-letters",
        "trajectories.dlq/0:0",
    ],
)
def test_a_hostile_text_is_shown_as_text(view: Watched, shown: Shown, place: str) -> None:
    page = view.open(f"#/{shown.run}/{place}")
    view.settled()
    expect(page.get_by_text(SEEN).locator("visible=true").first).to_be_visible()  # filters offer it in closed lists
    assert page.locator("main script, main img[src='x']").count() == 0
    hidden = page.evaluate("document.body.innerText.match(/[\\u0000-\\u0008\\u001b\\u202a-\\u202e\\u2066-\\u2069]/g)")
    assert hidden is None
    assert page.locator(f"bdi:has-text('{SEEN[:25]}'), pre:has-text('{SEEN[:25]}')").count() > 0


def opens_a_dead_letter(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/dead-letters")
    page.get_by_role("link", name="0:0", exact=True).click()
    expect(page).to_have_url(re.compile(r"/trajectories\.dlq/0:0$"))
    expect(page.get_by_role("heading", name="Dead letter 0:0")).to_be_visible()
    page.reload()
    expect(page.locator("main .facts")).to_contain_text(f"{shown.run}.trajectories 0:77")
    expect(page.get_by_text(SEEN)).to_be_visible()
    expect(page.get_by_role("link", name="Dead letters", exact=True)).to_have_attribute("aria-current", "page")
    page.get_by_role("link", name="All dead letters").click()
    expect(page.get_by_role("table", name="Dead letters")).to_be_visible()


def test_a_dead_letter_has_a_permalink(view: Watched, shown: Shown) -> None:
    opens_a_dead_letter(view, shown)


def test_an_episode_of_very_many_steps_keeps_few_of_them_in_the_document(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/demonstrations/0:1/5000")
    expect(page.get_by_role("heading", name=f"Step 5,001 of {LONG_STEPS:,}")).to_be_visible()
    expect(page.locator("#frame-5000")).to_have_attribute("aria-selected", "true")
    view.shot("long")
    assert page.locator(".strip-item").count() < MOST_FRAMES
    page.keyboard.press("End")
    expect(page.get_by_role("heading", name="The end")).to_be_visible()
    expect(page.locator(f"#frame-{LONG_STEPS}")).to_be_in_viewport()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("heading", name=f"Step {LONG_STEPS:,} of {LONG_STEPS:,}")).to_be_visible()
    page.locator(".strip").evaluate("each => each.scrollLeft = 0")
    page.locator("#frame-2").click()
    expect(page.get_by_role("heading", name=f"Step 3 of {LONG_STEPS:,}")).to_be_visible()
    assert page.locator(".strip-item").count() < MOST_FRAMES
    asked = [each for each in view.requests if "/images/" in each]
    assert len(asked) < 4 * MOST_FRAMES


@pytest.mark.parametrize(
    ("place", "title"),
    [
        ("#/no-such-run", "This is not there"),
        ("#/RUN/versions/99", "This is not there"),
        ("#/RUN/trajectories/0:9999", "This is not there"),
        ("#/RUN/trajectories.dlq/0:99", "This is not there"),
        ("#/RUN/trajectories/0:1/2/3/4", "This address names no page"),
        ("#/RUN/trajectories?version=x", "This could not be loaded"),
        ("#/RUN/trajectories?outcom=failure", "This could not be loaded"),
        ("#/RUN/trajectories?text=nothing", "No episode matches"),
    ],
)
def test_what_is_not_there_is_explained(view: Watched, shown: Shown, place: str, title: str) -> None:
    view.allowed = ("the server responded with a status of 40",)
    page = view.open(place.replace("RUN", shown.run))
    expect(page.get_by_role("heading", name=title).first).to_be_visible()


def test_a_list_without_episodes_names_the_command_that_says_what_the_run_does(view: Watched, shown: Shown) -> None:
    empty = re.compile(r"/trajectories\?")
    view.page.route(empty, lambda route: route.fulfill(json={"total": 0, "upto": 0, "rows": []}))
    view.open(f"#/{shown.run}/trajectories")
    expect(view.page.locator(".state code")).to_have_text("distrl status")


def test_a_picture_that_is_gone_says_why_and_the_rest_stays(view: Watched, shown: Shown) -> None:
    view.allowed = ("the server responded with a status of 404",)
    where = re.compile("/images/trajectories/0:7/")
    error = '{"error": "object screenshots/a.png: no object has this key", "fix": "restore it"}'
    view.page.route(where, lambda route: route.fulfill(status=404, content_type="application/json", body=error))
    page = view.open(f"#/{shown.run}/trajectories/0:7/0")
    expect(page.locator(".stage .gone")).to_contain_text("no object has this key")
    expect(page.get_by_role("heading", name="Step 1 of 4")).to_be_visible()


def test_a_server_that_is_gone_is_said_with_a_way_back(view: Watched, shown: Shown) -> None:
    view.allowed = ("net::ERR_FAILED",)
    view.page.route(re.compile("/devices$"), lambda route: route.abort())
    page = view.open(f"#/{shown.run}/devices")
    expect(page.get_by_text("The server does not answer.")).to_be_visible()
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("table", name="Devices")).to_be_visible()


def test_an_answer_that_comes_late_is_not_drawn_over_a_newer_one(view: Watched, shown: Shown) -> None:
    view.allowed = ("net::ERR_ABORTED",)
    page = view.open(f"#/{shown.run}/dead-letters")
    table = page.get_by_role("table", name="Dead letters")
    expect(table).to_be_visible()
    page.route(re.compile("offset=50"), lambda route: None)  # never answered
    with page.expect_request(re.compile("offset=50")):
        page.evaluate("location.hash += '?offset=50'")
    with page.expect_event("requestfailed", lambda each: "offset=50" in each.url, timeout=PATIENCE_MS):
        page.go_back()
    view.settled()
    expect(table.get_by_role("link", name="0:0", exact=True)).to_be_visible()


def test_an_index_that_is_being_made_is_asked_for_again(view: Watched, shown: Shown) -> None:
    view.allowed = ("the server responded with a status of 503",)
    error = '{"error": "the index of this run is being made", "fix": "ask again in a moment"}'
    places = {"devices": "Devices", "trajectories": "Trajectories"}
    for name, table in places.items():
        where = re.compile(rf"/{name}(\?|$)")
        view.page.route(where, lambda route: route.fulfill(status=503, content_type="application/json", body=error))
        page = view.open(f"#/{shown.run}/{name}")
        expect(page.get_by_role("heading", name="Not yet")).to_be_visible()
        page.unroute_all()
        expect(page.get_by_role("table", name=table, exact=True)).to_be_visible()
