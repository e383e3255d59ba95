"""`distrl view --export` of a run on a real broker: the same answers as files, and the same bytes each time."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from distrl.config import Config, load
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.train.roles import write_settings
from distrl.view.app import application
from distrl.view.export import EXPORTED, FORMAT, export
from distrl.view.follow import index_path
from distrl.view.in_process import InProcess
from distrl.view.index import delete
from distrl.view.runs import Runs
from view.exporting import MADE_AT, MOST_S, contents, exported
from view.world import DRAWN, HOSTILE, JUDGED, UPDATES, World, png, publish

pytestmark = pytest.mark.integration

EPISODES = 24 + 16 + 1
MANIFEST = "manifest.json"


@pytest.fixture(scope="module")
def world(broker: str, tmp_path_factory: pytest.TempPathFactory) -> World:
    folder = tmp_path_factory.mktemp("export")
    sets = [
        f"run=export-{uuid.uuid4().hex[:8]}",
        f"kafka.bootstrap={broker}",
        "kafka.task_partitions=3",
        f"store.url=file://{folder / 'store'}",
        f"stack.cache={folder / 'cache'}",
    ]
    return publish(load(sets=sets, environ={}))


@pytest.fixture(scope="module")
def whole(world: World, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Path -> bytes of an export of all episodes."""
    place = tmp_path_factory.mktemp("shared") / "run"
    done = exported(world.config, place)
    assert (done.runs, done.episodes, done.absent) == (1, EPISODES, 0)
    return contents(place)


def read(files: dict[str, bytes], config: Config, name: str) -> Any:
    return json.loads(files[f"data/{config.run}/{name}.json"])


def listed(files: dict[str, bytes], config: Config) -> list[dict[str, Any]]:
    found = read(files, config, "trajectories")
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def test_the_files_are_the_answers_of_the_api(world: World, whole: dict[str, bytes]) -> None:
    config = world.config
    with Runs(lambda: [config.run], lambda name: config) as runs, InProcess(application(runs, lambda: True)) as asked:
        assert runs.get(config.run).follower.caught_up.wait(MOST_S)

        def api(path: str) -> Any:
            found = asked.get(f"/api/{path}")
            assert found.status == 200
            return json.loads(found.body)

        of_run = f"runs/{config.run}"
        assert json.loads(whole["data/runs.json"]) == api("runs")
        assert read(whole, config, "run") == api(of_run)
        for name in ("series", "devices", "failures", "versions", "versions/0", "versions/2"):
            assert read(whole, config, name) == api(f"{of_run}/{name}"), name
        assert read(whole, config, "failures/2") == api(f"{of_run}/failures?version=2")
        assert read(whole, config, "dead-letters")["rows"] == api(f"{of_run}/dead-letters")["rows"]
        rows = api(f"{of_run}/trajectories?limit=500")["rows"]
        assert sorted(map(str, listed(whole, config))) == sorted(map(str, rows))
        for place in ("trajectories/0:5", "trajectories/0:0", "evaluations/0:3", "demonstrations/0:0"):
            wanted, found = api(f"{of_run}/{place}"), read(whole, config, place.replace(":", "-"))
            for step in (*wanted["steps"], wanted["final"]):
                sha256 = step["image"].rpartition("sha256=")[2]
                step |= {"image": f"images/{sha256}.png", "image_absent": ""}
            assert found == wanted
        for place in (f"trajectories/0:{DRAWN}", "evaluations/0:3"):
            assert read(whole, config, f"verdicts/{place.replace(':', '-')}") == api(f"{of_run}/verdicts/{place}")
        assert len(read(whole, config, f"verdicts/trajectories/0-{DRAWN}")["verdicts"]) == len(JUDGED)


def test_a_step_has_what_the_learner_held_of_it_and_when_it_was_drawn(world: World, whole: dict[str, bytes]) -> None:
    found = read(whole, world.config, f"trajectories/0-{DRAWN}")
    assert found["draws"] == {"recorded": True, "updates": 2, "shown": 2}
    first, second, third = found["steps"][:3]
    assert [first[name] for name in ("value", "advantage", "priority")] == [0.5, -0.25, (UPDATES - 1) / 2]
    assert first["drawn"]["u"] == first["drawn"]["times"] == [UPDATES - 1, UPDATES - 2]
    assert first["drawn"]["priority"] == [(UPDATES - 1) / 2, (UPDATES - 2) / 2]
    assert second["drawn"] is None
    assert (third["value"], third["drawn"]["priority"]) == (None, [0.0, 0.0])
    never = read(whole, world.config, f"trajectories/0-{DRAWN - 1}")
    assert never["draws"] == {"recorded": True, "updates": 0, "shown": 0}
    assert read(whole, world.config, "evaluations/0-3")["draws"] is None


def test_pictures_are_there_once_by_their_content(whole: dict[str, bytes]) -> None:
    pictures = {name: body for name, body in whole.items() if name.startswith("images/")}
    assert len(pictures) == 24 + 8 + 1
    for name, body in pictures.items():
        assert name == f"images/{hashlib.sha256(body).hexdigest()}.png"


def test_no_name_of_a_file_is_a_text_of_a_record(world: World, whole: dict[str, bytes]) -> None:
    assert [name for name in whole if name != MANIFEST and not FORMAT.files.fullmatch(name)] == []
    assert any(row["task_id"] == "evil/" + HOSTILE for row in listed(whole, world.config))


def test_the_pages_know_that_they_are_an_export_of_these_offsets(world: World, whole: dict[str, bytes]) -> None:
    assert EXPORTED.encode() in whole["index.html"]
    manifest = json.loads(whole[MANIFEST])
    about = manifest["runs"][world.config.run]
    assert (manifest["made_at"], about["episodes"], about["of"]) == (MADE_AT, EPISODES, EPISODES)
    assert about["read_up_to"]["trajectories"] == {"0": 24}
    assert about["read_up_to"] == read(whole, world.config, "run")["read_up_to"]


def test_the_same_log_gives_the_same_bytes_whenever_it_is_read(
    world: World, whole: dict[str, bytes], tmp_path: Path
) -> None:
    delete(index_path(world.config))
    exported(world.config, tmp_path / "again", at=MADE_AT + 1)
    again = contents(tmp_path / "again")
    differ = [name for name in whole.keys() | again.keys() if whole.get(name) != again.get(name)]
    assert differ == [MANIFEST]
    assert json.loads(again[MANIFEST]) == json.loads(whole[MANIFEST]) | {"made_at": MADE_AT + 1}


def test_of_a_bounded_export_nothing_leads_to_what_it_lacks(world: World, tmp_path: Path) -> None:
    exported(world.config, tmp_path / "some", most=20)
    files = contents(tmp_path / "some")
    rows = listed(files, world.config)
    newest = sorted((each["finished_at"] for each in rows), reverse=True)
    assert len(rows) == 20
    assert min(newest) > max(each.finished_at for each in world.trajectories) - 24 * 10_000
    places = {(row["topic"], row["partition"], row["offset"]) for row in rows}
    topics = {topic for topic, _, _ in places}
    with_verdicts = [name for name in files if "-" in Path(name).stem and Path(name).parent.name in topics]
    episodes = [name for name in with_verdicts if "/verdicts/" not in name]
    assert len(episodes) == len(with_verdicts) - len(episodes) == 20
    for name in episodes:
        found = json.loads(files[name])
        for beside in (found["previous"], found["next"]):
            assert beside is None or (found["topic"], *map(int, beside.split(":"))) in places
    failures = read(files, world.config, "failures")
    examples = [row for each in (*failures["classes"], *failures["conditions"]) for row in each["examples"]]
    assert {(row["topic"], row["partition"], row["offset"]) for row in examples} <= places
    assert "this export has the 20 episodes that ended last, of 41" in read(files, world.config, "run")["notes"]


def test_a_folder_is_written_over_only_if_it_is_an_export_and_force_is_given(world: World, tmp_path: Path) -> None:
    place = tmp_path / "shared"
    exported(world.config, place, most=1)
    with pytest.raises(ConfigError, match="--force"):
        exported(world.config, place, most=1)
    exported(world.config, place, most=2, force=True)
    assert len(listed(contents(place), world.config)) == 2
    (place / "mine.txt").write_text("not to be lost")
    with pytest.raises(ConfigError, match=r"mine\.txt"):
        exported(world.config, place, most=1, force=True)
    assert [each.name for each in tmp_path.iterdir()] == ["shared"]


def test_an_index_that_is_gone_is_said_and_leaves_no_folder(world: World, tmp_path: Path) -> None:
    with Runs(lambda: [world.config.run], lambda name: world.config) as runs:
        follower = runs.get(world.config.run).follower
        assert follower.caught_up.wait(MOST_S)
        follower.close()
        delete(follower.path)
        with pytest.raises(StoreError, match="the index is gone"):
            export(runs, tmp_path / "shared", None, False, MADE_AT)
    assert list(tmp_path.iterdir()) == []


def test_of_all_runs_those_are_exported_that_could_be_read_when_it_began(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrl.view.runs.REFRESH_S", 0.0)
    names = [world.config.run, "away"]
    sets = ["run=away", "kafka.bootstrap=127.0.0.1:1", "kafka.connect_timeout_s=0.1", f"stack.cache={tmp_path}/cache"]
    away = load(sets=sets, environ={})

    def begun(*_: object) -> None:
        if "late" not in names:
            names.append("late")

    with Runs(lambda: names, lambda name: world.config if name == world.config.run else away) as runs:
        for name in names:
            assert runs.get(name).follower.caught_up.wait(MOST_S)
        with pytest.raises(BrokerError):
            export(runs, tmp_path / "shared", 2, False, MADE_AT)
        done = export(runs, tmp_path / "shared", 2, False, MADE_AT, begun, every_run=False)
    assert (done.runs, list(done.left_out), names[-1]) == (1, ["away"], "late")
    files = contents(tmp_path / "shared")
    found = json.loads(files["data/runs.json"])
    assert [row["run"] for row in found["runs"]] == [world.config.run]
    assert [row["run"] for row in found["problems"]] == ["away"]
    assert json.loads(files[MANIFEST])["not_exported"] == [f"away: {done.left_out['away'].what}"]
    assert not any(name.startswith(("data/away/", "data/late/")) for name in files)


def test_the_command_writes_it_without_a_screenshot_that_is_gone(world: World, tmp_path: Path) -> None:
    write_settings(world.config, tmp_path / "run.yaml")
    gone = hashlib.sha256(png(23)).hexdigest()
    stored = next(Path(str(world.config.store.url).removeprefix("file://")).rglob(f"{gone}.png"))
    away = stored.rename(tmp_path / "away")
    place = tmp_path / "shared"
    line = [sys.executable, "-m", "distrl.cli.main", "view", "-c", str(tmp_path / "run.yaml")]
    asked = [*line, "--run", world.config.run, "--export", str(place), "--episodes", "all"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=120, env=dict(os.environ))
    finally:
        away.rename(stored)
    assert done.returncode == 0, done.stderr
    assert f"{EPISODES} episodes" in done.stdout
    assert "python -m http.server" in done.stdout
    files = contents(place)
    found = read(files, world.config, "trajectories/0-23")
    assert found["steps"][0]["image"] is None
    assert "is not in" in found["steps"][0]["image_absent"]
    assert f"images/{gone}.png" not in files
    assert read(files, world.config, "run")["notes"] == [
        "5 steps have no screenshot here: the store had none, or no image"
    ]
    again = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    assert (again.returncode, "--force" in again.stderr) == (1, True)
