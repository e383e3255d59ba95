"""A stand-in for the Android SDK's `emulator` program: its command line, its console with the token, a phone for adb.

`emulator_standin.py -avd NAME -port N [-read-only] [-snapshot NAME] …`, as distrl.device.launch starts it. It has the
virtual devices and snapshots of the folder that STANDIN names, and misbehaves as `<folder>/faults.json` says, which is
read again for every start and every console command. On port N it speaks the console, on N + 1 it serves a simulated
phone's end of adb; like the real one it tells the adb server at ANDROID_ADB_SERVER_PORT that it is there. Nobody has to
run a virtual machine, and the adb server in between is the real one.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pickle
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import Any

from simphone.adbd import Adbd, properties
from simphone.commands import COMMANDS
from simphone.commands.base import CommandResult, Invocation
from simphone.faults import Fault, Faults
from simphone.handset import Handset
from simphone.machine import PhoneMachine

HOST = "127.0.0.1"
FLAGS = {"-read-only", "-no-window", "-no-audio", "-no-boot-anim", "-no-snapshot", "-no-snapshot-save"}
VALUES = {"-avd", "-port", "-snapshot", "-gpu"}
FOLDER = Path(os.environ["STANDIN"])
TOKEN = FOLDER / "token"


def faults() -> dict[str, Any]:
    """boot_s, exit (status), console ("silent", "drip"), refuse (command: reason), name (of the AVD), stubborn."""
    try:
        found: dict[str, Any] = json.loads((FOLDER / "faults.json").read_text())
    except FileNotFoundError:
        return {}
    return found


class Machine:
    """The machine that runs now: another one after a snapshot was loaded."""

    def __init__(self) -> None:
        self.now = PhoneMachine(0, 0.0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.now, name)


async def noted_settings(phone: Handset, call: Invocation) -> CommandResult:
    """`settings`, which tells the test what was put."""
    if call.args[:1] == ("put",):
        with (FOLDER / "settings").open("a") as file:
            file.write("=".join(call.args[2:]) + "\n")
    return await COMMANDS["settings"](phone, call)


PROGRAMS = {name: run for name, run in COMMANDS.items() if name != "simctl"} | {"settings": noted_settings}
"""Like a real phone it has no simctl."""


class Emulator:
    def __init__(self, options: dict[str, str]) -> None:
        self.avd, self.port = options["-avd"], int(options["-port"])
        self.read_only = "-read-only" in options
        self.machine = Machine()
        self.snapshots = FOLDER / "avd" / self.avd
        if "-snapshot" in options and (self.snapshots / options["-snapshot"]).exists():
            self.load(options["-snapshot"])
        says = properties(f"emulator-{self.port}") | {"ro.product.model": self.avd}
        told = Faults(time.monotonic)
        told.set(Fault.BOOTING, float(faults().get("boot_s", 0)))
        machine: Any = self.machine
        self.adbd = Adbd(Handset(machine, told, lambda: 0.0, says), PROGRAMS)
        self.ended = asyncio.Event()

    def load(self, name: str) -> None:
        self.machine.now = pickle.loads((self.snapshots / name).read_bytes())

    async def run(self) -> None:
        ports = ((self.console, self.port), (self.adbd.connected, self.port + 1))
        servers = [await asyncio.start_server(serve, HOST, port) for serve, port in ports]
        await self.announce()
        await self.ended.wait()
        self.adbd.drop_connections()
        for server in servers:
            server.close()

    async def announce(self) -> None:
        """What an emulator tells the adb server once it runs."""
        try:
            _, writer = await asyncio.open_connection(HOST, int(os.environ["ANDROID_ADB_SERVER_PORT"]))
        except (OSError, KeyError):
            return
        said = f"host:emulator:{self.port + 1}"
        writer.write(f"{len(said):04x}{said}".encode())
        await writer.drain()
        writer.close()

    async def console(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        token = TOKEN.read_text().strip()
        trusted = not token
        greeting = ["Android Console: type 'help' for a list of commands"]
        if not trusted:
            greeting = [
                "Android Console: Authentication required",
                "Android Console: type 'auth <auth_token>' to authenticate",
                "Android Console: you can find your <auth_token> in",
                f"'{TOKEN}'",
            ]
        try:
            await self.say(writer, *greeting, "OK")
            while line := await reader.readline():
                command = line.decode().strip()
                word, _, rest = command.partition(" ")
                if word == "auth":
                    trusted = rest == token
                    wrong = "KO: authentication token does not match ~/.emulator_console_auth_token"
                    await self.say(writer, *(["Android Console: type 'help'", "OK"] if trusted else [wrong]))
                elif not trusted:
                    await self.say(writer, "KO: unknown command, try 'help'")
                else:
                    await self.say(writer, *self.answer(command))
                if command == "kill" and trusted:
                    self.ended.set()
        except ConnectionError:
            pass
        finally:
            writer.close()

    def answer(self, command: str) -> list[str]:
        with (FOLDER / f"asked-{self.port}").open("a") as file:
            file.write(command + "\n")
        for refused, why in faults().get("refuse", {}).items():
            if command.startswith(refused):
                return [f"KO: {why}"]
        match command.split():
            case ["ping"]:
                return ["I am alive!", "OK"]
            case ["kill"]:
                return ["OK: killing emulator, bye bye"]
            case ["avd", "name"]:
                return [str(faults().get("name", self.avd)), "OK"]
            case ["avd", "snapshot", "list"]:
                return ["List of snapshots present on all disks:", *sorted(os.listdir(self.snapshots)), "OK"]
            case ["avd", "snapshot", "save", name]:
                if self.read_only:
                    return ["KO: a read-only emulator cannot save a snapshot"]
                (self.snapshots / name).write_bytes(pickle.dumps(self.machine.now))
                return ["OK"]
            case ["avd", "snapshot", "load", name]:
                if not (self.snapshots / name).exists():
                    return [f"KO: no snapshot {name}"]
                self.load(name)
                self.adbd.drop_connections()
                return ["OK"]
        return ["KO: unknown command, try 'help'"]

    async def say(self, writer: asyncio.StreamWriter, *lines: str) -> None:
        text = "".join(f"{line}\r\n" for line in lines).encode()
        how = faults().get("console", "")
        if how == "silent":
            return
        if how == "drip":
            for byte in text:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.1)
        writer.write(text if how != "drip" else b"")
        await writer.drain()


def options(words: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        if word in VALUES:
            found[word] = next(rest)
        elif word in FLAGS:
            found[word] = ""
        else:
            raise SystemExit(f"unknown option: {word}\nplease use -help for a list of valid options")
    return found


def main() -> None:
    if sys.argv[1:] == ["-list-avds"]:
        print("\n".join(sorted(os.listdir(FOLDER / "avd"))))
        return
    given = options(sys.argv[1:])
    print("INFO | Android emulator version 0 (stand-in)", " ".join(sys.argv[1:]), flush=True)
    with (FOLDER / "started").open("a") as file:
        file.write(json.dumps([os.getpid(), *sys.argv[1:]]) + "\n")
    avd = FOLDER / "avd" / given["-avd"]
    if not avd.is_dir():
        raise SystemExit(f"ERROR | Unknown AVD name [{given['-avd']}], use -list-avds to see valid list.")
    if "exit" in faults():
        raise SystemExit(int(faults()["exit"]))
    lock = (FOLDER / f"{given['-avd']}.lock").open("w")
    try:
        fcntl.flock(lock, (fcntl.LOCK_SH if "-read-only" in given else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit("ERROR | Another emulator instance is running. Please use -read-only flag.") from None
    if not TOKEN.exists():
        TOKEN.write_text(secrets.token_urlsafe(12))

    async def run() -> None:
        emulator = Emulator(given)
        if not faults().get("stubborn"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, emulator.ended.set)
        else:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await emulator.run()

    asyncio.run(run())


if __name__ == "__main__":
    main()
