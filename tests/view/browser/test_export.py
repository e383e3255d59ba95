"""An export in a real browser, from Python's own server of files: all pages work, and nothing asks a server's API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, expect

from view.browser.conftest import DESKTOP, PHONE, Shown, opened_at
from view.browser.records import ended_at
from view.browser.test_journey import assert_drawn_at, whole
from view.browser.test_looks import PLACES
from view.browser.test_texts import SEEN, opens_a_dead_letter
from view.browser.test_version import leads_to_what_it_learned_from
from view.browser.watched import Watched
from view.exporting import exported, served_files
from view.world import DRAWN, HOSTILE, JUDGED, UPDATES

BOUNDED = 6


@pytest.fixture(scope="module")
def files(new_run: Callable[[int], Shown], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """A run, and where its export is served; the run's own server goes on beside it."""
    shown = new_run(24)
    place = tmp_path_factory.mktemp("shared") / "run"
    exported(shown.config, place)
    with served_files(place) as address:
        yield Shown(shown.world, address)


@pytest.fixture
def view(browser: Browser, files: Shown) -> Iterator[Watched]:
    for each in opened_at(browser, files.address, DESKTOP):
        yield each
        assert not [asked for asked in each.requests if "/api/" in asked]


def test_from_the_runs_to_the_tap_and_back(view: Watched, files: Shown) -> None:
    page = view.open()
    expect(page.get_by_text(re.compile("^An export, made 2025-10-2"))).to_be_visible()
    page.get_by_role("link", name=files.run, exact=True).click()
    expect(page.get_by_role("group", name="Success of evaluated versions").locator(".u-over")).to_be_visible()
    expect(page.locator(".live")).to_have_text("as it was exported")
    expect(page.get_by_text("Log read up to", exact=True)).to_be_visible()
    page.get_by_role("link", name="Trajectories", exact=True).click()
    page.locator("select[name=topic]").select_option("trajectories")
    expect(page.locator(".total")).to_have_text("24 episodes")
    page.get_by_role("link", name="set alarm 17 to 100%").click()
    assert_drawn_at(page.locator(".stage .ink .ring"), whole(page), 0.25, 0.5)
    view.shot("export-tap")
    page.keyboard.press("]")
    expect(page.get_by_role("heading", name="set alarm 18 to 100%")).to_be_visible()
    page.go_back()
    page.go_back()
    expect(page.get_by_role("link", name="set alarm 17 to 100%")).to_be_focused()


def test_filters_sort_and_permalinks_are_in_the_address(view: Watched, files: Shown) -> None:
    page = view.open(f"#/{files.run}/trajectories?outcome=failure&topic=trajectories&sort=finished_at&order=asc")
    expect(page.locator(".total")).to_have_text("12 episodes")
    expect(page.locator(".row-link").first).to_contain_text("set alarm 1 ")
    page.get_by_role("button", name="Ended").click()
    expect(page.locator(".row-link").first).to_contain_text("set alarm 22 ")
    page.get_by_label("Text").fill("ALARM 13")
    expect(page.locator(".total")).to_have_text("1 episode")
    page.reload()
    expect(page.locator(".total")).to_have_text("1 episode")
    page = view.open(f"#/{files.run}/trajectories/0:3/1")
    expect(page.get_by_role("heading", name="Step 2 of 4")).to_be_visible()
    assert_drawn_at(page.locator(".stage .ink circle.dot"), whole(page), 0.5, 0.9)


def test_a_step_says_when_it_was_drawn(view: Watched, files: Shown) -> None:
    page = view.open(f"#/{files.run}/trajectories/0:{DRAWN}/0")
    details = page.locator(".details")
    expect(details).to_contain_text(f"{2 * UPDATES - 3} times in 2 updates, last in {UPDATES - 1}")
    row = details.locator("dl.facts > div").filter(has=page.get_by_text("Advantage", exact=True)).first
    expect(row.locator("dd")).to_have_text("-0.25")
    details.get_by_text("Each of them").click()
    expect(page.get_by_role("table", name="Updates that drew this step").locator("tbody tr")).to_have_count(2)


def test_what_judges_said_is_in_it(view: Watched, files: Shown) -> None:
    page = view.open(f"#/{files.run}/trajectories/0:{DRAWN}/0")
    expect(page.locator(".judgements li")).to_have_count(1 + len(JUDGED))


QUERIES: tuple[dict[str, object], ...] = (
    {},
    {"topic": "evaluations", "version": 2},
    {"version": 1},
    {"version": 0, "outcome": "failure"},
    {"text": "ALARM 1"},
    {"text": "<Script>"},
    {"text": "100%"},
    {"text": "_"},
    {"family": "alarms", "suite": "quick", "split": "validation"},
    {"device": "127.0.0.1:26001", "worker": "worker-1"},
    {"from": ended_at(4), "to": ended_at(9)},
    {"sort": "lag", "order": "asc"},
    {"sort": "lag", "order": "desc"},
    {"sort": "version_last", "order": "asc"},
    {"sort": "instruction", "order": "asc"},
    {"sort": "outcome", "order": "desc"},
    {"sort": "steps", "order": "desc"},
    {"mode": "wrong goal"},
    {"mode": "no steps"},
    {"topic": "trajectories", "from_offset": 8, "to_offset": 16},
    {"device": HOSTILE, "worker": HOSTILE, "suite": HOSTILE, "family": HOSTILE},
)


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: urlencode(query) or "all")
def test_the_browser_selects_what_the_server_does(
    view: Watched, browser: Browser, files: Shown, api: str, query: dict[str, object]
) -> None:
    """Rows that are equal in what is sorted by may come in another order: the server's is that of its index."""
    page = view.open(f"#/{files.run}")
    ask = "async ([run, query]) => (await import('./lib/api.js')).api.trajectories(run, {...query, limit: 500})"
    found = page.evaluate(ask, [files.run, query])
    with browser.new_context() as other:
        wanted = other.request.get(
            f"{api}api/runs/{files.run}/trajectories?{urlencode({**query, 'limit': 500})}"
        ).json()
    by = str(query.get("sort", "finished_at"))
    assert found["total"] == wanted["total"]
    assert [row[by] for row in found["rows"]] == [row[by] for row in wanted["rows"]]
    assert sorted(map(str, found["rows"])) == sorted(map(str, wanted["rows"]))


@pytest.fixture(scope="module")
def api(files: Shown) -> Iterator[str]:
    """The address of a server of the same run."""
    from distrl.stack import ports
    from distrl.view.runs import Runs
    from distrl.view.server import ViewServer

    with (
        Runs(lambda: [files.run], lambda name: files.config) as runs,
        ViewServer(runs, "127.0.0.1", ports.draw("a test"), None) as server,
    ):
        assert runs.get(files.run).follower.caught_up.wait(60)
        yield server.address


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_every_page_is_readable_and_no_wider_than_its_window(
    browser: Browser, files: Shown, size: tuple[int, int], scheme: str
) -> None:
    for view in opened_at(browser, files.address, size, scheme):
        found: dict[str, list[str]] = {}
        for name, place in PLACES.items():
            page = view.open(place.replace("RUN", files.run))
            view.settled()
            expect(page.locator(".export-note summary")).to_be_visible()
            if name in ("runs", "run"):
                page.locator(".export-note summary").click()
                view.shot(f"export-{name}-{size[0]}-{scheme}")
            found[name] = view.violations() + [f"{by} px too wide" for by in [view.overflow()] if by > 0]
        assert {name: each for name, each in found.items() if each} == {}


def test_a_task_and_hostile_text_are_shown(view: Watched, files: Shown) -> None:
    page = view.open(f"#/{files.run}/evaluations/0:3")
    page.get_by_role("link", name="All attempts at this task").click()
    expect(page.get_by_role("heading", name="2 attempts")).to_be_visible()
    page = view.open(f"#/{files.run}/trajectories/0:5/2")
    expect(page.get_by_text(SEEN).first).to_be_visible()
    page.get_by_role("link", name="All attempts at this task").click()
    expect(page.get_by_role("heading", name="1 attempt")).to_be_visible()


def test_a_version_leads_to_what_it_learned_from(view: Watched, files: Shown) -> None:
    leads_to_what_it_learned_from(view, files)


def test_a_dead_letter_has_a_permalink(view: Watched, files: Shown) -> None:
    opens_a_dead_letter(view, files)


def test_a_zoomed_time_shows_what_is_of_it(view: Watched, files: Shown) -> None:
    page = view.open(f"#/{files.run}?from={ended_at(8)}&to={ended_at(20)}")
    expect(page.get_by_role("group", name="Success while collecting").locator(".u-over")).to_be_visible()
    ask = "async ([run, query]) => (await import('./lib/api.js')).api.series(run, query)"
    found = page.evaluate(ask, [files.run, {"from": ended_at(8), "to": ended_at(20)}])
    assert found["versions"]["version"] == [2]
    assert len(found["updates"]["metrics"]["policy_loss"]) == len(found["updates"]["at"]) < 6


def test_a_version_leads_to_its_failures_and_a_class_of_them_to_its_episodes(view: Watched, files: Shown) -> None:
    page = view.open(f"#/{files.run}/versions/1")
    page.get_by_role("link", name="How they failed").click()
    expect(page.get_by_text("4 failed episodes, by what went wrong.")).to_be_visible()
    page.get_by_role("link", name=re.compile("All of its episodes ?: wrong goal")).click()
    expect(page.locator(".total")).to_have_text("4 episodes")


@pytest.mark.parametrize(
    ("place", "title"),
    [
        ("#/no-such-run", "This is not there"),
        ("#/RUN/versions/99", "This is not there"),
        ("#/RUN/trajectories/0:9999", "This is not there"),
        ("#/RUN/trajectories.dlq/0:99", "This is not there"),
        ("#/RUN/tasks/none", "This is not there"),
        ("#/RUN/trajectories?version=x", "This could not be loaded"),
        ("#/RUN/trajectories?outcom=failure", "This could not be loaded"),
        ("#/RUN/failures?version=99", "This is not there"),
        ("#/RUN/trajectories?text=nothing", "No episode matches"),
    ],
)
def test_what_is_not_there_is_explained(view: Watched, files: Shown, place: str, title: str) -> None:
    view.allowed = ("the server responded with a status of 404",)
    page = view.open(place.replace("RUN", files.run))
    expect(page.get_by_role("heading", name=title).first).to_be_visible()


def test_a_bounded_export_says_what_it_lacks(browser: Browser, files: Shown, tmp_path: Path) -> None:
    exported(files.config, tmp_path / "some", most=BOUNDED)
    with served_files(tmp_path / "some") as address:
        for view in opened_at(browser, address, DESKTOP):
            page = view.open(f"#/{files.run}")
            expect(page.get_by_text(f"this export has the {BOUNDED} episodes that ended last, of 42")).to_be_visible()
            page.get_by_role("link", name="Trajectories", exact=True).click()
            expect(page.locator(".total")).to_have_text(f"{BOUNDED} episodes")
