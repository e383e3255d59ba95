"""The pages' files in the package: what is vendored is as it was published, and no text can become markup."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "pipeline" / "distrl" / "view" / "static"
SOURCES = [*STATIC.rglob("SOURCE.txt"), *Path(__file__).parent.rglob("SOURCE.txt")]
OWN = [
    file for file in STATIC.rglob("*") if file.suffix in (".js", ".css", ".html", ".svg") and "vendor" not in file.parts
]
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|srcdoc|\beval\(|new Function|cssText"
)
INLINE = re.compile(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son[a-z]+=|javascript:")
ELSEWHERE = re.compile(r"https?://(?!www\.w3\.org/2000/svg)|url\(|@import")


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.parent.name)
def test_what_is_vendored_is_named_licensed_and_unchanged(source: Path) -> None:
    said = dict(re.findall(r"^sha256 of (?!its)(\S+): ([0-9a-f]{64})$", source.read_text(), re.MULTILINE))
    there = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in source.parent.iterdir()}
    del there[source.name]
    assert said == there
    assert "LICENSE" in said


def test_both_are_vendored() -> None:
    assert sorted(source.parent.name for source in SOURCES) == ["axe-core", "uplot"]


@pytest.mark.parametrize("file", OWN, ids=lambda path: str(path.relative_to(STATIC)))
def test_a_file_of_the_pages_makes_no_markup_of_text_and_names_no_other_place(file: Path) -> None:
    text = file.read_text()
    assert MARKUP.findall(text) == []
    assert ELSEWHERE.findall(text) == []
    if file.suffix == ".html":
        assert INLINE.findall(text) == []
    assert len(text.splitlines()) < 350


def test_every_module_that_is_imported_is_there() -> None:
    modules = [file for file in OWN if file.suffix == ".js"]
    assert len(modules) > 20
    for module in modules:
        for path in re.findall(r'^import .*"(\.[^"]+)";$', module.read_text(), re.MULTILINE):
            assert (module.parent / path).is_file(), f"{module.name} imports {path}"
