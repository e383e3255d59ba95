"""`distrl view` on a real broker and store: what the API says of a run, and how its index follows the log."""

from __future__ import annotations

import hashlib
import http.client
import math
import sqlite3
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import factories
import pytest
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.rights.grant import grant
from distrl.rights.roles import ROLES
from distrl.runs.recorded import change, join, recorded
from distrl.store.objects import open_store
from distrl.train.roles import write_settings
from distrl.view import follow
from distrl.view.index import delete, reading
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from secured import Secured, over_tls
from view.asking import MOST_S, Answer, ask
from view.world import (
    APART_MS,
    BEGAN,
    DEMONSTRATIONS,
    DRAWN,
    GAMMAS,
    HOSTILE,
    JUDGED,
    UPDATES,
    World,
    episode,
    letter,
    png,
    publish,
)
from waiting import until

CHANGED = 0.75
"""A third gamma."""
TOKEN = "a-secret-of-the-tests"

pytestmark = pytest.mark.integration


def settings_of(broker: str, s3: settings.StoreSettings, cache: Path, run: str) -> Config:
    secret = s3.secret_key.get_secret_value() if s3.secret_key else None
    return Config.model_validate(
        {
            "run": f"{run}-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap": broker, "task_partitions": 3},
            "store": s3.model_dump() | {"secret_key": secret},
            "stack": {"cache": cache},
        }
    )


@pytest.fixture(scope="module")
def world(broker: str, s3: settings.StoreSettings, tmp_path_factory: pytest.TempPathFactory) -> World:
    return publish(settings_of(broker, s3, tmp_path_factory.mktemp("cache"), "view"))


class Served:
    """A server of some runs."""

    def __init__(self, runs: Runs, server: ViewServer) -> None:
        self.runs, self.port = runs, server.port

    def ready(self, run: str) -> None:
        assert self.runs.get(run).follower.caught_up.wait(MOST_S)

    def get(self, path: str, **headers: str) -> Answer:
        return ask(self.port, f"/api/{path}", **headers)


@pytest.fixture(scope="module")
def served(world: World) -> Iterator[Served]:
    with serving(world.config) as found:
        found.ready(world.config.run)
        yield found


class serving:  # noqa: N801
    def __init__(self, *configs: Config) -> None:
        by_name = {each.run: each for each in configs}
        self._runs = Runs(lambda: list(by_name), by_name.__getitem__)
        self._server = ViewServer(self._runs, "127.0.0.1", 0, None)

    def __enter__(self) -> Served:
        self._runs.__enter__()
        self._server.__enter__()
        return Served(self._runs, self._server)

    def __exit__(self, *error: object) -> None:
        self._server.__exit__(None, None, None)
        self._runs.__exit__(None, None, None)


@pytest.fixture
def run(world: World) -> str:
    return f"runs/{world.config.run}"


def test_the_list_of_runs_counts_what_the_log_holds(served: Served, world: World) -> None:
    (row,) = served.get("runs").json["runs"]
    wanted = {"run": world.config.run, "algorithm": "aride", "version": 2, "updates": UPDATES, "trajectories": 24}
    assert {name: row[name] for name in wanted} == wanted
    assert (row["evaluations"], row["demonstrations"], row["dead_letters"]) == (16, 1, 1)
    assert (row["success"]["version"], row["success"]["rate"], row["success"]["n"]) == (2, 0.75, 8)
    assert row["success"]["low"] < 0.75 < row["success"]["high"]
    assert row["first_at"] == BEGAN


def test_a_run_says_what_its_lists_may_be_filtered_by(served: Served, run: str) -> None:
    found = served.get(run).json
    assert found["families"] == [HOSTILE, "alarms", "toggle"]
    assert found["outcomes"] == {"success": 6, "failure": 12, "interrupted": 6}
    assert len(found["devices"]) == 4
    assert (found["indexing"], found["notes"]) == (None, [])


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [
        ("topic=trajectories&sort=finished_at&order=asc&limit=3", [0, 1, 2]),
        ("topic=trajectories&limit=2&offset=1", [22, 21]),
        ("topic=trajectories&outcome=interrupted&order=asc&limit=2", [3, 7]),
        ("topic=trajectories&device=127.0.0.1:26001&outcome=success&order=asc", [4, 16]),
        ("topic=trajectories&version=2&family=alarms&order=asc&limit=9", [17, 19, 21, 23]),
        ("topic=trajectories&text=alarm%207%20to%20100%25", [7]),
        ("topic=trajectories&text=task_7", []),  # % and _ stand for themselves
        (f"topic=trajectories&from={BEGAN + 5 * APART_MS}&to={BEGAN + 7 * APART_MS}&order=asc", [5, 6]),
        ("topic=trajectories&from_offset=8&to_offset=10&order=asc", [8, 9]),
        ("topic=trajectories&mode=wrong%20goal&order=asc&limit=2", [1, 2]),
        ("topic=demonstrations", [0]),
    ],
)
def test_trajectories_are_filtered_sorted_and_paged(served: Served, run: str, asked: str, numbers: list[int]) -> None:
    found = served.get(f"{run}/trajectories?{asked}").json
    assert [row["offset"] for row in found["rows"]] == numbers
    assert found["total"] >= len(numbers)


def test_a_page_says_how_many_there_are_and_is_bounded(served: Served, run: str) -> None:
    found = served.get(f"{run}/trajectories?limit=1&topic=trajectories").json
    assert (found["total"], len(found["rows"])) == (24, 1)
    assert served.get(f"{run}/trajectories?limit=100000").status == 200
    refused = served.get(f"{run}/trajectories?sort=offset;DROP%20TABLE%20episodes")
    assert (refused.status, set(refused.json)) == (400, {"error", "fix"})
    assert "finished_at" in refused.json["fix"]


def test_lag_is_of_the_newest_version_at_the_end_of_an_episode(served: Served, run: str) -> None:
    rows = served.get(f"{run}/trajectories?topic=trajectories&order=asc").json["rows"]
    assert {row["lag"] for row in rows} == {0}
    assert [row["version_last"] for row in rows] == [number // 8 for number in range(24)]


def test_an_episode_has_its_steps_its_neighbours_and_the_version_that_learned_it(
    served: Served, run: str, world: World
) -> None:
    found = served.get(f"{run}/trajectories/0:9").json
    played = world.trajectories[9]
    assert (found["task_id"], found["outcome"], found["previous"], found["next"]) == (
        "task-9",
        "failure",
        "0:8",
        "0:10",
    )
    assert found["learned_in"] == 1  # update 2 folds it, and version 1 is of update 3
    assert found["unmet"] == [{"path": "clock.alarms", "rule": "equals", "wanted": '["8 am"]', "found": "[]"}]
    assert found["judgements"] == [{"source": "ground-truth", "outcome": "failure", "reason": ""}]
    tap, swipe, typed, done = found["steps"]
    assert (tap["action"], swipe["action"]["lift"]) == (
        {"kind": "tap", "touch": [0.25, 0.5], "lift": None, "text": ""}, [0.5, 0.1],
    )  # fmt: skip
    assert (typed["action"]["text"], done["action"]["kind"]) == (HOSTILE, "complete")
    assert [step["logprob"] for step in found["steps"]] == [-0.0, -0.5, -1.0, -1.5]
    assert [step["behind"] for step in found["steps"]] == [0] * 4
    assert [step["entropy"] for step in found["steps"]] == [None, 0.25, 0.5, 0.75]
    assert (tap["value"], tap["advantage"], tap["priority"], tap["drawn"]) == (None, None, None, None)
    assert found["draws"] == {"recorded": True, "updates": 0, "shown": 0}
    assert tap["image"].endswith(f"trajectories/0:9/0?sha256={played.steps[0].screenshot.sha256}")


def test_a_step_has_what_the_learner_held_of_it_and_when_it_was_drawn(served: Served, run: str) -> None:
    found = served.get(f"{run}/trajectories/0:{DRAWN}").json
    assert found["draws"] == {"recorded": True, "updates": 2, "shown": 2}
    first, second, odd, last = found["steps"]
    assert (first["value"], first["advantage"], first["priority"]) == (0.5, -0.25, (UPDATES - 1) / 2)
    assert (first["drawn"]["u"], first["drawn"]["times"]) == ([UPDATES - 1, UPDATES - 2],) * 2
    assert second["drawn"] is last["drawn"] is None
    assert (odd["value"], odd["advantage"], odd["td_error"], odd["ratio"], odd["priority"]) == (*[None] * 4, 0.0)
    (version, *_) = served.get(f"{run}/trajectories?topic=evaluations&limit=1").json["rows"]
    evaluation = served.get(f"{run}/evaluations/{version['partition']}:{version['offset']}").json
    assert evaluation["draws"] is None


def test_what_judges_said_of_an_episode_is_beside_it_and_is_not_awaited_with_it(served: Served, run: str) -> None:
    found = served.get(f"{run}/verdicts/trajectories/0:{DRAWN}").json
    assert found["verdicts"] == [
        {"source": source, "outcome": outcome.value, "reason": reason} for source, outcome, reason in JUDGED
    ]
    assert found["spoilt"] == 1
    assert served.get(f"{run}/verdicts/trajectories/0:{DRAWN - 1}").json == {"verdicts": [], "spoilt": 0}
    assert served.get(f"{run}/verdicts/evaluations/0:{DRAWN}").json["verdicts"] == []
    assert served.get(f"{run}/verdicts/nonesuch/0:1").status == 404
    assert "verdicts" not in served.get(f"{run}/trajectories/0:{DRAWN}").json


def test_hostile_text_comes_out_as_it_is_and_as_nothing_else(served: Served, run: str) -> None:
    found = served.get(f"{run}/trajectories/0:5")
    assert found.headers["content-type"] == "application/json"
    assert (found.json["instruction"], found.json["note"], found.json["reason"]) == (HOSTILE, HOSTILE, HOSTILE)
    (row,) = served.get(f"{run}/trajectories?text={quote(HOSTILE)}&topic=trajectories").json["rows"]
    assert row["instruction"] == HOSTILE
    for name in ("device", "worker", "suite", "family"):
        assert served.get(f"{run}/trajectories?{name}={quote(HOSTILE)}").json["rows"] == [row]
    task = served.get(f"{run}/tasks/{quote('evil/' + HOSTILE, safe='')}").json
    assert (task["task"]["task_id"], len(task["attempts"])) == ("evil/" + HOSTILE, 1)


def test_the_attempts_at_a_task_are_those_of_every_topic(served: Served, run: str) -> None:
    found = served.get(f"{run}/tasks/validation-1").json
    assert [(each["topic"], each["evaluated"], each["outcome"]) for each in found["attempts"]] == [
        ("evaluations", 0, "failure"), ("evaluations", 2, "success"),
    ]  # fmt: skip


def test_an_image_is_the_stored_one_and_is_asked_for_once(served: Served, run: str) -> None:
    shot = png(9)
    episode = served.get(f"{run}/trajectories/0:9").json
    address = episode["steps"][2]["image"]
    assert {each["image"] for each in (*episode["steps"], episode["final"])} == {address}, "the screen that all show"
    found = ask(served.port, f"/{address}")
    assert (found.status, found.body, found.headers["content-type"]) == (200, shot, "image/png")
    assert "immutable" in found.headers["cache-control"]
    etag = found.headers["etag"]
    assert etag == f'"{hashlib.sha256(shot).hexdigest()}"'
    again = ask(served.port, f"/{address}", If_None_Match=etag)
    assert (again.status, again.body) == (304, b"")
    assert "immutable" not in served.get(f"{run}/images/trajectories/0:9/final").headers["cache-control"]


@pytest.mark.parametrize(
    "path",
    [
        "runs/no-such-run", "{run}/versions/99", "{run}/trajectories/0:99999", "{run}/trajectories/7:0",
        "{run}/settings/0:0", "{run}/trajectories/none", "{run}/tasks/no-such-task", "nothing",
        "{run}/trajectories.dlq/0:99", "{run}/trajectories.dlq/x",
        "{run}/images/trajectories/0:9/4", "{run}/images/trajectories/0:9/-1",
    ],
)  # fmt: skip
def test_what_is_not_there_is_404_and_says_what_to_do(served: Served, run: str, path: str) -> None:
    found = served.get(path.format(run=run))
    assert found.status == 404, found.body
    assert found.json["error"]
    assert found.json["fix"]


def test_series_have_columns_of_equal_length(served: Served, run: str) -> None:
    found = served.get(f"{run}/series").json
    assert found["success"]["version"] == [0, 2]
    assert found["success"]["rate"] == [0.25, 0.75]
    assert found["success"]["split"] == "validation"
    assert found["updates"]["update"] == list(range(UPDATES))
    assert found["updates"]["metrics"] == {"policy_loss": [1 / (u + 1) for u in range(UPDATES)]}
    assert sum(found["collection"]["episodes"]) == 24
    for name in ("success", "updates", "collection", "reloads", "versions"):
        lengths = {len(each) for each in found[name].values() if isinstance(each, list)}
        assert len(lengths) == 1, name
    later = served.get(f"{run}/series?from={BEGAN + 10 * APART_MS}").json
    assert later["versions"]["version"] == [2]


def test_versions_come_newest_first_with_what_they_learned(served: Served, run: str) -> None:
    found = served.get(f"{run}/versions?limit=2").json
    assert (found["total"], [row["version"] for row in found["rows"]]) == (3, [2, 1])
    one = served.get(f"{run}/versions/1").json
    assert (one["parent"], one["updates"], one["trajectories"]) == (0, 4, 16)
    assert one["parent_sha256"] == hashlib.sha256(b"0").hexdigest()
    learned = {"from": 8, "to": 16, "episodes": 8, "success": 2, "suites": {"home": 8}}
    none = {"from": 1, "to": 1, "episodes": 0, "success": 0, "suites": {}}
    assert one["learned_from"] == {"trajectories": learned, "demonstrations": none}
    demonstrated = {"from": 0, "to": DEMONSTRATIONS, "episodes": 1, "success": 1, "suites": {"home": 1}}
    assert served.get(f"{run}/versions/0").json["learned_from"]["demonstrations"] == demonstrated
    two = served.get(f"{run}/versions/2").json
    assert [(each["split"], each["rate"]) for each in two["evaluations"]] == [("validation", 0.75)]
    assert [each["settings"]["algorithm.gamma"] for each in (one, two)] == list(GAMMAS)


def test_failures_devices_and_dead_letters(served: Served, run: str) -> None:
    failed = served.get(f"{run}/failures?version=1").json
    assert (failed["n"], failed["classes"][0]["name"]) == (4, "wrong goal")
    assert failed["conditions"][0]["name"] == "clock.alarms equals"
    assert len(failed["classes"][0]["examples"]) == 4
    phones = served.get(f"{run}/devices").json["rows"]
    assert sum(each["episodes"] for each in phones) == 24 + 16
    assert all(each["step_ms"]["median"] <= each["step_ms"]["p95"] for each in phones)
    letters = served.get(f"{run}/dead-letters").json
    assert (letters["total"], letters["rows"][0]["from_offset"], letters["rows"][0]["copies"]) == (1, 77, 2)
    assert HOSTILE.split("\x00")[0] in letters["rows"][0]["reason"]
    (row,) = letters["rows"]
    for place in ("0:0", "0:1"):  # the record and its copy
        assert served.get(f"{run}/trajectories.dlq/{place}").json == row


def test_a_record_that_comes_is_announced_and_listed(served: Served, world: World, run: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=MOST_S)
    connection.request("GET", f"/api/{run}/events")
    stream = connection.getresponse()
    assert stream.getheader("content-type", "").startswith("text/event-stream")
    assert stream.readline() == b"event: changed\n"
    before = stream.readline()
    with RecordProducer(world.config, "a-test") as producer:
        letter(world.config, producer, 5)
    lines = iter(stream.readline, b"")
    after = next(line for line in lines if line.startswith(b"data:"))
    assert b'"dead_letters":1' in before
    assert b'"dead_letters":2' in after
    connection.close()
    assert served.get(f"{run}/dead-letters").json["total"] == 2


def test_a_list_of_runs_reads_each_to_its_end_and_follows_none(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[LogReader] = []
    closed: list[LogReader] = []

    class Counted(LogReader):
        def __enter__(self) -> LogReader:
            opened.append(self)
            return super().__enter__()

        def __exit__(self, *error: Any) -> None:
            super().__exit__(*error)
            closed.append(self)

    monkeypatch.setattr(follow, "LogReader", Counted)
    monkeypatch.setattr(follow, "FRESH_S", math.inf)
    stack = world.config.stack.model_copy(update={"cache": tmp_path})

    def listed(served: Served) -> None:
        """Ask for the list until no run is read any more, and all readers are closed."""
        until(
            lambda: not served.get("runs").json["runs"][0]["reading"] and len(closed) >= len(opened),
            lambda: f"{len(opened)} to be closed, as {len(closed)} are",
        )

    with serving(world.config.model_copy(update={"stack": stack})) as served:
        listed(served)
        assert len(opened) == len(follow.INDEXED)
        monkeypatch.setattr(follow, "FRESH_S", 0.0)
        assert served.get("runs").json["runs"][0]["reading"]
        monkeypatch.setattr(follow, "FRESH_S", math.inf)
        listed(served)
        assert len(opened) == 2 * len(follow.INDEXED)


def overwrite(path: Path) -> None:
    """Every page of it, wherever it lies."""
    for each in (path, path.with_name(f"{path.name}-wal")):
        if each.exists():
            with each.open("r+b") as file:
                file.write(b"\xa5" * each.stat().st_size)


@pytest.mark.parametrize("spoil", [delete, overwrite])
def test_an_index_that_is_gone_while_it_is_served_is_made_again(
    served: Served, world: World, run: str, spoil: Callable[[Path], object]
) -> None:
    follower = served.runs.get(world.config.run).follower
    before = follower.generation
    spoil(follower.path)

    def indexed() -> bool:
        assert served.get(f"{run}/trajectories").status in (200, 503)
        return follower.generation != before and follower.indexing is None

    until(indexed, "another index")
    assert served.get(f"{run}/trajectories?topic=trajectories").json["total"] == 24


@pytest.mark.parametrize("change", ["sha256 = 'of another record'", "next = next + 5"])
def test_an_index_of_records_that_the_broker_has_lost_is_made_again(
    world: World, run: str, tmp_path: Path, change: str
) -> None:
    """While nobody looked, the log lost its tail: it has another record there, or ends earlier."""
    stack = world.config.stack.model_copy(update={"cache": tmp_path})
    config = world.config.model_copy(update={"stack": stack})
    with serving(config) as served:
        served.ready(config.run)
        path = served.runs.get(config.run).follower.path
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO names VALUES ('family', 'of a lost record')")
        connection.execute(f"UPDATE watermarks SET {change} WHERE topic = 'trajectories' AND sha256 IS NOT NULL")
    with serving(config) as served:
        served.ready(config.run)
        follower = served.runs.get(config.run).follower
        until(lambda: follower.generation and follower.indexing is None, "the index")
        assert served.get(f"{run}/trajectories?topic=trajectories").json["total"] == 24
    with closing(sqlite3.connect(path)) as connection:
        assert not connection.execute("SELECT 1 FROM names WHERE name = 'of a lost record'").fetchall()


def made_again(config: Config, names: Iterable[str] = TOPICS) -> None:
    """Delete topics of the run, and make them again."""
    topics = [topic_name(config.run, each) for each in names]
    client = admin(config.kafka)
    for future in client.delete_topics(topics).values():
        future.result()
    until(lambda: not set(topics) & client.list_topics(timeout=10).topics.keys(), "the topics to be gone")
    topic_admin.ensure(config)


def played(config: Config, task: str) -> None:
    """One trajectory."""
    with RecordProducer(config, "a-test") as producer:
        made = factories.trajectory(task)
        producer.publish("trajectories", task, made).result(30)


def recorded_with(config: Config, gamma: float) -> None:
    """A learner that starts with this setting records those of the run."""
    algorithm = config.algorithm.model_copy(update={"gamma": gamma})
    join(config.model_copy(update={"algorithm": algorithm}), None, "learner", ("a test",))


def test_an_episode_is_of_the_run_that_there_is_now(
    broker: str, s3: settings.StoreSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was deleted and begun again between two looks at it."""
    monkeypatch.setattr(follow, "ACTIVE_S", 0.0)
    config = settings_of(broker, s3, tmp_path, "episodes")
    topic_admin.ensure(config)
    played(config, "of the first")
    with serving(config) as served:
        served.ready(config.run)
        shown = served.runs.get(config.run)
        assert shown.episode("trajectories", 0, 0).trajectory.task_id == "of the first"
        made_again(config)
        played(config, "of the second")

        def listed() -> list[str]:
            found = served.get(f"runs/{config.run}/trajectories").json
            return [row["task_id"] for row in found.get("rows", ())]  # none while the index is made

        until(lambda: listed() == ["of the second"], "the second one's")
        assert shown.episode("trajectories", 0, 0).trajectory.task_id == "of the second"


def test_a_run_is_shown_with_the_settings_that_are_recorded_and_with_those_of_the_run_that_there_is_now(
    broker: str, s3: settings.StoreSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.view.runs.REFRESH_S", 0.0)
    monkeypatch.setattr(follow, "SAME_S", 0.0)
    config = settings_of(broker, s3, tmp_path, "settings")
    topic_admin.ensure(config)

    def of_run(name: str) -> Config:
        found = recorded(config)
        gamma = found.values["algorithm.gamma"] if found else config.algorithm.gamma
        return config.model_copy(update={"algorithm": config.algorithm.model_copy(update={"gamma": gamma})})

    def shown_with(runs: Runs) -> float:
        (found,), failed = runs.all()
        assert not failed
        return found.config.algorithm.gamma

    with Runs(lambda: [config.run], of_run) as runs:
        assert shown_with(runs) == config.algorithm.gamma
        recorded_with(config, GAMMAS[0])
        assert shown_with(runs) == GAMMAS[0]
        assert runs.get(config.run).follower.caught_up.wait(MOST_S)  # and is followed, though it has no record to read
        change(config, "runs set", ("a test",), {"algorithm.gamma": CHANGED})
        until(lambda: runs.get(config.run).config.algorithm.gamma == CHANGED, "what was changed")
        made_again(config)
        recorded_with(config, GAMMAS[1])
        # also where nobody asks for the list
        until(lambda: runs.get(config.run).config.algorithm.gamma == GAMMAS[1], "the other setting")


def test_an_index_that_cannot_be_made_is_explained(world: World, run: str, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder belongs")
    stack = world.config.stack.model_copy(update={"cache": tmp_path / "cache"})
    with serving(world.config.model_copy(update={"stack": stack})) as served:
        served.ready(world.config.run)
        refused = served.get(f"{run}/devices")
        assert (refused.status, "stack.cache" in refused.json["fix"]) == (503, True)
        (row,) = served.get("runs").json["runs"]
        assert (row["trajectories"], row["success"]) == (0, None)


def test_the_reader_of_a_run_may_see_it(secured_server: Secured, s3: settings.StoreSettings, tmp_path: Path) -> None:
    """With the rights of a viewer at a broker with rights, and no others."""
    name = f"seen-{uuid.uuid4().hex[:8]}"
    own = [f"run={name}", f"store.url=file://{tmp_path / 'objects'}", f"stack.cache={tmp_path / 'cache'}"]
    publish(over_tls(secured_server, "admin", *own), count=8)
    grant(over_tls(secured_server, "admin", *own), ROLES["viewer"], "User:viewer")
    with serving(over_tls(secured_server, "viewer", *own)) as served:
        served.ready(name)
        found = served.get(f"runs/{name}").json
        assert (found["trajectories"], found["notes"]) == (8, [])
        assert served.get(f"runs/{name}/trajectories/0:3").json["task_id"] == "task-3"


def test_the_command_serves_until_it_is_stopped(world: World, tmp_path: Path) -> None:
    write_settings(world.config, tmp_path / "run.yaml")
    (tmp_path / "token").write_text(TOKEN + "\n")
    line = [sys.executable, "-m", "distrl.cli.main", "view", "-c", str(tmp_path / "run.yaml")]
    refused = subprocess.run([*line, "--run", "no-such-run"], capture_output=True, text=True, timeout=120)
    assert refused.returncode == 1
    assert "no-such-run" in refused.stderr
    asked = [*line, "--run", world.config.run, "--token-file", str(tmp_path / "token")]
    log = tmp_path / "log"
    with log.open("w") as errors, subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=errors, text=True) as server:
        try:
            assert server.stdout is not None
            ready = next(line for line in server.stdout if line.startswith("ready: "))
            port = int(ready.rpartition(":")[2].strip(" /\n"))
            assert ask(port, "/api/runs").status == 401
            found = ask(port, "/api/runs", Authorization=f"Bearer {TOKEN}").json["runs"]
            assert [row["run"] for row in found] == [world.config.run]
            stream = http.client.HTTPConnection("127.0.0.1", port, timeout=MOST_S)
            events = f"/api/runs/{world.config.run}/events"
            stream.request("GET", events, headers={"Authorization": f"Bearer {TOKEN}"})  # an open stream ends with it
            assert stream.getresponse().status == 200
        finally:
            server.terminate()
        assert server.wait(60) == 0
    assert TOKEN not in log.read_text()


def test_an_index_goes_on_where_it_was_and_is_made_again_where_the_log_is_another(
    broker: str, s3: settings.StoreSettings, tmp_path: Path
) -> None:
    world = publish(settings_of(broker, s3, tmp_path, "again"), count=8)
    run = world.config.run
    with serving(world.config) as served:
        served.ready(run)
        path = served.runs.get(run).follower.path
    with reading(path) as index:
        first = index.execute("SELECT rowid FROM episodes").fetchall()
    store = open_store(world.config.store)
    with RecordProducer(world.config, "a-test") as producer:
        more = episode(store, 50)
        producer.publish("trajectories", more.task_id, more).result(30)
    with serving(world.config) as served:  # extended: the rows of before are the same ones
        served.ready(run)
        assert served.get(f"runs/{run}").json["trajectories"] == 9
        with reading(path) as index:
            assert set(first) < set(index.execute("SELECT rowid FROM episodes").fetchall())
    made_again(world.config, ("trajectories", "evaluations"))
    with RecordProducer(world.config, "a-test") as producer:
        producer.publish("trajectories", more.task_id, more).result(30)
    with serving(world.config) as served:
        served.ready(run)
        found = served.get(f"runs/{run}").json
        assert (found["trajectories"], found["evaluations"]) == (1, 0)
