"""What the documents promise by name is there: tests, files, settings of the tables."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from distrl.cli.main import app
from distrl.config import Config, load

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md"), ROOT / "bench" / "README.md"]
)
TEST = re.compile(r"`(?P<file>[\w/.]+\.py)::(?P<name>test_\w*)(?P<cut>…?)`")
LONG = "pytest.mark.faults_long"
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


def settings_in(page: Path) -> list[str]:
    """The blocks of a page that are files for `--config`: those that begin with a section of the settings."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [each for each in blocks if each.partition(":")[0] in Config.model_fields]


@pytest.mark.parametrize("page", [page for page in PAGES if settings_in(page)], ids=lambda page: page.name)
def test_the_program_takes_the_settings_that_a_page_shows(page: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    for block in settings_in(page):
        file.write_text(block)
        logs_in = {"DISTRL_KAFKA__SASL_USERNAME": "u", "DISTRL_KAFKA__SASL_PASSWORD": "p"}
        load(file, environ=logs_in if "SASL" in block else {})


def test_pages_show_settings() -> None:
    assert {page.name for page in PAGES if settings_in(page)} >= {"emulators.md", "operations.md"}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_every_path_that_a_page_for_engineers_names_is_there(page: str) -> None:
    named = re.findall(r"`((?:pipeline|tests|schemas|infra|bench|docs)/[\w./-]*)`", (ROOT / page).read_text())
    assert len(named) > 15
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_module_that_a_page_names_is_there(page: Path) -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", page.read_text()))
    there = {
        str(file.relative_to(ROOT)) for room in ("pipeline", "tests", "bench") for file in (ROOT / room).rglob("*.py")
    }
    assert sorted(name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in there)) == []


def test_the_guarantees_name_a_test_for_each_promise() -> None:
    rows = [line for line in (ROOT / "docs" / "guarantees.md").read_text().splitlines() if line.startswith("| ")]
    promises = [row for row in rows[1:] if not row.startswith("| ---")]
    assert len(promises) > 10
    assert [row for row in promises if not TEST.search(row)] == []


def test_make_test_runs_a_test_of_each_promise_and_the_page_marks_those_it_does_not() -> None:
    unheld, unmarked = [], []
    for row in (ROOT / "docs" / "guarantees.md").read_text().splitlines():
        named = [
            (found["file"], found["name"], row[: found.start()].endswith("*long* ")) for found in TEST.finditer(row)
        ]
        unmarked += [name for file, name, marked in named if marked != is_long(file, name)]
        if named and all(is_long(file, name) for file, name, _ in named):
            unheld.append(row)
    assert unheld == []
    assert unmarked == []


def is_long(file: str, prefix: str) -> bool:
    """Whether `make test` leaves out every test of `file` whose name begins like this, in each of its cases."""
    tree = ast.parse((ROOT / "tests" / file.removeprefix("tests/")).read_text())
    found = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef) and each.name.startswith(prefix)]
    return all(LONG in map(ast.unparse, test.decorator_list) for test in found)


def test_each_dependency_has_its_line_and_no_other_has_one() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    page = (ROOT / "docs" / "dependencies.md").read_text()
    told = re.findall(r"^\| ([a-z0-9-]+) \|", page, re.MULTILINE)[2:]  # below the table's head
    assert told == sorted(re.split(r"[><=!~]", item)[0] for item in declared)


def test_the_lines_of_code_beside_the_equations_are_in_their_files() -> None:
    found = re.findall(r"^- `([\w/.]+\.py)`: `(.+)`$", (ROOT / "docs" / "algorithm.md").read_text(), re.MULTILINE)
    assert len(found) > 15
    assert [(f, line) for f, line in found if line not in map(str.strip, (ROOT / f).read_text().splitlines())] == []


def test_the_index_of_decisions_has_each_by_its_title() -> None:
    folder = ROOT / "docs" / "adr"
    titles = [(file.name, file.read_text().partition("\n")[0]) for file in sorted(folder.glob("[0-9]*.md"))]
    listed = re.findall(r"^(\d+\.) \[(.+)\]\((.+)\)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert [(name, f"# {number} {title}") for number, title, name in listed] == titles


def shown(page: Path) -> list[str]:
    """The command lines in code blocks and code spans of a page, without `distrl`."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```[^\n]*\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL))
    return [line for code in (*blocks, *spans) for line in re.findall(r"(?<![\w/.-])distrl ([a-z][^`#|&;\n]*)", code)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_program_has_every_command_and_option_that_a_page_shows(page: Path) -> None:
    assert [line for line in shown(page) if not known(line.split())] == []


def test_the_readme_shows_commands() -> None:
    found = {tuple(line.split()[:2]) for line in shown(ROOT / "README.md")}
    assert {("config", "show"), ("topics", "ensure")} <= found
    assert "worker" in {words[0] for words in found}


@cache
def program() -> Any:
    return typer.main.get_command(app)


def known(words: list[str]) -> bool:
    """Whether there is a command that these words begin with, and each option in them is one of it."""
    command: Any = program()
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    options = {"--help", *(name for each in command.params for name in (*each.opts, *each.secondary_opts))}
    asked = {found[0] for word in words if (found := re.match(r"--?[a-z][\w-]*", word))}
    is_inner = hasattr(command, "commands") and words and re.fullmatch("[a-z][a-z-]*", words[0])
    return command is not program() and not is_inner and asked <= options


def test_a_command_or_an_option_that_there_is_not_is_found() -> None:
    assert known(["runs", "copy", "RUN", "--to", "FILE", "-s", "run=x"])
    assert not known(["runs", "fix", "RUN", "--to"])
    assert not known(["runs", "fix"])
    assert not known(["up", "--foo"])
    assert not known(["upp"])
