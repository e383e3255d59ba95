"""`distrl view` refuses what cannot be before it asks a broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Cli


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--episodes 5", "--episodes: is of an export"),
        ("--force", "--force: is of an export"),
        ("--export DIR --port 24000", "--port: an export listens nowhere"),
        ("--export DIR --token-file t", "--token-file: an export listens nowhere"),
        ("--export DIR --episodes -1", "--episodes: '-1' is no number of episodes"),
        ("--export DIR --episodes some", "--episodes: 'some' is no number of episodes"),
        ("--reports DIR/none", "none is no folder"),
        ("--export DIR/there", "exists already, and is no distrl-pages/1"),
        ("--export DIR/there --force", "exists already, and is no distrl-pages/1"),
    ],
)
def test_what_an_export_cannot_be_is_said_at_once(cli: Cli, tmp_path: Path, options: str, message: str) -> None:
    (tmp_path / "there").mkdir()
    ended = cli("view", *options.replace("DIR", str(tmp_path)).split(), "--set", "kafka.bootstrap=127.0.0.1:1")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert message in ended.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["there"]


@pytest.mark.parametrize("content", ["x" * 15, "x" * 16 + "\n" + "y" * 16, "x" * 16 + "\t" + "y"])
def test_a_token_that_no_header_can_show_is_refused(cli: Cli, tmp_path: Path, content: str) -> None:
    file = tmp_path / "token"
    file.write_text(content)
    ended = cli("view", "--token-file", str(file), "--set", "kafka.bootstrap=127.0.0.1:1")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"{file} does not hold one line of 16 or more printable ASCII characters" in ended.stderr
