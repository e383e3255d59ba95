"""`python -m simphone` as a person starts it, where there is no distrl, no pydantic and no torch."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import adbutils
import PIL
import pytest
import simphone
from distrl.device.server import AdbServer
from distrl.stack import ports
from simphone.fleet import FleetSettings

COUNT = 2
LONG_S = 30.0
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what simphone needs and nothing else: itself and Pillow."""
    folder = tmp_path_factory.mktemp("alone")
    shutil.copytree(Path(simphone.__file__).parent, folder / "simphone", ignore=shutil.ignore_patterns("__pycache__"))
    pillow = Path(PIL.__file__).parent
    for name in ("PIL", "pillow.libs"):
        if (pillow.parent / name).exists():
            (folder / name).symlink_to(pillow.parent / name)
    return folder


def start(alone: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(alone), "PYTHONSAFEPATH": "1", "COLUMNS": "120"}
    return subprocess.Popen(
        [sys.executable, "-S", "-m", "simphone", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def run(alone: Path, *arguments: str) -> tuple[int, str, str]:
    process = start(alone, *arguments)
    try:
        said, complained = process.communicate(timeout=LONG_S)
    finally:
        process.kill()
    return process.returncode, said, complained


@pytest.fixture
def base_port() -> int:
    return ports.draw("the tests", count=COUNT)


@pytest.fixture
def process(alone: Path, base_port: int) -> Iterator[subprocess.Popen[str]]:
    with start(alone, "--count", str(COUNT), "--base-port", str(base_port), "--seed", "5") as started:
        try:
            yield started
        finally:
            started.kill()


def test_it_says_how_to_connect_answers_a_real_adb_server_and_ends_at_ctrl_c(
    process: subprocess.Popen[str], base_port: int, adb: AdbServer
) -> None:
    assert process.stdout is not None
    addresses = [f"127.0.0.1:{base_port + number}" for number in range(COUNT)]
    assert [process.stdout.readline() for _ in range(COUNT + 1)] == [
        *(f"sim{number}: adb connect {address}\n" for number, address in enumerate(addresses)),
        f"ready: {COUNT} simulated phones at 127.0.0.1, ports {base_port} to {base_port + COUNT - 1}\n",
    ]

    def asked(*words: str) -> bytes:
        command = [adbutils.adb_path(), "-P", str(adb.adb.port), *words]
        return subprocess.run(command, capture_output=True, timeout=LONG_S, check=True).stdout

    try:
        for number, address in enumerate(addresses):
            assert asked("connect", address) == f"connected to {address}\n".encode()
            assert asked("-s", address, "shell", "getprop", "ro.serialno") == f"sim{number}\n".encode()
        screens = [asked("-s", address, "exec-out", "screencap", "-p") for address in addresses]
        assert all(screen.startswith(PNG) for screen in screens)
        asked("-s", addresses[0], "shell", "input", "keyevent", "SLEEP")
        assert asked("-s", addresses[0], "exec-out", "screencap", "-p") != screens[0]
        assert asked("-s", addresses[1], "exec-out", "screencap", "-p") == screens[1]
    finally:
        for address in addresses:
            adb.disconnect(address)
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG_S) == 0
    assert process.communicate() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "argument --count: 0 is not allowed; allowed: 1 or more"),
        (["--count", "many"], "argument --count: invalid int value: 'many'"),
        (["--base-port", "80"], "argument --base-port: 80 is not allowed; allowed: 5586 to 65535"),
        (
            ["--generation", "0", "--generation", "9"],
            "argument --generation: 0, 9 is not allowed; allowed: each 0 to 4",
        ),
        (["--profile", "haunted"], "argument --profile: haunted is not allowed; allowed: plain, moving, "),
        (["--phones", "3"], "unrecognized arguments: --phones 3"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_refused_with_what_is_allowed(alone: Path, arguments: list[str], message: str) -> None:
    status, said, complained = run(alone, *arguments)
    assert (status, said) == (2, "")
    assert message in complained


def test_a_port_in_use_is_named_with_its_option(alone: Path, base_port: int) -> None:
    with socket.create_server(("127.0.0.1", base_port + 1)):
        status, said, complained = run(alone, "--count", str(COUNT), "--base-port", str(base_port))
    assert (status, said) == (1, "")
    assert complained.startswith(f"python -m simphone: error: argument --base-port: port {base_port + 1} of 127.0.0.1")


def test_help_names_every_setting_of_a_fleet(alone: Path) -> None:
    status, said, _ = run(alone, "--help")
    names = {field.name for field in fields(FleetSettings)} - {"profiles", "generations"} | {"profile"}
    assert status == 0
    assert {f"--{name.replace('_', '-')}" for name in names} <= set(re.findall(r"^  (--[a-z-]+)", said, re.MULTILINE))
