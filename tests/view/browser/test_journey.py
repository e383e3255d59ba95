"""From a run's trend to the screenshot of a step with the tap on it, as somebody who trains agents looks."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from view.browser.conftest import Shown
from view.browser.watched import Watched
from view.world import DRAWN, JUDGED, UPDATES

OFF_PX = 1.5
"""How far from its place a touch may be drawn: less than a border."""


def centre(element: Locator) -> tuple[float, float]:
    box = element.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def assert_drawn_at(mark: Locator, image: Locator, x: float, y: float) -> None:
    """x, y: shares of the screenshot's width and height."""
    box = image.bounding_box()
    assert box is not None
    at = centre(mark)
    assert abs(at[0] - (box["x"] + x * box["width"])) < OFF_PX
    assert abs(at[1] - (box["y"] + y * box["height"])) < OFF_PX


def whole(page: Page) -> Locator:
    """The chosen step's screenshot, once it is loaded."""
    image = page.locator(".stage img")
    expect(image).to_have_js_property("complete", True)
    expect(image).to_have_js_property("naturalWidth", 54)
    return image


def test_from_the_trend_to_the_tap_on_a_screenshot_and_back(view: Watched, shown: Shown) -> None:
    page = view.open()
    page.get_by_role("link", name=shown.run, exact=True).click()
    plot = page.get_by_role("group", name="Success of evaluated versions")
    expect(plot.locator(".u-over")).to_be_visible()
    view.settled()
    expect(page.get_by_role("group", name="Reload of a version by the workers").locator(".u-over")).to_have_count(1)
    view.shot("run")

    plot.focus()
    page.keyboard.press("End")
    readout = page.locator(".plot-figure").first.locator(".readout")
    expect(readout).to_contain_text("version 2: 75 %")
    expect(page.get_by_role("status").and_(page.locator("#announce"))).to_have_text(readout.inner_text())
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Version 2", exact=True)).to_be_visible()
    view.settled()
    view.shot("version")

    page.get_by_role("link", name="Episodes that it played").click()
    expect(page).to_have_url(re.compile(r"/trajectories\?version=2$"))
    page.locator("select[name=topic]").select_option("trajectories")
    expect(page.locator(".total")).to_have_text("8 episodes")
    page.get_by_role("link", name="set alarm 17 to 100%").click()
    expect(page.get_by_role("heading", name="set alarm 17 to 100%")).to_be_visible()
    assert_drawn_at(page.locator(".stage .ink .ring"), whole(page), 0.25, 0.5)
    view.shot("tap")
    assert_drawn_at(page.locator("#frame-0 .ink .ring"), page.locator("#frame-0 img"), 0.25, 0.5)

    page.go_back()
    expect(page.get_by_role("link", name="set alarm 17 to 100%")).to_be_focused()
    page.go_back()
    expect(page.locator(".total")).to_have_text("16 episodes")
    page.go_back()
    expect(page.get_by_role("heading", name="Version 2", exact=True)).to_be_visible()
    page.go_back()
    expect(plot).to_be_visible()


def test_a_point_of_the_plot_opens_its_version_by_a_click(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}")
    over = page.get_by_role("group", name="Success of evaluated versions").locator(".u-over")
    expect(over).to_be_visible()
    view.settled()
    box = over.bounding_box()
    assert box is not None
    over.click(position={"x": box["width"] * 0.7, "y": box["height"] / 2})
    expect(page.get_by_role("heading", name="Version 2", exact=True)).to_be_visible()


def test_a_marked_range_leads_to_its_trajectories(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}")
    over = page.get_by_role("group", name="Success while collecting").locator(".u-over")
    expect(over).to_be_visible()
    view.settled()
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] * 0.5, middle)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, middle, steps=5)
    page.mouse.up()
    page.get_by_role("link", name="Show its trajectories").click()
    expect(page).to_have_url(re.compile(r"/trajectories\?from=\d+&to=\d+$"))
    total = page.locator(".total")
    expect(total).to_have_text(re.compile(r"^(8|9|10|11) episodes$"))

    page.go_back()
    page.get_by_role("group", name="Success while collecting").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+ArrowRight")
    page.get_by_role("button", name="Zoom in").click()
    expect(page).to_have_url(re.compile(r"\?from=\d+&to=\d+$"))
    page.get_by_role("button", name="Whole run").click()
    expect(page.get_by_role("button", name="Whole run")).to_have_count(0)


def test_a_range_that_is_marked_to_the_last_point_has_the_episodes_of_it(view: Watched, shown: Shown) -> None:
    """A point stands for the episodes from its place up to the next one's."""
    page = view.open(f"#/{shown.run}/trajectories?topic=trajectories")
    total = page.locator(".total")
    expect(total).to_have_text(re.compile(r"^\d+ episodes$"))
    every = total.inner_text()
    page = view.open(f"#/{shown.run}")
    page.get_by_role("group", name="Episodes:").focus()
    page.keyboard.press("Home")
    page.keyboard.press("Shift+End")
    page.get_by_role("link", name="Show its trajectories").click()
    expect(page).to_have_url(re.compile(r"/trajectories\?from=\d+&to=\d+$"))
    page.get_by_label("Kind").select_option("trajectories")
    expect(total).to_have_text(every)


def test_with_the_keyboard_alone_from_the_list_through_an_episode(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/trajectories?topic=trajectories")
    first = page.locator(".row-link").first
    expect(first).to_be_visible()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('row-link')"):
            break
    expect(first).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("link", name="set alarm 0 to 100%")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="set alarm 1 to 100%")).to_be_visible()

    expect(page.get_by_role("heading", name="Step 1 of 4")).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("heading", name="Step 2 of 4")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/trajectories/0:1/1$"))
    assert_drawn_at(page.locator(".stage .ink circle.dot"), whole(page), 0.5, 0.9)
    page.keyboard.press("End")
    expect(page.get_by_role("heading", name="The end")).to_be_visible()
    expect(page).to_have_url(re.compile(r"/trajectories/0:1/final$"))
    page.keyboard.press("]")
    expect(page.get_by_role("heading", name="set alarm 2 to 100%")).to_be_visible()
    page.keyboard.press("[")
    expect(page.get_by_role("heading", name="set alarm 1 to 100%")).to_be_visible()
    page.keyboard.press("n")
    expect(page.get_by_role("heading", name="set alarm 2 to 100%")).to_be_visible()
    page.keyboard.press("p")
    expect(page.get_by_role("heading", name="set alarm 1 to 100%")).to_be_visible()
    expect(page.get_by_text("p n, or [ ], previous and next episode")).to_be_visible()
    page.keyboard.press("Escape")  # past the episodes between
    expect(page).to_have_url(re.compile(r"/trajectories\?topic=trajectories$"))


def test_a_permalink_opens_the_very_step(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/trajectories/0:3/1")
    expect(page.get_by_role("heading", name="Step 2 of 4")).to_be_visible()
    assert_drawn_at(page.locator(".stage .ink circle.dot"), whole(page), 0.5, 0.9)
    expect(page.locator(".permalink")).to_have_attribute("href", f"#/{shown.run}/trajectories/0:3/1")
    page.get_by_role("button", name="Step →").click()
    expect(page.locator(".permalink")).to_have_attribute("href", f"#/{shown.run}/trajectories/0:3/2")
    page.reload()
    expect(page.get_by_role("heading", name="Step 3 of 4")).to_be_visible()


def test_a_task_shows_all_its_attempts(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/evaluations/0:3")
    page.get_by_role("link", name="All attempts at this task").click()
    expect(page.get_by_role("heading", name="2 attempts")).to_be_visible()
    expect(page.locator(".row-link")).to_have_count(2)


def test_verdicts_stand_side_by_side_and_say_whether_they_agree_with_the_ground_truth(
    view: Watched, shown: Shown
) -> None:
    page = view.open(f"#/{shown.run}/trajectories/0:{DRAWN}/0")
    judges = page.locator(".judgements li")
    expect(judges).to_have_count(1 + len(JUDGED))
    expect(judges.first).to_contain_text("ground-truth")
    truth = shown.world.trajectories[DRAWN].outcome
    for (source, outcome, _), row in zip(JUDGED, judges.all()[1:], strict=True):
        expect(row).to_contain_text(source)
        expect(row).to_contain_text(f"{'agrees with' if outcome is truth else 'differs from'} the ground truth")
    expect(page.get_by_text("1 verdict in the store cannot be read.")).to_be_visible()
    expect(judges.last).to_contain_text("<script>alert(1)</script>")
    view.shot("verdicts")
    page = view.open(f"#/{shown.run}/trajectories/0:{DRAWN - 1}")
    expect(page.get_by_text("has not asked a judge about it")).to_be_visible()


def test_a_step_says_when_it_was_drawn_and_what_the_learner_held_of_it(view: Watched, shown: Shown) -> None:
    page = view.open(f"#/{shown.run}/trajectories/0:{DRAWN}/0")
    details = page.locator(".details")
    expect(details).to_contain_text(f"{2 * UPDATES - 3} times in 2 updates, last in {UPDATES - 1}")
    for name, value in (("V of the screen", "0.5"), ("Advantage", "-0.25"), ("Priority", f"{(UPDATES - 1) / 2:g}")):
        row = details.locator("dl.facts > div").filter(has=page.get_by_text(name, exact=True)).first
        expect(row.locator("dd")).to_have_text(value)
    details.get_by_text("Each of them").click()
    table = page.get_by_role("table", name="Updates that drew this step")
    expect(table.locator("tbody tr")).to_have_count(2)
    expect(table.locator("tbody tr").first).to_contain_text(str(UPDATES - 1))
    view.shot("drawn")

    page.get_by_role("button", name="Step →").click()
    expect(details).to_contain_text("not drawn yet; other steps of the episode in 2 updates")
    page.get_by_role("button", name="Step →").click()
    expect(details).to_contain_text("this algorithm has none")
    view.open(f"#/{shown.run}/trajectories/0:2/0")
    expect(page.locator(".details")).to_contain_text("not drawn yet")
