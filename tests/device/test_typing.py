"""Any text reaches the phone as it is: by `input text` where that can type it, else through ADBKeyBoard."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from distrl.device.adb_protocol import Deadline
from distrl.device.errors import DeviceGone, DeviceRefused
from distrl.device.keyboard import (
    COMMANDS_PER_LINE,
    MAX_CHARACTERS,
    NOTE,
    PIECE_CHARACTERS,
    SERVICE,
    KeyboardService,
    UntypableError,
    broadcast_line,
)
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.types import Point
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from simphone.commands import dumpsys
from simphone.faults import Fault
from simphone.keyboards import OWN
from simphone.machine import FIELD_CHARACTERS, Event, Text
from simphone.serve import SimulatedPhone
from simphone.sh import parse
from waiting import until

from .conftest import StartPhones

CONTROLS = "".join(chr(code) for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\n")
AWKWARD = [
    "%s", "%", "s", " ", "'", '"', "\\", "; rm -rf /", "$(reboot)", "`id`", "&&", "|", "-p x", "--es msg", "\n", "=",
    "\u6f22\u5b57", "\ud55c", "\U0001f600", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "e\u0301", "\u202e",
]  # fmt: skip
ANY_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters=CONTROLS), max_size=60),
    st.lists(st.sampled_from(AWKWARD), max_size=12).map("".join),
)


@pytest.fixture
def phone(start_phones: StartPhones) -> SimulatedPhone:
    return start_phones(1, keyboard_service=True)[0]


@pytest.fixture
def events(phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What reaches the phone's machine: a field may cut it short and join its spaces later, this is what was typed."""
    seen: list[Event] = []
    monkeypatch.setattr(phone.machine, "apply", seen.append)
    return seen


def with_keyboard(session: AdbSession, way: str) -> AdbSession:
    return AdbSession(session.server, session.serial, session._devices.model_copy(update={"keyboard": way}))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ANY_TEXT, way=st.sampled_from(["auto", "service"]))
def test_the_phone_receives_what_was_sent_and_keeps_its_own_keyboard(
    session: AdbSession, phone: SimulatedPhone, events: list[Event], text: str, way: str
) -> None:
    events.clear()
    with_keyboard(session, way).type_text(text)
    assert [event.text for event in events if isinstance(event, Text)][-1:] == ([text] if text else [])
    assert len(events) <= 1 + text.count("%s") / COMMANDS_PER_LINE
    assert phone.keyboards.selected == OWN


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.text(max_size=5).filter(str.isprintable), control=st.sampled_from([*CONTROLS, "\ud800"]))
def test_control_characters_are_refused_whole_with_their_place(
    session: AdbSession, events: list[Event], before: str, control: str
) -> None:
    with pytest.raises(DeviceRefused, match=rf"character {len(before)} .*cannot be typed"):
        session.type_text(before + control + "after")
    assert events == []


def test_a_long_text_has_time_by_its_length(session: AdbSession, events: list[Event]) -> None:
    """Typed in pieces, each with the deadline of one operation: a phone types some hundred characters a second."""
    text = "".join(f"{number} % s " for number in range(200))
    session.type_text(text)
    typed = [event.text for event in events if isinstance(event, Text)]
    assert typed[-1] == text
    assert len(typed) >= len(text) / PIECE_CHARACTERS


@pytest.mark.parametrize("way", ["input", "auto", "service"])
def test_of_a_text_that_is_too_long_it_is_the_length_that_helps(session: AdbSession, way: str) -> None:
    with pytest.raises(DeviceRefused) as refused:
        with_keyboard(session, way).type_text("x" * (MAX_CHARACTERS + 1))
    assert refused.value.hint == "type less at once"


def test_a_text_that_is_too_long_is_refused_whole(session: AdbSession, events: list[Event]) -> None:
    with pytest.raises(DeviceRefused, match=f"at most {MAX_CHARACTERS}"):
        session.type_text("\u6f22" * (MAX_CHARACTERS + 1))
    assert events == []
    session.type_text("\u6f22" * MAX_CHARACTERS)
    assert events == [Text("\u6f22" * MAX_CHARACTERS)]


def test_a_phone_without_such_a_keyboard_says_what_to_install(
    adb: AdbServer, start_phones: StartPhones, session: AdbSession
) -> None:
    (bare,) = start_phones(1)
    adb.connect(bare.address)
    without = AdbSession(adb, bare.address, session._devices)
    before = bare.machine.state()
    with pytest.raises(DeviceRefused, match="is not an enabled keyboard") as refused:
        without.type_text("caf\u00e9")
    assert f"adb -P {adb.adb.port} -s {bare.address} install ADBKeyboard.apk" in refused.value.hint
    assert f"ime enable {SERVICE}" in refused.value.hint
    assert (bare.machine.state(), bare.keyboards.selected) == (before, OWN)
    without.type_text("cafe")


def test_a_person_may_have_no_keyboard_of_the_phone_touched(session: AdbSession, events: list[Event]) -> None:
    with pytest.raises(DeviceRefused, match="character 3") as refused:
        with_keyboard(session, "input").type_text("caf\u00e9")
    assert "devices.keyboard" in refused.value.hint
    assert events == []


@pytest.mark.parametrize(
    "form",
    [
        "  mCurId={0} mHaveConnection=true mBoundToMethod={1} mVisibleBound=true\n",
        "  mCurId={0}\n  mHaveConnection=true\n  mBoundToMethod={1}\n",
        "  boundToMethod=false\n  mBindingController:\n    mCurId={0}\n  mBoundToMethod={1}\n",
    ],
    ids=["before Android 15", "Android 15", "Android 16"],
)
def test_a_keyboard_is_waited_for_until_the_system_says_that_it_is_up(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    states = iter([(OWN, "true"), (SERVICE, "false"), (SERVICE, "true")])
    monkeypatch.setitem(dumpsys.SERVICES, "input_method", lambda phone, args: form.format(*next(states)))
    session.type_text("\u6f22")
    assert next(states, None) is None, "it was asked until then, and no more"


def test_a_phone_whose_owner_types_with_it_keeps_it(session: AdbSession, phone: SimulatedPhone) -> None:
    session.shell(["ime", "set", SERVICE])
    session.type_text("\u6f22")
    assert phone.keyboards.selected == SERVICE


def test_a_keyboard_that_a_failing_phone_kept_is_put_back_before_the_next_episode(
    adb: AdbServer, session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*intent: object) -> None:
        # Gone alone would do, but that its connections end a little later: silent, it executes nothing until then, not
        # the putting back either. Silent alone, it would execute that as soon as it answers again.
        phone.faults.set(Fault.SILENT)
        phone.faults.set(Fault.GONE)

    def is_put_back() -> bool:
        with suppress(DeviceError):  # until its port is open and the server has seen it
            adb.disconnect(phone.address)
            adb.connect(phone.address)
            session.put_back_keyboard()
        return phone.keyboards.selected == OWN

    with monkeypatch.context() as patch:
        patch.setattr(phone.keyboards, "heard", failing)
        with pytest.raises(DeviceGone):
            session.type_text("\u6f22")
    assert phone.keyboards.selected == SERVICE
    phone.faults.clear()
    until(is_put_back)
    session.shell(["ime", "set", SERVICE])
    session.put_back_keyboard()
    assert phone.keyboards.selected == SERVICE, "it is put back once"


def test_a_keyboard_that_a_killed_process_has_left_is_put_back_by_the_next(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed selected for good, as the next process took it for the phone's own."""

    def killed(self: KeyboardService, deadline: Deadline) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(KeyboardService, "put_back", killed)
        with pytest.raises(KeyboardInterrupt):
            session.type_text("caf\u00e9")
    assert phone.keyboards.selected == SERVICE
    later = AdbSession(session.server, session.serial, session._devices)
    later.put_back_keyboard()
    assert phone.keyboards.selected == OWN
    assert later.run(["cat", NOTE]).code != 0


def test_a_keyboard_that_a_person_has_selected_since_is_left(session: AdbSession, phone: SimulatedPhone) -> None:
    session.shell(f"echo {OWN} > {NOTE}")
    theirs = "com.example.keys/.Own"
    session.shell(f"settings put secure default_input_method {theirs}")
    session.put_back_keyboard()
    assert phone.keyboards.selected == theirs
    assert session.run(["cat", NOTE]).code != 0


def test_a_keyboard_that_is_no_longer_there_is_given_up_and_the_text_typed(
    session: AdbSession, phone: SimulatedPhone, events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    phone.keyboards.enabled = (SERVICE,)
    session.type_text("\u6f22")
    assert events == [Text("\u6f22")]
    assert f"keeps {SERVICE}" in caplog.text
    caplog.clear()
    session.put_back_keyboard()
    assert SERVICE not in caplog.text


def test_a_field_holds_what_was_typed_as_fields_do_and_the_screen_can_be_seen(
    session: AdbSession, phone: SimulatedPhone
) -> None:
    session.start_app("com.sim.browser")
    session.tap(Point(0.5, 0.25))
    assert phone.machine.state()["focused"]
    text = "caf\u00e9 \u6f22\u5b57\n\U0001f600 " + "x" * 300
    session.type_text(text)
    assert phone.machine.state()["typed"] == " ".join(text.split())[:FIELD_CHARACTERS]
    assert session.settle().png == phone.machine.png()


@pytest.fixture
def field(session: AdbSession, phone: SimulatedPhone) -> None:
    """A text field has the focus."""
    session.start_app("com.sim.browser")
    session.tap(Point(0.5, 0.25))
    assert phone.machine.state()["focused"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.lists(st.sampled_from(["%s", "% s", "a", " ", "'"]), min_size=1, max_size=120).map("".join))
def test_what_is_typed_is_what_the_field_holds_in_however_many_lines(
    session: AdbSession, phone: SimulatedPhone, field: None, text: str
) -> None:
    with_keyboard(session, "input").type_text(text)
    assert phone.machine.state()["typed"] == " ".join(text.split())[:FIELD_CHARACTERS]


def test_a_text_begins_anew_whatever_was_typed_before(session: AdbSession, phone: SimulatedPhone, field: None) -> None:
    session.type_text("%s" * COMMANDS_PER_LINE * 2)
    session.type_text("a")
    assert phone.machine.state()["typed"] == "a"
    session.key("HOME")
    assert phone.handset.entry == ""


@given(ANY_TEXT)
def test_the_shell_sees_one_command_and_nothing_of_the_text(text: str) -> None:
    (command,) = parse(broadcast_line(text))
    assert command.argv[:-1] == (
        "am",
        "broadcast",
        "-a",
        "ADB_INPUT_B64",
        "-p",
        "com.android.adbkeyboard",
        "--es",
        "msg",
    )
    assert base64.b64decode(command.argv[-1]).decode() == text


def test_half_a_character_is_named() -> None:
    with pytest.raises(UntypableError, match="a lone surrogate"):
        broadcast_line("\ud83d")
