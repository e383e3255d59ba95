"""A page whose every request, error and policy violation is noted: none may be left unseen by a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page, expect

SHOTS = Path(__file__).parents[3] / "out" / "browser"
"""Screenshots of the pages, kept as artefacts; git ignores the folder."""
AXE = Path(__file__).parent / "vendor" / "axe-core" / "axe.min.js"
SERIOUS = ("serious", "critical")


@dataclass
class Watched:
    """page: of Playwright. address: of the server, with a slash at its end."""

    page: Page
    address: str
    allowed: tuple[str, ...] = ()
    """Words of errors that a test brings about itself."""
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def open(self, route: str = "#/") -> Page:
        self.page.goto(self.address + route)
        return self.page

    def settled(self) -> None:
        """Until nothing on the page is loading."""
        expect(self.page.locator("h1").first).to_be_visible()
        expect(self.page.locator("[aria-busy]")).to_have_count(0)

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")

    def check(self) -> None:
        """Nothing was asked of another server, and nothing went wrong."""
        elsewhere = [each for each in self.requests if not each.startswith((self.address, "data:", "blob:"))]
        assert not elsewhere, elsewhere
        wrong = [each for each in self.errors if not any(word in each for word in self.allowed)]
        assert not wrong, wrong

    def violations(self) -> list[str]:
        """What axe-core finds on the page that is serious. It runs outside of the page's own world, so that the
        page's policy stays as it is.
        """
        session = self.page.context.new_cdp_session(self.page)
        frame = session.send("Page.getFrameTree")["frameTree"]["frame"]["id"]
        world = session.send("Page.createIsolatedWorld", {"frameId": frame, "worldName": "axe"})["executionContextId"]
        session.send("Runtime.evaluate", {"expression": AXE.read_text(), "contextId": world})
        wanted = "({passes, violations}) => JSON.parse(JSON.stringify({passes: passes.length, violations}))"
        answer: dict[str, Any] = session.send(
            "Runtime.evaluate",
            {
                "expression": f"axe.run(document).then({wanted})",
                "contextId": world,
                "awaitPromise": True,
                "returnByValue": True,
            },
        )
        assert "exceptionDetails" not in answer, answer
        found = answer["result"]["value"]
        assert found["passes"] > 10
        return [
            f"{each['id']}: {node['html'][:300]} {node.get('failureSummary', '')[:300]}"
            for each in found["violations"]
            if each["impact"] in SERIOUS
            for node in each["nodes"]
        ]

    def overflow(self) -> int:
        """By how many px the page is wider than its window."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        return found


def watched(context: BrowserContext, address: str) -> Watched:
    context.add_init_script(
        "document.addEventListener('securitypolicyviolation',"
        " each => console.error('policy: ' + each.violatedDirective + ' ' + each.blockedURI))"
    )
    found = Watched(context.new_page(), address)
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.on("pageerror", lambda error: found.errors.append(f"{error}"))
    found.page.on("console", lambda line: found.errors.append(line.text) if line.type == "error" else None)
    return found
