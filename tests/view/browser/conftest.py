"""A run on a real broker, the real server of its pages, and a real Chromium."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from distrl.config import Config, load
from distrl.stack import ports
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from integration.conftest import broker, servers
from playwright.sync_api import Browser, expect

from view.browser import chromium
from view.browser.records import long_episode
from view.browser.watched import Watched, watched
from view.world import World, publish

__all__ = ["broker", "servers"]

DESKTOP, PHONE = (1280, 800), (390, 844)
PATIENCE_MS = 30_000
"""A test that passes waits for none of it; a busy machine needs more than the five seconds of the library."""
FOLLOWED_S = 60.0
expect.set_options(timeout=PATIENCE_MS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.browser)


def pytest_collection_finish(session: pytest.Session) -> None:
    asked = any(item.get_closest_marker("browser") for item in session.items)
    if asked and not session.config.option.collectonly and chromium.found() is None:
        pytest.exit(f"the browser tests cannot run: {chromium.MISSING}", returncode=1)


@dataclass(frozen=True)
class Shown:
    """A run, and where its pages are."""

    world: World
    address: str

    @property
    def config(self) -> Config:
        return self.world.config

    @property
    def run(self) -> str:
        return self.config.run


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with chromium.running() as found:
        yield found


@pytest.fixture(scope="session")
def new_run(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[int], Shown]]:
    """Publishes a run of so many trajectories and serves it, with its index read to the log's end."""
    ended: list[Callable[[], None]] = []

    def made(trajectories: int) -> Shown:
        folder = tmp_path_factory.mktemp("view")
        config = load(
            sets=[
                f"run=browser-{uuid.uuid4().hex[:8]}",
                f"kafka.bootstrap={broker}",
                "kafka.max_record_bytes=8388608",
                f"store.url=file://{folder / 'store'}",
                f"stack.cache={folder / 'cache'}",
            ],
            environ={},
        )
        world = publish(config, trajectories)
        long_episode(config)
        runs = Runs(lambda: [config.run], lambda name: config)
        server = ViewServer(runs, "127.0.0.1", ports.draw("a test"), None)
        server.__enter__()
        ended.extend([lambda: runs.__exit__(None, None, None), lambda: server.__exit__(None, None, None)])
        assert runs.get(config.run).follower.caught_up.wait(FOLLOWED_S)
        return Shown(world, server.address)

    yield made
    for each in reversed(ended):
        each()


@pytest.fixture(scope="session")
def shown(new_run: Callable[[int], Shown]) -> Shown:
    """The run that most tests look at."""
    return new_run(24)


@pytest.fixture
def view(browser: Browser, shown: Shown) -> Iterator[Watched]:
    """A page as wide as a desktop's. At the end nothing may have gone wrong on it."""
    yield from opened(browser, shown, DESKTOP)


@pytest.fixture
def narrow(browser: Browser, shown: Shown) -> Iterator[Watched]:
    """A page as wide as a phone's."""
    yield from opened(browser, shown, PHONE)


def opened(browser: Browser, shown: Shown, size: tuple[int, int], scheme: str = "light") -> Iterator[Watched]:
    yield from opened_at(browser, shown.address, size, scheme)


def opened_at(browser: Browser, address: str, size: tuple[int, int], scheme: str = "light") -> Iterator[Watched]:
    viewport = {"width": size[0], "height": size[1]}
    with browser.new_context(viewport=viewport, color_scheme=scheme) as context:  # type: ignore[arg-type]
        context.set_default_timeout(PATIENCE_MS)
        page = watched(context, address)
        try:
            yield page
        finally:
            page.shot("last")
        page.check()
