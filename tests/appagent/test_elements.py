from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from xml.sax.saxutils import quoteattr

import pytest
from distrl.appagent.elements import LONGEST_NAME, LONGEST_TEXT, UnreadableError, screen_of
from hypothesis import given
from hypothesis import strategies as st

SIZE = (1080, 2400)


def node(inner: str = "", **said: str) -> str:
    told = {"class": "android.widget.TextView", "package": "com.example", "index": "0"} | {
        name.replace("_", "-"): value for name, value in said.items()
    }
    return f"<node {' '.join(f'{name}={quoteattr(value)}' for name, value in told.items())}>{inner}</node>"


def dump(*nodes: str) -> bytes:
    return f"<?xml version='1.0' encoding='UTF-8' ?><hierarchy>{''.join(nodes)}</hierarchy>".encode()


def test_what_reacts_is_listed_what_is_clicked_first() -> None:
    found = screen_of(
        dump(
            node(bounds="[0,0][1080,100]", text="title"),
            node(bounds="[0,100][1080,300]", focusable="true", content_desc="field"),
            node(bounds="[0,300][500,400]", clickable="true", text="ok", resource_id="com.example:id/ok"),
            node(bounds="[0,500][1080,2400]", scrollable="true"),
        ),
        SIZE,
        9,
    )
    assert found.package == "com.example"
    assert [(each.text, each.box) for each in found.elements] == [
        ("ok", (0, 300, 500, 400)),
        ("field", (0, 100, 1080, 300)),
        ("", (0, 500, 1080, 2400)),
    ]
    assert found.elements[0].name == "com.example:id/ok #0"


def test_words_within_a_row_are_the_rows() -> None:
    words = node(bounds="[0,0][10,10]", text="wifi") + node(bounds="[0,10][10,20]", text="off now")
    (row,) = screen_of(dump(node(words, bounds="[0,0][900,90]", clickable="true")), SIZE, 9).elements
    assert row.text == "wifi off now"


def test_a_switch_says_whether_it_is_on() -> None:
    each = {"bounds": "[0,0][90,90]", "clickable": "true", "checkable": "true"}
    for state in ("true", "false"):
        (found,) = screen_of(dump(node(checked=state, **each)), SIZE, 9).elements
        assert found.on is (state == "true")


def test_two_in_one_place_are_one() -> None:
    inner = node(bounds="[10,10][90,90]", clickable="true", text="inner")
    found = screen_of(dump(node(inner, bounds="[0,0][100,100]", clickable="true", text="outer")), SIZE, 9)
    assert [each.text for each in found.elements] == ["outer"]


@pytest.mark.parametrize(
    "bounds", ["[0,0][0,50]", "[2000,0][2100,50]", "[-50,-50][0,0]", "nonsense", "", "[0,0][99999999999,1]"]
)
def test_what_is_nowhere_on_the_screen_is_left_out(bounds: str) -> None:
    assert screen_of(dump(node(bounds=bounds, clickable="true")), SIZE, 9).elements == ()


def test_the_part_on_the_screen_counts() -> None:
    (found,) = screen_of(dump(node(bounds="[-100,2300][200,2600]", clickable="true")), SIZE, 9).elements
    assert found.box == (0, 2300, 200, 2400)


def test_a_name_is_the_same_on_another_screen_and_what_is_useless_is_not_offered() -> None:
    def screen(left: int, gone: frozenset[str] = frozenset()) -> list[str]:
        icon = node(
            bounds=f"[{left},0][{left + 90},90]",
            clickable="true",
            resource_id="com.l:id/icon",
            content_desc="mail",
            index=str(left),
        )
        row = node(bounds="[0,900][500,990]", clickable="true", content_desc="a long text that says what it holds")
        return [each.name for each in screen_of(dump(node(icon + row, bounds="[0,0][9,9]")), SIZE, 9, gone).elements]

    assert screen(0) == screen(500)
    assert screen(0)[0] == "com.l:id/icon mail"
    assert screen(0, frozenset({"com.l:id/icon mail"})) == screen(0)[1:]


def test_a_tree_that_is_as_deep_and_as_full_as_may_be_is_read_in_time() -> None:
    began = time.thread_time()
    box = 'bounds="[0,0][9,9]" focusable="true"'
    screen_of(b"<hierarchy>" + f"<node {box}>".encode() * 40_000 + b"</node>" * 40_000 + b"</hierarchy>", SIZE, 9)
    assert time.thread_time() - began < 10


def test_no_more_than_asked_for() -> None:
    many = [node(bounds=f"[0,{at * 50}][50,{at * 50 + 40}]", clickable="true") for at in range(40)]
    assert len(screen_of(dump(*many), SIZE, 7).elements) == 7


def test_texts_are_cut_and_in_one_line() -> None:
    loud = node(bounds="[0,0][90,90]", clickable="true", text="a\u202e\n" * 900, resource_id="r" * 900)
    (found,) = screen_of(dump(loud), SIZE, 9).elements
    assert len(found.text) <= LONGEST_TEXT
    assert len(found.name) <= LONGEST_NAME
    assert found.text.isprintable()


@pytest.mark.parametrize(
    "xml",
    [
        b"", b"ERROR: could not get idle state.", b"<hierarchy/>", b"<hierarchy><node></hierarchy>", b"\xff\xfe",
        b'<!DOCTYPE x [<!ENTITY a "aaaa">]><hierarchy><node text="&a;"/></hierarchy>', b"<a>" * 5,
        b"<hierarchy>" + b"<node>" * 1_000_000,
        b'<?xml version="1.0" encoding="foo"?><hierarchy><node/></hierarchy>',
        b'<?xml version="1.0" encoding="gbk"?><hierarchy><node text="\xc4\xe3"/></hierarchy>',
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_hierarchy_is_unreadable(xml: bytes) -> None:
    with pytest.raises(UnreadableError):
        screen_of(xml, SIZE, 9)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_screen_or_unreadable(data: bytes) -> None:
    for xml in (data, dump(data.decode("utf-8", "replace"))):
        with suppress(UnreadableError):
            screen_of(xml, SIZE, 9)


def test_the_simulated_phones_screens_are_read() -> None:
    from phone_shell import with_shell
    from simphone.commands.screen import hierarchy
    from simphone.shell import Shell

    async def play(shell: Shell) -> None:
        await shell.run("am start -p com.sim.settings")
        xml = hierarchy(shell.phone)
        await asyncio.sleep(0)
        found = screen_of(xml, shell.phone.machine.size, 60)
        shown = shell.phone.machine.state()["data"]["settings"]["shown"][:4]
        on = shell.phone.machine.state()["data"]["settings"]["on"]
        assert found.package == "com.sim.settings"
        assert [(each.text, each.on) for each in found.elements] == [(name, name in on) for name in shown]

    with_shell(play)
