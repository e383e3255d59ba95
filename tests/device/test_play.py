"""One phone in a browser: the page's own requests, and those that it must not answer."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from distrl import config
from distrl.device.leases import Hold, Leases
from distrl.device.play import HOST, MOST_BODY, PLAYED, NoActionError, PlayServer, action_of, held
from distrl.device.session import AdbSession
from distrl.errors import ConfigError, DeviceError
from distrl.types import Action, ActionKind, Point
from hypothesis import given, settings
from hypothesis import strategies as st
from simphone.faults import Fault
from simphone.serve import SimulatedPhone
from waiting import WITHIN_S

from .conftest import hurried

JSON = {"Content-Type": "application/json"}
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), st.floats(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=4,
)  # fmt: skip
ASKED = st.fixed_dictionaries(
    {}, optional={"kind": st.one_of(st.sampled_from(sorted(ActionKind)), ANYTHING), "touch": ANYTHING, "lift": ANYTHING,
                  "text": ANYTHING}
)  # fmt: skip


@pytest.fixture
def played(session: AdbSession) -> Iterator[PlayServer]:
    with PlayServer(session) as server:
        yield server


class Browser:
    """What a browser that was given the address sends."""

    def __init__(self, played: PlayServer) -> None:
        there = urlsplit(played.address)
        assert there.hostname == HOST
        assert there.port is not None
        self.port, self.path = there.port, there.path

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, http.client.HTTPMessage]:
        connection = http.client.HTTPConnection(HOST, self.port, timeout=WITHIN_S)
        try:
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read(), answer.headers
        finally:
            connection.close()

    def act(self, **action: object) -> int:
        return self.ask("POST", f"{self.path}act", json.dumps(action).encode(), JSON)[0]


def test_the_first_phone_that_nobody_has_is_held_until_it_is_left(tmp_path: Path) -> None:
    leases = Leases(tmp_path, config.AdbSettings())
    worker = leases.take("a:1")
    assert isinstance(worker, Hold)
    with held(leases, ("a:1", "b:2", "c:3")) as serial:
        assert serial == "b:2"
        assert leases.take("b:2") == f"process {os.getpid()}"
        assert isinstance(leases.take("c:3"), Hold)
    assert leases.holder("b:2") == ""
    with pytest.raises(ZeroDivisionError), held(leases, ("b:2",)):
        raise ZeroDivisionError
    assert leases.holder("b:2") == ""
    with pytest.raises(DeviceError, match=f"a:1 is held by process {os.getpid()}"), held(leases, ("a:1",)):
        raise AssertionError


def test_the_page_shows_the_phone_and_loads_nothing_else(played: PlayServer, phone: SimulatedPhone) -> None:
    browser = Browser(played)
    status, page, headers = browser.ask("GET", browser.path)
    assert status == 200
    nonces = set(re.findall(r'nonce="([^"]+)"', page.decode()))
    assert len(nonces) == 1
    assert f"script-src 'nonce-{nonces.pop()}'" in headers["Content-Security-Policy"]
    assert not re.search(r"https?://", page.decode())
    status, screen, headers = browser.ask("GET", f"{browser.path}screen.png")
    assert (status, screen, headers["Content-Type"]) == (200, phone.machine.png(), "image/png")


def test_every_gesture_of_the_page_moves_the_phone(played: PlayServer, phone: SimulatedPhone) -> None:
    browser = Browser(played)
    width, height = phone.machine.size
    icon = next(element for element in phone.machine.elements() if element.label == "browser")
    place = [(icon.box[0] + icon.box[2]) / 2 / width, (icon.box[1] + icon.box[3]) / 2 / height]
    assert browser.act(kind="tap", touch=place) == 204
    assert phone.machine.focus().startswith("com.sim.browser/")
    field = phone.machine.elements()[1].box
    browser.act(kind="tap", touch=[(field[0] + field[2]) / 2 / width, (field[1] + field[3]) / 2 / height])
    assert browser.act(kind="type", text="red lamp") == 204
    assert phone.machine.state()["typed"] == "red lamp"
    assert browser.act(kind="enter") == 204
    results = phone.machine.focus()
    assert browser.act(kind="swipe", touch=[0.5, 0.8], lift=[0.5, 0.2]) == 204
    assert browser.act(kind="back") == 204
    assert phone.machine.focus() != results
    assert browser.act(kind="home") == 204
    assert phone.machine.focus().startswith("com.sim.launcher/")


def test_who_does_not_know_the_word_or_comes_by_another_name_finds_nothing(played: PlayServer) -> None:
    browser = Browser(played)
    for path in ("/", "/screen.png", "/x/", f"/{'x' * 22}/", browser.path[:-2] + "/", browser.path.upper(), "//"):
        assert browser.ask("GET", path)[0] == 404
    assert browser.ask("POST", "/act", b"{}", JSON)[0] == 404
    for name in ("evil.example", f"evil.example:{browser.port}", f"{HOST}:1", ""):
        assert browser.ask("GET", browser.path, headers={"Host": name})[0] == 404
        assert browser.ask("POST", f"{browser.path}act", b"{}", JSON | {"Host": name})[0] == 404
    assert browser.ask("GET", browser.path, headers={"Host": f"localhost:{browser.port}"})[0] == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", JSON, 400),
        (b'{"kind": "tap"}', JSON, 400),
        (b'{"kind": "tap", "touch": [2, 0]}', JSON, 400),
        (b'{"kind": "complete"}', JSON, 400),
        (b'{"kind": "home"}', {}, 415),
        (b'{"kind": "home"}', {"Content-Type": "text/plain"}, 415),
        (b" " * (MOST_BODY + 1), JSON, 413),
        (b"{}", JSON | {"Content-Length": "-1"}, 413),
        (b"{}", JSON | {"Content-Length": "99999999999999999999"}, 413),
        (json.dumps({"kind": "type", "text": "caf\u00e9"}).encode(), JSON, 409),
    ],
)
def test_what_is_no_action_does_nothing(
    played: PlayServer, phone: SimulatedPhone, body: bytes, headers: dict[str, str], status: int
) -> None:
    browser, before = Browser(played), phone.machine.state()
    got, why, _ = browser.ask("POST", f"{browser.path}act", body, headers)
    assert (got, bool(why)) == (status, True)
    assert phone.machine.state() == before


def test_a_phone_that_does_not_answer_is_reported_and_comes_back(
    played: PlayServer, session: AdbSession, phone: SimulatedPhone
) -> None:
    browser = Browser(played)
    phone.faults.set(Fault.SILENT)
    with hurried(session, 1.0):
        status, why, _ = browser.ask("GET", f"{browser.path}screen.png")
    assert (status, b"longer than 1 s" in why) == (503, True)
    phone.faults.clear()
    assert browser.ask("GET", f"{browser.path}screen.png")[0] == 200


@settings(deadline=None)
@given(st.one_of(ASKED, ANYTHING).map(lambda asked: json.dumps(asked).encode()) | st.binary(max_size=20))
def test_a_body_is_an_action_of_a_finger_or_refused(body: bytes) -> None:
    try:
        action = action_of(body)
    except NoActionError:
        return
    assert action.kind in PLAYED
    assert (action.touch is not None) is (action.kind in (ActionKind.TAP, ActionKind.SWIPE))
    assert isinstance(action.text, str)


def test_an_action_is_what_was_asked_for() -> None:
    swipe = action_of(b'{"kind": "swipe", "touch": [0, 0.5], "lift": [1, 1], "text": "not this"}')
    assert swipe == Action(ActionKind.SWIPE, Point(0.0, 0.5), Point(1.0, 1.0))
    assert action_of(b'{"kind": "type", "text": "a"}') == Action(ActionKind.TYPE, text="a")


def test_a_port_in_use_is_said(session: AdbSession) -> None:
    with socket.create_server((HOST, 0)) as taken, pytest.raises(ConfigError, match="cannot be opened"):
        PlayServer(session, taken.getsockname()[1])
