"""`distrl emulators prepare` and `distrl doctor` as a person meets them, with a stand-in for the SDK's emulator."""

from __future__ import annotations

import os
import subprocess
import sys
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


def test_one_in_a_browser_is_an_emulator_of_the_settings_that_runs(standin: Standin) -> None:
    """Nobody tells the adb server of it, which does not look for emulators by itself."""
    more = ["devices.emulators.count=1", "devices.operation_timeout_s=60", "devices.lease_ttl_s=180"]
    line = ["phones", "play", *sets(standin), *(word for each in more for word in ("--set", each))]
    at = next(each for each in line if "first_port=" in each).partition("=")[2]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    environ.pop("ANDROID_ADB_SERVER_PORT", None)
    environ["STANDIN"] = str(standin.folder)
    started = [standin.binary, "-avd", AVD, "-port", at]
    play = [sys.executable, "-m", "distrl.cli.main", *line]
    with (
        subprocess.Popen(started, env=environ) as emulator,
        subprocess.Popen(play, env=environ, stdout=subprocess.PIPE, text=True) as playing,
    ):
        try:
            assert playing.stdout is not None
            assert playing.stdout.readline().startswith(f"ready: emulator-{at} at http://127.0.0.1:")
            playing.terminate()
            assert playing.wait(60) == 0
        finally:
            playing.kill()
            emulator.kill()


def test_one_in_a_browser_that_does_not_run_is_named_with_how_it_is_started(cli: Cli, standin: Standin) -> None:
    line = ["phones", "play", *sets(standin), "--set", "devices.emulators.count=1"]
    refused = cli(*line)
    assert refused.returncode == 1
    what, hint = refused.stderr.splitlines()[-2:]
    at = next(each for each in line if "first_port=" in each).partition("=")[2]
    assert what.startswith(f"emulator-{at}: adb at 127.0.0.1:")
    assert hint == f"  hint: start it with `emulator -avd {AVD} -port {at}`, or choose another phone with --serial"
    assert standin.started() == []
