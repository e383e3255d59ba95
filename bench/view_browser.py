"""How fluid the list of a long run is in a Chromium (`bench/view.py --browser`), beside a page without rows.

Every figure is measured in the page. A frame is the time between two calls of requestAnimationFrame while the page is
scrolled by the same distance in each; the page without rows, as high as the list, says what machine and browser can do.
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Mapping

from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SIZE = {"width": 1280, "height": 800}
FRAMES = 300
"""Of each way of scrolling."""
TIMES = 10
"""How often each list is asked for; the median counts."""
SCROLLED = {"as one reads": 40, "as one flies": 3_000}
"""Pixels in a frame."""
LISTS = {
    "by lag": "sort=lag",
    "by instruction": "sort=instruction&order=asc",
    "failures of a family": "outcome=failure&family=family-3",
    "text": "text=number%2077",
}
SCROLL = """async ([pixels, frames]) => {
  scrollTo(0, 0);
  const frame = () => new Promise(requestAnimationFrame);
  const took = [];
  let most = 0, last = await frame();
  for (let number = 0; number < frames; number += 1) {
    scrollBy(0, pixels);
    const now = await frame();
    took.push(now - last);
    last = now;
    most = Math.max(most, document.querySelectorAll(".rows .row").length);
  }
  return [took, most];
}"""


def timed(argument: str, before: str, act: str) -> str:
    """A function of the page: milliseconds from `act` until a list other than `before` has every row in sight."""
    return f"""async ({argument}) => {{
  const before = {before};
  const ready = () => {{
    const list = document.querySelector(".listing:not([aria-busy]) .rows");
    if (list === null || list === before) return false;
    return list.querySelector(".row-link") !== null && list.querySelector(".waiting") === null;
  }};
  const began = performance.now();
  {act}
  while (!ready()) await new Promise(requestAnimationFrame);
  return performance.now() - began;
}}"""


SHOW = timed(
    "address",
    'document.querySelector(".listing .rows")',
    "if (location.hash === address) return 0; location.hash = address;",
)
JUMP = timed(
    "share",
    "null",
    "scrollTo(0, share * document.documentElement.scrollHeight);"
    "for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);",
)
OPENED = f"async () => {{ const before = performance.now(); return before + await ({timed('', 'null', '')})(); }}"
"""Since the navigation began."""


def scrolled(page: Page, name: str) -> dict[str, float]:
    """Frames of each way of scrolling, in ms, and how many rows the document had at most."""
    found = {}
    for way, pixels in SCROLLED.items():
        took, most = page.evaluate(SCROLL, [pixels, FRAMES])
        found[f"{name}, {way}: a frame, mean, ms"] = statistics.fmean(took)
        found[f"{name}, {way}: 95 % of frames within, ms"] = sorted(took)[int(0.95 * len(took))]
        found[f"{name}, {way}: longest frame, ms"] = max(took)
        found[f"{name}, {way}: rows in the document at most"] = most
    return found


def heap(page: Page) -> float:
    """MB of the page's JavaScript objects, after a collection."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("HeapProfiler.collectGarbage")
    devtools.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
    return float(metrics["JSHeapUsedSize"]) / 1e6


def browse(address: str, run: str) -> Mapping[str, float]:
    """Opens the list of trajectories, scrolls, jumps, sorts and filters it."""
    executable = next(filter(None, map(shutil.which, (os.environ.get("CHROMIUM", ""), *NAMES))), None)
    if executable is None:
        raise SystemExit("no Chromium is on the PATH: `apt-get install chromium`, or set CHROMIUM to one")
    with sync_playwright() as driver:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
        browser = driver.chromium.launch(executable_path=executable, args=arguments)
        all_rows = f"#/{run}/trajectories?topic=trajectories"
        opened = []
        for _ in range(TIMES):
            page = browser.new_page(viewport=SIZE)
            page.goto(f"{address}{all_rows}")
            opened.append(page.evaluate(OPENED))
            last = page
        found = {"opened, up to the first rows, ms": statistics.median(opened), "heap, opened, MB": heap(last)}
        height = last.evaluate("document.documentElement.scrollHeight")
        found |= scrolled(last, "the list")
        jumps = [last.evaluate(JUMP, (number + 1) / TIMES) for number in range(TIMES)]
        found["jump to rows that are not there yet, ms"] = statistics.median(jumps)
        for name, query in LISTS.items():
            shown = []
            for _ in range(TIMES):
                last.evaluate(SHOW, all_rows)
                shown.append(last.evaluate(SHOW, f"{all_rows}&{query}"))
            found[f"list, {name}, ms"] = statistics.median(shown)
        last.evaluate(SHOW, all_rows)
        found["heap, after all that, MB"] = heap(last)
        bare = browser.new_page(viewport=SIZE)
        bare.set_content(f"<div style='height:{height}px'></div>")
        found |= scrolled(bare, "no rows")
        for way in SCROLLED:
            found[f"frames a second of those without rows, {way}"] = (
                found[f"no rows, {way}: a frame, mean, ms"] / found[f"the list, {way}: a frame, mean, ms"]
            )
        browser.close()
    return found
