"""What a rehearsal takes of a configuration: its simulated phones alone, whatever else may be driven by it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from device.conftest import LONG_S
from distrl.config import Config
from distrl.device.server import AdbServer
from distrl.errors import ConfigError
from distrl.rollout.oracle_smoke_test import oracle_smoke_test
from distrl.tasks.suite import EVALUATION_SEED, suites
from distrl.types import Outcome, Split, Task


def first_task() -> Task:
    return suites()["home"].task(0, EVALUATION_SEED, Split.TEST)


def test_it_starts_no_emulator_of_the_configuration_and_may_act_in_every_app(adb: AdbServer, tmp_path: Path) -> None:
    started = tmp_path / "started"
    binary = tmp_path / "emulator"
    binary.write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    binary.chmod(0o755)
    settings = Config.model_validate(
        {
            "adb": adb.adb.model_dump(),
            "phones": {"count": 1, "latency_median_ms": 1, "popup_probability": 0},
            "devices": {
                "allowed_packages": ["com.example.other"],
                "operation_timeout_s": LONG_S,
                "settle_timeout_s": LONG_S,
                "lease_ttl_s": 3 * LONG_S,
                "emulators": {"avd": "real", "count": 1, "binary": binary, "boot_timeout_s": 1},
            },
        }
    )
    found = oracle_smoke_test(settings, "steady", [first_task()], threading.Event(), lambda: None)
    assert not started.exists()
    assert found.outcomes == {Outcome.SUCCESS: 1}


def test_it_is_refused_without_a_phone_by_the_name_of_the_setting() -> None:
    settings = Config.model_validate({"adb": {"port": 1}, "phones": {"count": 0}})
    with pytest.raises(ConfigError) as refused:
        oracle_smoke_test(settings, "steady", [first_task()], threading.Event(), lambda: None)
    assert refused.value.where == "phones.count"
