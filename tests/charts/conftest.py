"""The chart as its tests see it: the programs that read it, and what its examples render to."""

from __future__ import annotations

from pathlib import Path

import gotools
import pytest


@pytest.fixture(scope="session")
def helm() -> Path:
    return gotools.tool("helm")


@pytest.fixture(scope="session")
def helm_unittest() -> Path:
    return gotools.tool("helm-unittest")


@pytest.fixture(scope="session")
def chart_testing() -> Path:
    return gotools.tool("chart-testing", "ct")


@pytest.fixture(scope="session")
def manifests() -> Path:
    return gotools.tool("manifests")
