"""Two demos at once: each would stop the other's roles and servers."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import Config
from distrl.demo.run import LOCK, run_demo
from distrl.errors import StackError
from distrl.stack.local import LocalStack
from distrl.stack.locks import held
from rich.console import Console


@pytest.mark.parametrize("shared", ["out", "stack"])
def test_a_second_demo_in_a_folder_or_on_a_stack_is_refused_and_touches_nothing(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStack, "up", lambda *_, **__: pytest.fail("it went on"))
    config = Config.model_validate({"stack": {"directory": tmp_path / "stack"}})
    with (
        held(tmp_path / shared / LOCK, "a demo"),
        pytest.raises(StackError, match=r"demo.lock: a demo \(process \d+\) is at work there"),
    ):
        run_demo(config, 0.1, tmp_path / "out", 0.0, Console())
    assert not list(tmp_path.glob("out/*.json"))
