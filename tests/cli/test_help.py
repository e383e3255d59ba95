"""Every command says what it is and what it takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from distrl.cli.main import app
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command
from typer.testing import CliRunner

Command = TyperCommand | TyperGroup


def walk(command: Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    yield path, command
    if isinstance(command, TyperGroup):
        for name, inner in command.commands.items():
            assert isinstance(inner, Command)
            yield from walk(inner, (*path, name))


def tree() -> dict[tuple[str, ...], Command]:
    root = get_command(app)
    assert isinstance(root, TyperGroup)
    return dict(walk(root))


TREE = tree()


@pytest.mark.parametrize("path", TREE, ids=lambda path: " ".join(path) or "distrl")
def test_a_command_explains_itself_and_each_thing_that_it_takes(path: tuple[str, ...]) -> None:
    command = TREE[path]
    assert command.help
    for taken in command.params:
        assert isinstance(taken, TyperOption | TyperArgument)
        assert taken.help, f"distrl {' '.join(path)}: {taken.opts} has no help"
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "100"})
    assert shown.exit_code == 0
    for taken in command.params:
        assert isinstance(taken, TyperOption | TyperArgument)
        if isinstance(taken, TyperOption) and not taken.hidden:
            assert max(taken.opts, key=len) in shown.output


def test_the_tree_is_whole() -> None:
    """Were the walk to miss the sub-commands, the test above would pass for want of work."""
    roles = {"feed", "worker", "learner", "evaluate", "demonstrate", "phones"}
    assert {(name,) for name in ("up", "down", "status", "doctor", "demo", *roles)} <= TREE.keys()
    assert {("config", "show"), ("config", "check"), ("topics", "ensure"), ("tail", "trajectories")} <= TREE.keys()
