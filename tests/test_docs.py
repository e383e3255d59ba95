"""What the documents promise by name is there: tests, files, settings of the tables."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"])
TEST = re.compile(r"`(?P<file>[\w/.]+\.py)::(?P<name>test_\w*)(?P<cut>…?)`")
LINK = re.compile(r"\]\((?!https?://|#)(?P<path>[^)#]+)(?:#[^)]*)?\)")


@cache
def names_in(file: str) -> frozenset[str]:
    path = ROOT / "tests" / file.removeprefix("tests/")
    return (
        frozenset(re.findall(r"^\s*def (test_\w+)", path.read_text(), re.MULTILINE)) if path.exists() else frozenset()
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_test_and_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    missing = []
    for found in TEST.finditer(text):
        names = names_in(found["file"])
        if not any(name.startswith(found["name"]) if found["cut"] else name == found["name"] for name in names):
            missing.append(found[0])
    missing += [path for path in LINK.findall(text) if not (page.parent / path).exists()]
    assert missing == []


def test_the_guarantees_name_a_test_for_each_promise() -> None:
    rows = [line for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows[1:] if not row.startswith("| ---")]
    assert len(promises) > 10
    assert [row for row in promises if not TEST.search(row)] == []
