"""The pages of reports, from a server and from an export: tables, curves, hostile text, and files that are none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from distrl.stack import ports
from distrl.view.reports import Reports
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from offline.ablation.test_report import LONG
from playwright.sync_api import Browser, expect

from view.browser.conftest import DESKTOP, PHONE, Shown, opened_at
from view.browser.test_texts import SEEN
from view.browser.watched import Watched
from view.exporting import contents, exported, served_files
from view.reporting import hostile_ablation, write_reports

ABLATION = "Ablation of run demo-0, updates 0 to 2"


@pytest.fixture(scope="module", params=["served", "exported"])
def pages(request: pytest.FixtureRequest, shown: Shown, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    """Where the pages with some reports are; in an export, no API is asked."""
    folder: Path = tmp_path_factory.mktemp("reports")
    folders = write_reports(folder)
    (folder / "ablations" / "hostile").mkdir()
    (folder / "ablations" / "hostile" / "report.json").write_text(hostile_ablation())
    with ExitStack() as opened:
        if request.param == "exported":
            exported(shown.config, folder / "shared", most=3, reports=folders)
            names = [name for name in contents(folder / "shared") if name.startswith("data/reports.d/")]
            assert len(names) == 3
            yield replace(shown, address=opened.enter_context(served_files(folder / "shared")))
        else:
            runs = opened.enter_context(Runs(lambda: [shown.run], lambda name: shown.config))
            server = ViewServer(runs, "127.0.0.1", ports.draw("a test"), None, Reports(folders))
            yield replace(shown, address=opened.enter_context(server).address)


@pytest.fixture
def view(browser: Browser, pages: Shown) -> Iterator[Watched]:
    yield from opened_at(browser, pages.address, DESKTOP)


def test_from_the_runs_to_an_ablation_and_its_curves(view: Watched) -> None:
    page = view.open()
    page.get_by_role("link", name="Reports of ablations and experiments").click()
    expect(page.get_by_role("row").filter(has_text="ablations/half")).to_contain_text("no report that can be shown")
    page.get_by_role("link", name=ABLATION).first.click()
    expect(page.get_by_role("heading", name=ABLATION)).to_be_visible()
    worth = page.get_by_role("table", name="What each arm's last policy is worth")
    arm = worth.get_by_role("row").filter(has_text=LONG)
    expect(arm).to_contain_text("better")
    expect(arm).to_contain_text(re.compile(r"0\.07813 \(0\.\d+ to 0\.\d+\)"))
    plot = page.get_by_role("group", name="entropy: a plot")
    expect(plot.locator(".u-over")).to_be_visible()
    page.get_by_label("Curve").focus()
    page.get_by_label("Curve").select_option("policy_loss")
    expect(page.get_by_label("Curve")).to_be_focused()
    plot = page.get_by_role("group", name="policy_loss: a plot")
    expect(plot.locator(".u-over")).to_be_visible()
    plot.focus()
    page.keyboard.press("End")
    expect(page.locator(".readout")).to_contain_text("update 2: baseline -0.0123")
    page.get_by_label("baseline").uncheck()
    expect(page).to_have_url(re.compile(r"\?curve=policy_loss&arms=1$"))
    page.reload()
    expect(page.get_by_label("baseline")).not_to_be_checked()
    expect(page.get_by_role("group", name="policy_loss: a plot").locator(".u-over")).to_be_visible()
    page.get_by_text("What it was computed under").click()
    expect(page.get_by_text("algorithm").first).to_be_visible()


def test_an_experiment_says_its_verdicts_and_its_command(view: Watched) -> None:
    page = view.open("#/~reports")
    page.get_by_role("link", name=re.compile("^Success over time")).click()
    expect(page.get_by_role("table", name="Arms against each other")).to_contain_text("undecided")
    expect(page.get_by_text(re.compile("^distrl experiment learning-curves"))).to_be_visible()


def test_a_hostile_report_is_shown_as_text(view: Watched) -> None:
    page = view.open("#/~reports")
    page.get_by_role("link", name=re.compile("script")).click()
    view.settled()
    expect(page.get_by_text(SEEN).first).to_be_visible()
    assert page.locator("main script, main img[src='x']").count() == 0
    hidden = page.evaluate("document.body.innerText.match(/[\\u0000-\\u0008\\u001b\\u202a-\\u202e\\u2066-\\u2069]/g)")
    assert hidden is None


def test_a_report_that_is_not_there_is_explained(view: Watched) -> None:
    view.allowed = ("the server responded with a status of 404",)
    page = view.open("#/~reports/0123456789abcdef")
    expect(page.get_by_role("heading", name="This is not there")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_pages_are_readable_and_no_wider_than_their_window(
    browser: Browser, pages: Shown, size: tuple[int, int], scheme: str
) -> None:
    for view in opened_at(browser, pages.address, size, scheme):
        found: dict[str, list[str]] = {}
        page = view.open("#/~reports")
        view.settled()
        expect(page.get_by_role("table")).to_be_visible()
        addresses = page.locator("main td a").evaluate_all("all => all.map(each => each.hash)")
        assert len(addresses) == 3
        for number, place in enumerate(["#/~reports", *addresses]):
            view.open(place)
            view.settled()
            view.shot(f"report-{number}-{size[0]}-{scheme}")
            found[place] = view.violations() + [f"{by} px too wide" for by in [view.overflow()] if by > 0]
        assert {name: each for name, each in found.items() if each} == {}
