from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import Config

from learner.world import Screens, config, save_tiny_base


@pytest.fixture(scope="session")
def base_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base")
    save_tiny_base(directory)
    return directory


@pytest.fixture
def settings(base_directory: Path) -> Config:
    return config(base_directory)


@pytest.fixture
def screens() -> Screens:
    return Screens()
