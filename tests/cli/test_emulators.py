"""`distrl emulators prepare` and `distrl doctor` as a person meets them, with a stand-in for the SDK's emulator."""

from __future__ import annotations

from pathlib import Path

import pytest
from device.conftest import free_ports
from device.standin import AVD, Standin

from .conftest import Cli


def sets(standin: Standin, avd: str = AVD, snapshot: str = "clean") -> list[str]:
    emulators = standin.devices(count=1).emulators
    settings = [
        f"adb.port={free_ports(1)}",
        f"devices.directory={standin.state}",
        f"devices.emulators.avd={avd}",
        f"devices.emulators.snapshot={snapshot}",
        f"devices.emulators.first_port={emulators.first_port}",
        f"devices.emulators.binary={standin.binary}",
        f"devices.emulators.token_file={standin.token}",
    ]
    return [word for each in settings for word in ("--set", each)]


@pytest.fixture
def standin(tmp_path: Path) -> Standin:
    return Standin(tmp_path / "standin")


def test_a_virtual_device_is_prepared(cli: Cli, standin: Standin) -> None:
    made = cli("emulators", "prepare", *sets(standin), environ={"STANDIN": str(standin.folder)})
    assert made.returncode == 0, made.stderr
    assert "distrl has snapshot clean" in made.stdout
    assert (standin.folder / "avd" / AVD / "clean").exists()
    assert standin.running() == []


def test_a_virtual_device_that_is_not_there_is_explained(cli: Cli, standin: Standin) -> None:
    environ = {"STANDIN": str(standin.folder)}
    refused = cli("emulators", "prepare", *sets(standin, avd="none"), environ=environ)
    assert refused.returncode == 1
    assert "Unknown AVD name [none]" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert standin.running() == []
    looked = cli("doctor", *sets(standin, avd="none"), environ=environ | {"COLUMNS": "300"})
    assert f"has no virtual device none; it has {AVD}" in " ".join(looked.stdout.split())


@pytest.mark.parametrize(
    ("avd", "snapshot", "where"), [("", "clean", "avd"), (AVD, "", "snapshot"), ("-x", "c", "avd")]
)
def test_what_is_not_named_or_no_name_is_reported(
    cli: Cli, standin: Standin, avd: str, snapshot: str, where: str
) -> None:
    environ = {"STANDIN": str(standin.folder)}
    refused = cli("emulators", "prepare", *sets(standin, avd, snapshot), environ=environ)
    assert refused.returncode == 1
    assert f"devices.emulators.{where}: " in refused.stderr
    assert standin.started() == []
