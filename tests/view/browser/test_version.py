"""The page of a version: what it is, what it learned from, and where it differs from its parent."""

from __future__ import annotations

import re

from distrl.runs.settings import learning_fingerprint
from factories import VERSION
from playwright.sync_api import Locator, expect

from view.browser.conftest import Shown
from view.browser.watched import Watched
from view.world import GAMMAS

LEARNED = "What it learned from since its parent"
DIFFERENCE = "Difference to its parent"


def value(view: Watched, section: str, name: str) -> Locator:
    """What a version's page says under a heading for a name."""
    card = view.page.locator("section", has=view.page.get_by_role("heading", name=section, exact=True))
    return card.locator(".facts > div", has=view.page.locator("dt").get_by_text(name, exact=True)).last.locator("dd")


def leads_to_what_it_learned_from(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/versions/0")
    value(view, LEARNED, "Demonstrations").get_by_role("link", name="1").click()
    expect(page).to_have_url(re.compile(r"\?topic=demonstrations&from_offset=0&to_offset=1$"))
    expect(page.locator(".total")).to_have_text("1 episode")
    expect(page.locator(".row-link .tag")).to_have_text("demonstration")
    view.open(f"#/{shown.run}/versions/1")
    expect(value(view, LEARNED, "Demonstrations")).to_have_text("0")
    value(view, LEARNED, "Trajectories").get_by_role("link", name="8").click()
    expect(page.locator(".total")).to_have_text("8 episodes")
    expect(page.locator(".row-link")).to_have_text([re.compile(f"set alarm {n} ") for n in range(15, 7, -1)])
    expect(page.get_by_label("From offset")).to_have_value("8")


def test_a_version_leads_to_the_very_records_that_it_learned_from(view: Watched, shown: Shown) -> None:
    leads_to_what_it_learned_from(view, shown)


def test_a_version_says_which_model_and_settings_it_is_of(view: Watched, shown: Shown) -> None:
    view.open(f"#/{shown.run}/versions/1")
    origin = "Where it comes from"
    expect(value(view, origin, "sha256 of the base model")).to_have_text(VERSION.base_model_sha256)
    expect(value(view, origin, "Fingerprint of its settings")).to_have_text(learning_fingerprint(shown.config))


def test_a_version_shows_its_difference_to_its_parent(view: Watched, shown: Shown) -> None:
    view.open(f"#/{shown.run}/versions/2")
    expect(value(view, DIFFERENCE, "Success")).to_contain_text("75 %")
    expect(value(view, DIFFERENCE, "Success of the parent")).to_have_text("– version 1")
    expect(value(view, DIFFERENCE, "Updates")).to_have_text("2")
    expect(value(view, DIFFERENCE, "algorithm.gamma")).to_have_text(f"{GAMMAS[0]} → {GAMMAS[1]}")
    card = view.page.locator("section", has=view.page.get_by_role("heading", name=DIFFERENCE))
    expect(card.locator(".facts .facts > div")).to_have_count(1)
    view.open(f"#/{shown.run}/versions/1")
    expect(value(view, DIFFERENCE, "Settings")).to_have_text("the same")
    view.open(f"#/{shown.run}/versions/0")
    expect(view.page.get_by_text("none: it is the first")).to_be_visible()
    expect(view.page.get_by_role("heading", name=DIFFERENCE)).to_have_count(0)


def test_a_version_leads_to_its_failures_and_a_class_of_them_to_its_episodes(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/versions/1")
    page.get_by_role("link", name="How they failed").click()
    expect(page.get_by_text("Of version 1.")).to_be_visible()
    expect(page.get_by_text("4 failed episodes, by what went wrong.")).to_be_visible()
    page.get_by_role("link", name=re.compile("All of its episodes ?: wrong goal")).click()
    expect(page.locator(".total")).to_have_text("4 episodes")
    expect(page.get_by_label("How it failed")).to_have_value("wrong goal")
    expect(page.locator(".rows .badge.failure")).to_have_count(4)
