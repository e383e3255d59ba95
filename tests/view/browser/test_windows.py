"""Several windows of one browser, which opens six connections to a server at most, and windows that are hidden."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from view.browser.conftest import DESKTOP, PATIENCE_MS, Shown, opened
from view.browser.records import more
from view.browser.watched import Watched, watched

WINDOWS = 7
FOLLOWED = re.compile("/(events|counts)$")
HELD = "navigator.locks.query().then(({held}) => held.length)"
AWAY = "Object.defineProperty(document, 'hidden', {get: () => window.away === true})"


@pytest.fixture
def grows(new_run: Callable[[int], Shown]) -> Shown:
    """A run of three trajectories, which a test adds to."""
    return new_run(3)


@pytest.fixture
def first(browser: Browser, grows: Shown) -> Iterator[Watched]:
    yield from opened(browser, grows, DESKTOP)


def turn(page: Page, away: bool) -> None:
    """Hide the window, or show it again."""
    page.evaluate(
        "away => { window.away = away; document.dispatchEvent(new Event('visibilitychange', {bubbles: true})) }", away
    )


@pytest.mark.parametrize("locks", [True, False], ids=["", "without TLS"])
def test_every_window_of_a_browser_is_live(first: Watched, grows: Shown, locks: bool) -> None:
    context = first.page.context
    if not locks:
        context.add_init_script("Object.defineProperty(navigator, 'locks', {value: undefined})")
    windows = [first, *(watched(context, grows.address) for _ in range(WINDOWS - 1))]
    for window in windows:
        window.open(f"#/{grows.run}")
    for window in windows:
        window.settled()
        expect(window.page.locator(".live")).to_have_text("live")
    streams = [each for window in windows for each in window.requests if each.endswith("/events")]
    assert len(streams) == locks
    more(grows.config, 3, 4)
    for window in windows:
        expect(window.page.get_by_role("button", name="Show 4 new episodes")).to_have_count(1)
        window.check()


def test_a_hidden_window_holds_no_stream_and_asks_when_it_is_shown(first: Watched, grows: Shown) -> None:
    first.page.context.add_init_script(AWAY)
    page = first.open(f"#/{grows.run}")
    expect(page.locator(".live")).to_have_text("live")
    first.settled()
    assert page.evaluate(HELD) == 1
    with page.expect_event("requestfailed", lambda each: each.url.endswith("/events"), timeout=PATIENCE_MS):
        turn(page, away=True)
    page.wait_for_function(f"{HELD}.then((held) => held === 0)")
    before = len(first.requests)
    more(grows.config, 3, 2)
    turn(page, away=False)
    expect(page.get_by_role("button", name="Show 2 new episodes")).to_have_count(1)
    assert [re.sub(".*/", "", each) for each in first.requests[before:]] == ["events"]


def test_the_stream_passes_to_another_window(first: Watched, grows: Shown) -> None:
    other = watched(first.page.context, grows.address)
    for window in (first, other):
        expect(window.open(f"#/{grows.run}").locator(".live")).to_have_text("live")
    assert not any(each.endswith("/events") for each in other.requests)
    with other.page.expect_request(re.compile("/events$"), timeout=PATIENCE_MS):
        first.page.close()
    expect(other.page.locator(".live")).to_have_text("live")
    other.check()
    first.page = other.page


@pytest.mark.parametrize("status", [502, 503])
def test_a_window_is_live_again_once_a_server_or_its_proxy_answers_again(
    first: Watched, grows: Shown, status: int
) -> None:
    first.allowed = (f"the server responded with a status of {status}",)
    first.page.route(FOLLOWED, lambda route: route.fulfill(status=status, body="away"))
    live = first.open(f"#/{grows.run}").locator(".live")
    with first.page.expect_response(re.compile("/counts$"), timeout=PATIENCE_MS):
        pass
    expect(live).to_have_text("connecting again …")
    with first.page.expect_response(lambda answer: answer.url.endswith("/events") and answer.ok, timeout=PATIENCE_MS):
        first.page.unroute(FOLLOWED)
    expect(live).to_have_text("live")


def test_a_run_that_is_gone_is_asked_for_until_it_is_begun_again(first: Watched, grows: Shown) -> None:
    first.allowed = ("the server responded with a status of 404",)
    page = first.open(f"#/{grows.run}")
    expect(page.locator(".live")).to_have_text("live")
    first.page.route(FOLLOWED, lambda route: route.fulfill(status=404, body="gone"))
    turn(page, away=True)
    turn(page, away=False)
    expect(page.locator(".live")).to_have_text("connecting again …")
    first.page.unroute(FOLLOWED)
    none = dict.fromkeys(("trajectories", "evaluations", "demonstrations", "version", "updates", "dead_letters"), 0)
    first.page.route(re.compile("/events$"), lambda route: route.fulfill(status=404, body="gone"))
    first.page.route(re.compile("/counts$"), lambda route: route.fulfill(json=none))
    expect(page.get_by_role("button", name="Show the run as it was begun again")).to_have_count(1)


def test_a_window_that_is_refused_asks_no_more(first: Watched, grows: Shown) -> None:
    first.allowed = ("the server responded with a status of 401",)
    first.page.route(FOLLOWED, lambda route: route.fulfill(status=401, body="no token"))
    page = first.open(f"#/{grows.run}")
    expect(page.locator(".live")).to_have_text("not live")
    assert page.evaluate(HELD) == 0
    assert [re.sub(".*/", "", each) for each in first.requests if FOLLOWED.search(each)] == ["events", "counts"]


def test_what_came_between_a_list_and_its_first_event_is_offered(first: Watched, grows: Shown) -> None:
    """Demonstrations, too. A window that is hidden at first hears of nothing until it is shown."""
    first.page.context.add_init_script(f"window.away = true; {AWAY}")
    page = first.open(f"#/{grows.run}/trajectories")
    total = page.locator(".total")
    expect(total).to_have_text("21 episodes")
    more(grows.config, 3, 2)
    more(grows.config, 300, 1, "demonstrations")
    page.wait_for_function(
        "run => fetch(`api/runs/${run}/counts`).then((answer) => answer.json())"
        ".then((now) => now.trajectories === 5 && now.demonstrations === 3)",
        arg=grows.run,
    )
    turn(page, away=False)
    page.get_by_role("button", name="Show 3 new records").click()
    expect(total).to_have_text("24 episodes")
    expect(page.locator(".offer")).to_be_hidden()
