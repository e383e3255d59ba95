"""The list of trajectories: filters that are links, and rows that come and go with what is in sight."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Route, expect

from view.browser.conftest import DESKTOP, Shown, opened
from view.browser.records import ended_at, more
from view.browser.watched import Watched
from view.world import HOSTILE

MANY = 1_500
MOST_ROWS = 60
"""In the document at a time, of a window of 800 px."""
LOCAL = "ms => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString().slice(0, 19)"


def test_filters_are_in_the_address_and_back_undoes_them(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/trajectories")
    total = page.locator(".total")
    expect(total).to_have_text("42 episodes")
    page.locator("select[name=outcome]").select_option("failure")
    expect(total).to_have_text("20 episodes")
    page.locator("select[name=topic]").select_option("trajectories")
    expect(total).to_have_text("12 episodes")
    expect(page).to_have_url(re.compile(r"\?outcome=failure&topic=trajectories$"))

    page.reload()
    expect(total).to_have_text("12 episodes")
    expect(page.locator("select[name=outcome]")).to_have_value("failure")
    page.go_back()
    expect(total).to_have_text("20 episodes")
    expect(page.locator("select[name=topic]")).to_have_value("")
    page.go_back()
    expect(total).to_have_text("42 episodes")


CONTROLS = {
    "suite": (HOSTILE, 1),
    "family": ("toggle", 30),
    "split": ("validation", 16),
    "mode": ("wrong goal", 20),
    "version": (1, 8),
    "device": ("127.0.0.1:26001", 14),
    "worker": ("worker-1", 19),
    "from": (ended_at(20), 21),
    "to": (ended_at(4), 5),
    "from_offset": (16, 8),
    "to_offset": (2, 6),
    "sort": ("steps", "do very many things"),
    "order": ("asc", "set alarm 0 "),
}
"""What each is set to, and how many episodes there are then, or which one is the first."""


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_of_the_list_filters_or_sorts_it(view: Watched, shown: Shown, name: str) -> None:
    value, wanted = CONTROLS[name]
    page = view.open(f"#/{shown.run}/trajectories")
    expect(page.locator(".total")).to_have_text("42 episodes")
    control = page.locator(f".filters [name={name}]")
    if not control.is_visible():
        page.get_by_text("More filters").click()
    written = str(value)
    if name in ("from", "to"):
        written = page.evaluate(LOCAL, value)
    if control.evaluate("each => each.tagName") == "SELECT":
        control.select_option(written)
    else:
        control.fill(written)
    for _ in range(2):
        if isinstance(wanted, int):
            expect(page.locator(".total")).to_have_text("1 episode" if wanted == 1 else f"{wanted} episodes")
        else:
            expect(page.locator(".row-link").first).to_contain_text(wanted)
        expect(page).to_have_url(re.compile(rf"\?{name}="))
        expect(control).to_have_value(written)
        page.reload()


def test_every_control_of_the_list_is_operated(view: Watched, shown: Shown) -> None:
    """Of the others, the tests above and below do so."""
    page = view.open(f"#/{shown.run}/trajectories")
    expect(page.locator(".total")).to_have_text("42 episodes")
    names = page.locator(".filters [name]").evaluate_all("all => all.map(each => each.name)")
    assert set(names) == {*CONTROLS, "outcome", "topic", "text"}


def test_a_text_is_searched_for_while_the_field_keeps_the_focus(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/trajectories")
    field = page.get_by_label("Text")
    field.press_sequentially("alarm 13")
    expect(page.locator(".total")).to_have_text("1 episode")
    expect(field).to_be_focused()
    page.locator(".row-link").click()
    expect(page.get_by_role("heading", name="set alarm 13 to 100%")).to_be_visible()
    page.go_back()
    expect(page.locator(".total")).to_have_text("1 episode")
    page.get_by_label("Text").fill("nothing is called so")
    expect(page.get_by_role("heading", name="No episode matches")).to_be_visible()
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator(".total")).to_have_text("42 episodes")


def test_a_field_says_what_the_list_is_filtered_by_after_a_way_back_too(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/trajectories")
    field, total = page.get_by_label("Text"), page.locator(".total")
    page.locator("select[name=outcome]").select_option("failure")
    expect(page).to_have_url(re.compile("outcome=failure"))
    field.press_sequentially("alarm 13")
    expect(page).to_have_url(re.compile(r"text=alarm\+13"))  # all of it: a search may begin while it is typed
    page.go_back()
    expect(total).to_have_text("42 episodes")
    expect(field).to_have_value("")
    # what is typed and not searched for yet is not lost to another filter
    field.press_sequentially("alarm 13")
    page.get_by_label("Kind").select_option("trajectories")
    expect(page).to_have_url(re.compile("text=alarm"))
    expect(page).to_have_url(re.compile("topic=trajectories"))


def test_a_column_sorts_both_ways(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/trajectories?topic=trajectories")
    expect(page.get_by_role("columnheader", name="Ended")).to_have_attribute("aria-sort", "descending")
    expect(page.locator(".row-link").first).to_contain_text("set alarm 23")
    page.get_by_role("button", name="Ended").click()
    expect(page.get_by_role("columnheader", name="Ended")).to_have_attribute("aria-sort", "ascending")
    expect(page.locator(".row-link").first).to_contain_text("set alarm 0")


def test_of_many_rows_those_in_sight_are_in_the_document_and_new_ones_are_offered(
    browser: Browser, new_run: Callable[[int], Shown]
) -> None:
    many = new_run(MANY)
    for view in opened(browser, many, DESKTOP):
        page = view.open(f"#/{many.run}/trajectories?topic=trajectories")
        expect(page.locator(".total")).to_have_text("1,500 episodes")
        assert page.locator(".rows .row").count() < MOST_ROWS
        page.locator(".row-link").first.focus()
        page.keyboard.press("End")
        expect(page.get_by_role("link", name="set alarm 0 to 100%")).to_be_focused()
        assert page.locator(".rows .row").count() < MOST_ROWS
        page.evaluate("window.scrollTo(0, 750 * 44)")
        expect(page.get_by_role("link", name=re.compile("set alarm 74[0-9] "))).not_to_have_count(0)
        before = page.locator(".row-link").nth(10).inner_text()
        place = page.evaluate("scrollY")

        more(many.config, MANY, 7)
        offer = page.get_by_role("button", name="Show 7 new records")
        expect(offer).to_have_count(1)
        assert page.evaluate("scrollY") == place
        assert page.locator(".row-link").nth(10).inner_text() == before
        page.evaluate("window.scrollTo(0, 0)")
        expect(page.locator(".row-link").first).to_contain_text("set alarm 1499 ")
        offer.click()
        expect(page.locator(".total")).to_have_text("1,507 episodes")
        expect(page.locator(".row-link").first).to_contain_text("set alarm 1506 ")


NOT_YET = '{"error": "the index of this run is being made", "fix": "ask again in a moment"}'


def not_yet(route: Route) -> None:
    route.fulfill(status=503, content_type="application/json", body=NOT_YET)


def test_rows_further_down_that_the_server_has_not_yet_are_asked_for_again(view: Watched, shown: Shown) -> None:
    def longer(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json=answer.json() | {"total": 500})

    view.allowed = ("the server responded with a status of 503",)
    view.page.route(re.compile("offset=0&"), longer)
    view.page.route(re.compile("offset=[24]00&"), not_yet)
    page = view.open(f"#/{shown.run}/trajectories")
    page.locator(".row-link").first.focus()
    page.keyboard.press("End")
    heading = page.get_by_role("heading", name="Not yet")
    expect(heading).to_be_visible()
    page.unroute(re.compile("offset=[24]00&"))
    expect(heading).to_have_count(0)


def test_a_list_that_was_asked_for_by_hand_is_not_drawn_over(view: Watched, shown: Shown) -> None:
    """By the question that was to come by itself."""
    view.allowed = ("the server responded with a status of 503",)
    view.page.clock.install(time=0)
    view.page.clock.pause_at(1_000)
    view.page.route(re.compile("offset=0&"), not_yet)
    page = view.open(f"#/{shown.run}/trajectories?text=nothing+is+called+so")
    expect(page.get_by_role("heading", name="Not yet")).to_be_visible()
    page.unroute(re.compile("offset=0&"))
    page.get_by_role("button", name="Try again").click()
    none = page.get_by_role("heading", name="No episode matches")
    expect(none).to_be_visible()
    page.clock.run_for(10_000)
    expect(none).to_be_visible()
