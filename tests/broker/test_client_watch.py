"""When a client counts as stuck, by statistics as librdkafka makes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from distrl.broker.client_watch import FORGOTTEN_S, LONG_S, STILL_S, ClientWatch
from distrl.config import KafkaSettings

TOPIC = "distrl.r.tasks"
BOOTSTRAP = {"state": "INIT", "source": "configured", "nodeid": -1}
LEARNED = {"state": "UP", "source": "learned", "nodeid": 1}
ANOTHER = {"state": "TRY_CONNECT", "source": "learned", "nodeid": 2}
COORDINATOR = {"state": "UP", "source": "logical", "nodeid": -1}
READING = "active"


def partition(number: int, broker: int = 1, leader: int = 1, fetch_state: str = READING) -> dict[str, Any]:
    return {"partition": number, "broker": broker, "leader": leader, "fetch_state": fetch_state}


def look(watch: ClientWatch, *brokers: dict[str, Any], partitions: tuple[dict[str, Any], ...] = ()) -> str:
    """What is wrong with the client after these statistics."""
    given = watch.settings()["stats_cb"]
    assert callable(given)
    found = {
        "brokers": {f"broker-{at}": broker for at, broker in enumerate(brokers)},
        "topics": {TOPIC: {"partitions": {str(each["partition"]): each for each in partitions}}},
    }
    given(json.dumps(found))
    return watch.stuck


def watching(look_s: float, before: ClientWatch | None = None, **client: str) -> ClientWatch:
    kafka = KafkaSettings.model_validate({"client": {name.replace("_", "."): value for name, value in client.items()}})
    return ClientWatch(kafka, TOPIC, lambda: {0, 1}, look_s, before)


def test_a_client_that_knows_no_broker_for_long_has_forgotten_them() -> None:
    watch = watching(FORGOTTEN_S / 2)
    assert not watch.stuck
    assert [bool(look(watch, COORDINATOR)) for _ in range(4)] == [False, False, True, True]
    assert watch.stuck == "has forgotten every broker"
    assert not look(watch, COORDINATOR, BOOTSTRAP)
    assert not look(watch)


def test_a_client_whose_brokers_are_away_still_knows_them() -> None:
    watch = watching(FORGOTTEN_S)
    assert watch.connected
    assert [look(watch, BOOTSTRAP) for _ in range(4)] == [""] * 4
    assert not watch.connected
    assert not look(watch, BOOTSTRAP, LEARNED)
    assert watch.connected


def test_a_partition_that_is_asked_of_another_broker_than_its_leader() -> None:
    watch, wrong = watching(STILL_S), (partition(0), partition(7, broker=2))
    assert [look(watch, LEARNED, partitions=wrong) for _ in range(2)] == [
        "",
        "asks broker 2 for distrl.r.tasks[7], which broker 1 leads",
    ]
    assert not look(watch, LEARNED, partitions=(partition(7),))


@pytest.mark.parametrize(
    "each",
    [partition(0, broker=2, leader=-1), partition(0, broker=-1), partition(0)],
    ids=["no leader", "no broker yet", "the leader"],
)
def test_a_partition_between_two_leaders_is_waited_for(each: dict[str, Any]) -> None:
    watch = watching(STILL_S)
    assert [look(watch, LEARNED, partitions=(each,)) for _ in range(4)] == [""] * 4


def test_who_reads_from_the_nearest_replica_may_ask_another_broker() -> None:
    watch = watching(STILL_S, client_rack="a")
    assert [look(watch, LEARNED, partitions=(partition(0, broker=2),)) for _ in range(4)] == [""] * 4


def test_a_partition_that_is_given_and_not_read() -> None:
    watch, wrong = watching(STILL_S), (partition(0), partition(1, fetch_state="offset-wait"))
    assert [look(watch, LEARNED, partitions=wrong) for _ in range(2)] == ["", "does not read distrl.r.tasks[1]"]
    assert not look(watch, LEARNED, partitions=(partition(0), partition(1)))


def test_a_partition_that_is_not_given_or_whose_brokers_are_away_is_not_missed() -> None:
    watch = watching(STILL_S)
    others, away = (partition(2, fetch_state="none"),), (partition(1, fetch_state="validate-epoch-wait"),)
    assert [look(watch, LEARNED, partitions=others) for _ in range(4)] == [""] * 4
    assert [look(watch, BOOTSTRAP, partitions=away) for _ in range(4)] == [""] * 4
    led_by_another = (partition(1, broker=2, leader=2, fetch_state="offset-wait"),)
    assert [look(watch, LEARNED, ANOTHER, partitions=led_by_another) for _ in range(4)] == [""] * 4


def test_each_partition_has_a_time_of_its_own() -> None:
    """As brokers are started again one after the other."""
    watch = watching(STILL_S)
    said = [look(watch, LEARNED, partitions=(partition(at % 2, broker=2),)) for at in range(4)]
    assert said == [""] * 4


def test_where_replacing_does_not_help_it_is_done_more_and_more_seldom() -> None:
    def looks_until_stuck(watch: ClientWatch) -> int:
        return next(at for at in range(1, 1000) if look(watch, LEARNED, partitions=(partition(0, broker=2),)))

    watches = [watching(STILL_S)]
    waited = [looks_until_stuck(watches[-1])]
    for _ in range(7):
        watches.append(watching(STILL_S, watches[-1]))
        waited.append(looks_until_stuck(watches[-1]))
    assert waited == [2, 3, 5, 9, 17, 33, 65, 65]
    for _ in range(int(LONG_S / STILL_S)):
        look(watches[-1], LEARNED, partitions=(partition(0),))
    assert looks_until_stuck(watching(STILL_S, watches[-1])) == 2
