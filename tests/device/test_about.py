from __future__ import annotations

from distrl import config
from distrl.device.about import UNKNOWN, look
from distrl.device.server import AdbServer
from simphone.faults import Fault

from device.conftest import StartPhones, given_time, hasty


def test_phones_that_answer_that_are_silent_and_that_nobody_knows_are_told_apart(
    adb: AdbServer, start_phones: StartPhones, timeouts: config.DeviceSettings
) -> None:
    well, silent = start_phones(2)
    adb.connect(silent.address)
    silent.faults.set(Fault.SILENT)
    named = timeouts.model_copy(update={"addresses": (well.address, silent.address, "127.0.0.1:1")})
    width, height = well.machine.size

    def are_told_apart(seconds: float) -> None:
        found = {each.serial: each for each in look(adb, hasty(named, seconds)) if each.serial in named.addresses}
        assert (found[well.address].state, found[well.address].size) == ("device", f"{width}x{height}")
        assert found[well.address].focus == "com.sim.launcher/com.sim.launcher.Home"
        assert found[well.address].android
        assert (found[silent.address].size, found["127.0.0.1:1"].state) == ("", UNKNOWN)
        assert f"took longer than {seconds:g} s" in found[silent.address].fault
        assert "127.0.0.1:1" in found["127.0.0.1:1"].fault

    given_time(are_told_apart)


def test_a_locked_phone_says_so(adb: AdbServer, start_phones: StartPhones, timeouts: config.DeviceSettings) -> None:
    (phone,) = start_phones(1)
    adb.connect(phone.address)
    phone.faults.set(Fault.LOCKED)
    (found,) = [each for each in look(adb, timeouts) if each.serial == phone.address]
    assert found.fault == "it is locked, and only a person can unlock it"
    assert found.size


def test_a_phone_that_the_server_knows_is_shown_though_nobody_named_it(
    adb: AdbServer, start_phones: StartPhones, timeouts: config.DeviceSettings
) -> None:
    (phone,) = start_phones(1)
    adb.connect(phone.address)
    assert phone.address in {each.serial for each in look(adb, timeouts)}
