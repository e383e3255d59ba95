from __future__ import annotations

import ipaddress

import pytest
from distrl.addresses import MOST, expanded
from distrl.config import load
from distrl.errors import ConfigError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (["10.0.0.7:5555"], ["10.0.0.7:5555"]),
        (["10.0.0.254-10.0.1.1:5555"], ["10.0.0.254:5555", "10.0.0.255:5555", "10.0.1.0:5555", "10.0.1.1:5555"]),
        (["127.0.0.1:5555-5557"], ["127.0.0.1:5555", "127.0.0.1:5556", "127.0.0.1:5557"]),
        (["10.0.0.1-10.0.0.2:1-2"], ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "10.0.0.2:2"]),
        (["lab-3.phones:5555", "[fe80::1]:5555"], ["lab-3.phones:5555", "[fe80::1]:5555"]),
        (["127.0.0.1:2", "127.0.0.1:1-3"], ["127.0.0.1:2", "127.0.0.1:1", "127.0.0.1:3"]),
    ],
)
def test_what_is_written_is_expanded_in_order_and_each_address_once(written: list[str], meant: list[str]) -> None:
    assert list(expanded(written)) == meant


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("10.0.0.7", "names no port"),
        ("10.0.0.7:", "names no ports from 1"),
        ("10.0.0.7:0", "names no ports from 1"),
        ("10.0.0.7:1-65536", "names no ports from 1"),
        ("10.0.0.7:5555-", "names no ports from 1"),
        ("10.0.0.7:5555-5560-5570", "names no ports from 1"),
        ("10.0.0.7:５５５５", "names no ports from 1"),
        (":5555", "names no host"),
        ("-s:5555", "names no host"),
        ("a b:5555", "names no host"),
        ("fe80::1:5555", "names no host"),
        ("10.0.0.1-10.0.0:5555", "no range of IPv4"),
        ("10.0.0.1-10.0.0.256:5555", "no range of IPv4"),
        ("lab-10.0.0.9:5555", "no range of IPv4"),
        ("10.0.0.9-10.0.0.1:5555", "ends before it begins"),
        ("10.0.0.9:6-5", "ends before it begins"),
        ("10.0.0.0-10.255.255.255:5555", f"more than {MOST}"),
        ("0.0.0.0-255.255.255.255:1-65535", f"more than {MOST}"),
    ],
)
def test_what_is_malformed_or_absurd_is_refused_at_once_and_by_name(written: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        load(sets=[f"devices.addresses=['{written}']"], environ={})
    assert caught.value.where == "devices.addresses"
    assert written in caught.value.what


def test_many_small_ranges_are_counted_together() -> None:
    whole = [f"10.0.{block}.0-10.0.{block}.255:1" for block in range(4)]
    assert len(expanded(whole)) == MOST
    with pytest.raises(ValueError, match="more than"):
        expanded([*whole, "10.0.9.1:1"])


@given(st.ip_addresses(v=4), st.integers(0, 30), st.integers(1, 65_500), st.integers(0, 30))
def test_a_range_is_what_counting_gives(host: ipaddress.IPv4Address, hosts: int, port: int, ports: int) -> None:
    if int(host) + hosts > 2**32 - 1:
        return
    found = expanded([f"{host}-{host + hosts}:{port}-{port + ports}"])
    assert found == tuple(f"{host + i}:{port + k}" for i in range(hosts + 1) for k in range(ports + 1))
    assert expanded(found) == found


@given(st.text(max_size=40))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        found = expanded([text])
    except ValueError as error:
        said = str(error)
    else:
        assert 1 <= len(found) <= MOST
        return
    assert repr(text) in said
