from __future__ import annotations

import hashlib
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from distrl.appagent import identity
from distrl.config import AppAgentSettings, StoreSettings
from distrl.evaluate import curves, policies
from distrl.evaluate.gather import agent_names
from distrl.evaluate.policies import PolicyId
from distrl.store.objects import open_store
from distrl.types import PROMPTED, Evaluation, Outcome, Split

from .world import evaluation, task, trajectory

AGENT, OTHER = "ab" * 32, "cd" * 32
HOSTILE = "<img src=x onerror=alert(1)>"


def by_agent(sha256: str, name: str, outcome: Outcome = Outcome.SUCCESS, split: Split = Split.TEST) -> Evaluation:
    played = trajectory(task(name, split=split), outcome, versions=(PROMPTED,))
    return Evaluation(PROMPTED, sha256, f"{sha256[:12]}-{name}", played)


def both() -> list[Evaluation]:
    """Versions 0 and 10, and two agents, on two held-out tasks each; one of the tasks twice."""
    tasks = [("a", Outcome.SUCCESS), ("b", Outcome.FAILURE), ("a", Outcome.FAILURE)]
    return [
        *(by_agent(sha256, *each) for sha256 in (OTHER, AGENT) for each in tasks),
        *(evaluation(number, trajectory(task(name), outcome)) for number in (10, 0) for name, outcome in tasks),
    ]


def test_versions_and_agents_stand_in_one_table() -> None:
    found = policies.by_policy(both())
    assert list(found) == [("home", Split.TEST)]
    rows = found["home", Split.TEST]
    assert list(rows) == [PolicyId(0, "s"), PolicyId(10, "s"), PolicyId(PROMPTED, AGENT), PolicyId(PROMPTED, OTHER)]
    assert {(score.successes, score.episodes) for score in rows.values()} == {(1, 2)}


def test_splits_and_suites_are_kept_apart() -> None:
    own = by_agent(AGENT, "c")
    own = replace(own, trajectory=replace(own.trajectory, task=replace(own.trajectory.task, suite="own")))
    found = policies.by_policy([*both(), by_agent(AGENT, "v", split=Split.VALIDATION), own])
    assert list(found) == [("home", Split.TEST), ("home", Split.VALIDATION), ("own", Split.TEST)]
    assert list(policies.held_out([*both(), own], "own")) == [PolicyId(PROMPTED, AGENT)]
    assert len(policies.held_out([*both(), own], None)) == 4
    assert policies.held_out([], None) == {}


def test_an_agent_is_no_version_that_is_compared_with_others() -> None:
    assert list(curves.evaluated(both(), Split.TEST)) == [0, 10]
    assert curves.evaluated([by_agent(AGENT, "a")], Split.TEST) == {}
    assert curves.of_other_suites([by_agent(AGENT, "a")], Split.TEST) == 0


def test_agents_go_by_the_name_that_their_description_gives(tmp_path: Path) -> None:
    store = open_store(StoreSettings(url=f"file://{tmp_path}"))
    ref = store.put(identity.FOLDER, identity.description(AppAgentSettings(model="m"), {}), identity.SUFFIX)
    forged = hashlib.sha256(b"something else").hexdigest()
    store.put_named(f"{identity.FOLDER}/{forged}.{identity.SUFFIX}", b"{}")
    garbage = store.put(identity.FOLDER, b"garbage", identity.SUFFIX)
    names = [ref.sha256, forged, garbage.sha256, AGENT, "../../etc"]
    assert agent_names(store, [by_agent(sha256, "a") for sha256 in names]) == {
        ref.sha256: "AppAgent, m, elements, no notes"
    }
    assert agent_names(store, [evaluation(0, trajectory(task("a")))]) == {}


def test_rows_for_people_and_for_programs() -> None:
    rows = policies.held_out(both(), "home")
    told = policies.as_json(rows, {AGENT: HOSTILE})
    assert [each["policy"] for each in told] == ["version 0", "version 10", HOSTILE, f"agent {OTHER[:12]}"]
    assert [each["success"] for each in told] == [0.5] * 4
    tags: list[str] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)  # type: ignore[method-assign]
    parser.feed(policies.as_html(rows, {AGENT: HOSTILE}))
    assert set(tags) == {"table", "tr", "th", "td"}
    assert "No held-out" in policies.as_html({}, {})


def test_the_name_of_an_agent_cannot_turn_the_line_of_the_table() -> None:
    rows = policies.held_out(both(), None)
    assert "<td>\\u202eGPT\\x1b</td>" in policies.as_html(rows, {AGENT: "\u202eGPT\x1b"})
