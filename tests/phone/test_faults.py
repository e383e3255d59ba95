from __future__ import annotations

import asyncio
import time

from distrl.phone.faults import Fault, Faults


def test_a_fault_ends_by_itself_and_a_waiter_sees_both_ends() -> None:
    async def go() -> None:
        faults = Faults(time.monotonic)
        waiting = asyncio.create_task(faults.until(Fault.GONE, active=True))
        await asyncio.to_thread(faults.set, Fault.GONE, 0.05)
        await asyncio.wait_for(waiting, 2)
        assert faults.active(Fault.GONE)
        assert not faults.active(Fault.SILENT)
        await asyncio.wait_for(faults.until(Fault.GONE, active=False), 2)
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
        await asyncio.wait_for(waiting, 2)

    asyncio.run(go())
