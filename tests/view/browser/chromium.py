"""The Chromium of this machine, driven by Playwright, which downloads none of its own.

`python -m view.browser.chromium` prints Debian's packages of it where none is there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

PACKAGES = "chromium fonts-dejavu-core"
"""Fonts, as the one does not need the other, and pictures without letters show nothing."""
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
VARIABLE = "CHROMIUM"
"""Names another executable. A name that begins with DISTRL_ would be read as a setting."""
MISSING = f"no Chromium is on the PATH: `apt-get install chromium`, or set {VARIABLE} to the executable of one"


def found() -> str | None:
    """The executable."""
    named = os.environ.get(VARIABLE)
    if named:
        return shutil.which(named)
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)


@contextmanager
def running() -> Iterator[Browser]:
    executable = found()
    assert executable is not None, MISSING
    # Chromium refuses its sandbox to root; the pages are ours, and reach nothing but loopback.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


if __name__ == "__main__" and found() is None:
    print(PACKAGES)
