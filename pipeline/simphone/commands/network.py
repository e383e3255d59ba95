"""`ip`, `ifconfig` and `nc`: the phone's wlan0, and connections to ports of its own.

The address is only shown; nothing is routed there. The phone is reached at its port on loopback.
"""

from __future__ import annotations

import asyncio
from typing import Final

from simphone.commands.base import FAILED, MOST_OUTPUT, CommandError, CommandResult, Invocation, complained, said
from simphone.handset import Handset
from simphone.ports import PortError

ADDRESS: Final = "dhcp.wlan0.ipaddress"
"""The property that holds the address."""
GATEWAY: Final = "10.0.0.1"
HARDWARE: Final = "02:00:00:00:00:00"
"""The MAC address that Android has shown to apps and shells since 6.0, on any hardware."""
LONGEST_CALL_S: Final = 60.0
LOCAL: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def address_of(number: int) -> str:
    """The address of the phone with that number, in 10.0.0.0/16."""
    return f"10.0.{2 + number // 200}.{16 + number % 200}"


async def ip(phone: Handset, call: Invocation) -> CommandResult:
    words = [word for word in call.args if word not in ("-4", "-f", "inet", "show", "dev", "list")]
    address = phone.properties[ADDRESS]
    match words:
        case ["addr" | "address" | "a"]:
            return said(_loopback() + _wlan(address))
        case ["addr" | "address" | "a", "wlan0"]:
            return said(_wlan(address))
        case ["addr" | "address" | "a", "lo"]:
            return said(_loopback())
        case ["addr" | "address" | "a", name]:
            return complained(f'Device "{name}" does not exist.\n')
        case ["route" | "r", *rest] if rest in ([], ["wlan0"]):
            return said(f"10.0.0.0/16 dev wlan0 proto kernel scope link src {address}\n")
        case ["route" | "r", "get", _]:
            return said(f"{words[2]} via {GATEWAY} dev wlan0 src {address} uid 2000\n    cache\n")
    raise CommandError("usage: ip addr [show] [[dev] NAME] | route [get ADDRESS]")


def _wlan(address: str) -> str:
    return (
        "2: wlan0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP group default qlen 3000\n"
        f"    link/ether {HARDWARE} brd ff:ff:ff:ff:ff:ff\n"
        f"    inet {address}/16 brd 10.0.255.255 scope global wlan0\n       valid_lft forever preferred_lft forever\n"
    )


def _loopback() -> str:
    return (
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN group default qlen 1000\n"
        "    link/loopback 00:00:00:00:00:00 brd 00:00:00:00:00:00\n"
        "    inet 127.0.0.1/8 scope host lo\n       valid_lft forever preferred_lft forever\n"
    )


async def ifconfig(phone: Handset, call: Invocation) -> CommandResult:
    shown = {
        "lo": "lo        Link encap:Local Loopback\n          inet addr:127.0.0.1  Mask:255.0.0.0\n"
        "          UP LOOPBACK RUNNING  MTU:65536  Metric:1\n\n",
        "wlan0": f"wlan0     Link encap:Ethernet  HWaddr {HARDWARE}\n"
        f"          inet addr:{phone.properties[ADDRESS]}  Bcast:10.0.255.255  Mask:255.255.0.0\n"
        "          UP BROADCAST RUNNING MULTICAST  MTU:1500  Metric:1\n\n",
    }
    match call.args:
        case [] | ["-a"]:
            return said("".join(shown.values()))
        case [name] if name in shown:
            return said(shown[name])
        case [name]:
            return complained(f"ifconfig: {name}: No such device\n")
    raise CommandError("usage: ifconfig [NAME]")


async def nc(phone: Handset, call: Invocation) -> CommandResult:
    """`nc HOST PORT` to a port of the phone itself: sends the pipe's input and prints the answer until the other side
    closes.
    """
    match call.args:
        case [host, port] if host in LOCAL:
            pass
        case [host, _]:
            return complained(f"nc: connect to {host}: Network is unreachable\n")
        case _:
            raise CommandError("usage: nc 127.0.0.1 PORT")
    try:
        stream = await phone.ports.dial(f"tcp:{port}")
    except PortError as error:
        return complained(f"nc: connect: {error}\n", FAILED)
    came = bytearray()
    try:
        async with asyncio.timeout(LONGEST_CALL_S):
            if call.fed:
                await stream.write(call.fed)
            while data := await stream.read_some():
                if len(came) + len(data) > MOST_OUTPUT:
                    raise CommandError(f"more than {MOST_OUTPUT} bytes to print at once")
                came += data
    except (ConnectionError, TimeoutError):
        return CommandResult(bytes(came), code=FAILED)
    finally:
        await stream.close()
    return CommandResult(bytes(came))


COMMANDS = {"ifconfig": ifconfig, "ip": ip, "nc": nc}
