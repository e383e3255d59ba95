from __future__ import annotations

import asyncio
import time

from phone_shell import with_shell
from simphone.faults import Fault, Faults
from simphone.shell import Shell
from waiting import WITHIN_S


def test_a_fault_ends_by_itself_and_a_waiter_sees_both_ends() -> None:
    async def go() -> None:
        now = 0.0
        faults = Faults(lambda: now)
        begins = asyncio.create_task(faults.until(Fault.GONE, active=True))
        await asyncio.to_thread(faults.set, Fault.GONE, 0.05)
        await asyncio.wait_for(begins, WITHIN_S)
        assert faults.active(Fault.GONE)
        assert not faults.active(Fault.SILENT)
        ends = asyncio.create_task(faults.until(Fault.GONE, active=False))
        await asyncio.sleep(0)
        assert not ends.done()
        now = 0.05
        await asyncio.wait_for(ends, WITHIN_S)
        assert not faults.active(Fault.GONE)

    asyncio.run(go())


def test_clearing_wakes_who_waits_for_the_end() -> None:
    async def go() -> None:
        faults = Faults(time.monotonic)
        faults.set(Fault.SILENT)
        waiting = asyncio.create_task(faults.until(Fault.SILENT, active=False))
        await asyncio.sleep(0)
        assert not waiting.done()
        await asyncio.to_thread(faults.clear)
        await asyncio.wait_for(waiting, WITHIN_S)

    asyncio.run(go())


def test_a_mishap_ends_no_fault_that_lasts_longer() -> None:
    async def go() -> None:
        now = 0.0
        faults = Faults(lambda: now)
        faults.set(Fault.ASLEEP)
        faults.lengthen(Fault.ASLEEP, 30)
        faults.lengthen(Fault.SLOW, 30)
        faults.lengthen(Fault.SLOW, 20)
        now = 29.0
        assert faults.active(Fault.SLOW)
        now = 31.0
        assert (faults.active(Fault.ASLEEP), faults.active(Fault.SLOW)) == (True, False)

    asyncio.run(go())


def test_another_app_is_started_over_one_that_is_stuck() -> None:
    async def play(shell: Shell) -> None:
        await shell.run("am start -p com.sim.clock")
        shell.phone.faults.set(Fault.STUCK)
        before = shell.phone.machine.state()
        await shell.run("am start -p com.sim.clock")
        assert shell.phone.machine.state() == before, "it hangs in front"
        for line, front in (
            ("am start -p com.sim.settings", "com.sim.settings/"),
            ("am start -p com.sim.clock", "com.sim.clock/"),
            ("monkey -p com.sim.notes -c android.intent.category.LAUNCHER 1", "com.sim.notes/"),
        ):
            assert (await shell.run(line)).code == 0
            assert shell.phone.machine.focus().startswith(front)
        assert shell.phone.hung == "com.sim.clock"

    with_shell(play)


def test_an_app_that_is_stuck_repaints_and_hears_nothing_but_home_until_it_is_stopped() -> None:
    async def play(shell: Shell) -> None:
        phone = shell.phone

        async def shots() -> set[bytes]:
            return {(await shell.run("screencap -p")).stdout for _ in range(3)}

        await shell.run("am start -p com.sim.settings")
        await shell.run("am start -p com.sim.launcher")
        phone.faults.set(Fault.STUCK)
        assert len(await shots()) == 1, "the home screen never hangs"
        await shell.run("am start -p com.sim.clock")
        assert len(await shots()) == 3
        before = phone.machine.state()
        lines = ("input tap 64 200", "input keyevent BACK", "input text x")
        waiting = [asyncio.create_task(shell.run(line)) for line in lines]
        _, pending = await asyncio.wait(waiting, timeout=0.2)
        assert len(pending) == 3, "as Android's `input`, they wait for the app"
        assert phone.machine.state() == before
        await shell.run("input keyevent WAKEUP")
        await shell.run("input keyevent HOME")
        assert phone.machine.focus().startswith("com.sim.launcher/")
        home = phone.machine.state()
        await asyncio.wait_for(asyncio.gather(*waiting), WITHIN_S)
        assert phone.machine.state() == home, "what waited is lost"
        await shell.run("am start -p com.sim.settings")
        assert len(await shots()) == 1, "another app does not hang"
        await shell.run("am force-stop com.sim.settings")
        await shell.run("am start -p com.sim.clock")
        assert len(await shots()) == 3, "it hangs again"
        await shell.run("am force-stop com.sim.clock")
        await shell.run("am start -p com.sim.clock")
        assert len(await shots()) == 1
        assert not phone.faults.active(Fault.STUCK)

    with_shell(play)
