"""All runs side by side: two that are there, one without a record, and one that cannot be shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from distrl.broker import topic_admin
from distrl.config import Config, with_run
from distrl.errors import ConfigError
from distrl.stack import ports
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from playwright.sync_api import Browser, Route, expect

from view.browser.conftest import DESKTOP, FOLLOWED_S, Shown, opened_at
from view.browser.test_texts import SEEN
from view.browser.watched import Watched
from view.world import HOSTILE

BROKEN = "a-broken-run"
MINUTES = 10
NOTED = """const original = fetch;
window.asked = [];
window.fetch = (...given) => {
  window.asked.push(Date.now());
  return (window.answered = original(...given));
};"""


@pytest.fixture(scope="module")
def served(shown: Shown, new_run: Callable[[int], Shown]) -> Iterator[tuple[str, dict[str, Config]]]:
    """Where the runs are, and their settings: the first is the one that most tests look at."""
    empty = with_run(shown.config, f"{shown.run}-empty")
    topic_admin.ensure(empty)
    configs = {each.run: each for each in (shown.config, new_run(3).config, empty)}

    def of_run(name: str) -> Config:
        if name == BROKEN:
            raise ConfigError("settings", HOSTILE, "repair them")
        return configs[name]

    with (
        Runs(lambda: [*configs, BROKEN], of_run) as runs,
        ViewServer(runs, "127.0.0.1", ports.draw("a test"), None) as server,
    ):
        for name in configs:
            assert runs.get(name).follower.caught_up.wait(FOLLOWED_S)
        yield server.address, configs


@pytest.fixture
def view(browser: Browser, served: tuple[str, dict[str, Config]]) -> Iterator[Watched]:
    yield from opened_at(browser, served[0], DESKTOP)


def test_runs_stand_side_by_side_and_one_that_cannot_be_shown_says_why(
    view: Watched, served: tuple[str, dict[str, Config]]
) -> None:
    page = view.open()
    rows = page.get_by_role("table", name="Runs of this broker").locator("tbody tr")
    first, second, empty = served[1]
    expect(rows).to_have_count(3)
    for run, trajectories in ((first, "24"), (second, "3")):
        row = rows.filter(has=page.get_by_role("link", name=run, exact=True))
        cells = row.locator("td")
        expect(cells.nth(1)).to_contain_text("75 %")
        expect(cells.nth(2)).to_have_text("aride")
        expect(cells.nth(4)).to_have_text("2")
        expect(cells.nth(6)).to_have_text(trajectories)
        expect(cells.nth(7)).to_have_text("16")
        expect(cells.nth(8).get_by_role("link")).to_have_text("1")
    expect(rows.filter(has_text=empty).locator("td").nth(10)).to_have_text("–")
    problem = page.locator(".note", has_text=BROKEN)
    expect(problem).to_contain_text(SEEN)
    expect(problem).to_contain_text("repair them")
    view.shot("runs")
    page.get_by_role("link", name=second, exact=True).click()
    expect(page.get_by_role("heading", name=second, exact=True)).to_be_visible()


def asked_in_a_while(view: Watched) -> list[int]:
    """When the page asks for the runs in MINUTES of its clock, ms."""
    view.page.clock.install()
    view.page.add_init_script(NOTED)
    view.open()
    view.settled()
    for _ in range(3 * MINUTES):
        view.page.clock.run_for(20_000)
        view.page.evaluate("window.answered.then(() => null)")
        view.settled()
    found: list[int] = view.page.evaluate("window.asked")
    return found


def test_a_run_without_a_record_is_not_asked_for_again(view: Watched) -> None:
    assert len(asked_in_a_while(view)) == 1


def test_runs_that_are_being_read_are_asked_for_ever_more_seldom(view: Watched) -> None:
    def reading(route: Route) -> None:
        found = route.fetch().json()
        route.fulfill(json=found | {"runs": [each | {"reading": True} for each in found["runs"]]})

    view.page.route(re.compile(r"/api/runs(\?|$)"), reading)
    pauses = [after - before for before, after in pairwise(asked_in_a_while(view))]
    assert pauses[0] < 30_000
    assert pauses[-1] >= 60_000
