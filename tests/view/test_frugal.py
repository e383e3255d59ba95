"""Readers that fetch little ahead, and what a person says of them."""

from __future__ import annotations

from distrl.broker.client_settings import check_client, passed
from distrl.config import load
from distrl.view.frugal import AHEAD_KB, FETCH_BYTES, frugal


def test_readers_fetch_little_ahead_and_the_client_takes_it() -> None:
    kafka = frugal(load(environ={})).kafka
    check_client(kafka)
    made = passed(kafka, {"group.id": "any"})
    assert (made["queued.max.messages.kbytes"], made["fetch.message.max.bytes"]) == (str(AHEAD_KB), str(FETCH_BYTES))


def test_what_a_person_has_set_is_kept() -> None:
    given = load(environ={}, sets=["kafka.client.fetch.message.max.bytes=2000000", "kafka.client.client.rack=a"])
    client = frugal(given).kafka.client
    assert client["fetch.message.max.bytes"] == "2000000"
    assert client["client.rack"] == "a"
    assert "queued.max.messages.kbytes" not in given.kafka.client
