"""When a client counts as one that has forgotten every broker, by statistics as librdkafka makes them."""

from __future__ import annotations

import json

from distrl.broker.known_brokers import FORGOTTEN_S, KnownBrokers

BOOTSTRAP = {"state": "INIT", "source": "configured"}
LEARNED = {"state": "UP", "source": "learned"}
COORDINATOR = {"state": "UP", "source": "logical"}


def look(watched: KnownBrokers, *brokers: dict[str, str]) -> bool:
    """Whether the client counts as forgetful after these statistics."""
    given = watched.settings()["stats_cb"]
    assert callable(given)
    given(json.dumps({"brokers": {f"broker-{at}": broker for at, broker in enumerate(brokers)}}))
    return watched.forgotten


def test_a_client_that_knows_no_broker_for_long_has_forgotten_them() -> None:
    watched = KnownBrokers(FORGOTTEN_S / 2)
    assert not watched.forgotten
    assert [look(watched, COORDINATOR) for _ in range(4)] == [False, False, True, True]
    assert not look(watched, COORDINATOR, BOOTSTRAP)
    assert not look(watched)


def test_a_client_whose_brokers_are_away_still_knows_them() -> None:
    watched = KnownBrokers(FORGOTTEN_S)
    assert watched.connected
    assert [look(watched, BOOTSTRAP) for _ in range(4)] == [False] * 4
    assert not watched.connected
    assert not look(watched, BOOTSTRAP, LEARNED)
    assert watched.connected
